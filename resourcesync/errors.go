package resourcesync

import (
	"errors"
	"fmt"
)

// ErrInvalid means that input breaks a rule of the standard or of its form.
// The *Error around it names the entry and the rule.
var ErrInvalid = errors.New("invalid")

// ErrTooLarge means that input is over one of its Limits.
var ErrTooLarge = errors.New("too large")

// An Error names the place and the rule that input breaks. errors.Is finds
// ErrInvalid or ErrTooLarge in it.
type Error struct {
	Err   error  // ErrInvalid or ErrTooLarge
	Entry int    // the entry, from 1; 0 when it is not about an entry
	Line  int    // the line, from 1; 0 when unknown
	Loc   string // the entry's loc, shortened; empty when unknown
	Rule  string // what is wrong and what is asked, in words
}

func (e *Error) Error() string {
	s := e.Rule
	switch {
	case e.Entry > 0 && e.Loc != "":
		s = fmt.Sprintf("entry %d (%s): %s", e.Entry, e.Loc, s)
	case e.Entry > 0:
		s = fmt.Sprintf("entry %d: %s", e.Entry, s)
	case e.Loc != "":
		s = fmt.Sprintf("%s: %s", e.Loc, s)
	}
	if e.Line > 0 {
		s = fmt.Sprintf("line %d: %s", e.Line, s)
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }
