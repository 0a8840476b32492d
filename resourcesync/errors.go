package resourcesync

import (
	"errors"
	"fmt"
)

// ErrInvalid means that input breaks a rule of the standard, of XML or of JSON. The
// *Error around it names the entry and the rule.
var ErrInvalid = errors.New("invalid")

// ErrTooLarge means that input exceeds one of the Limits.
var ErrTooLarge = errors.New("too large")

// ErrLoc means that the loc of an entry cannot be read, so it is unknown which resource the
// entry is about. It is an ErrInvalid.
var ErrLoc = fmt.Errorf("%w loc", ErrInvalid)

// An Error names the rule that input breaks, and where. errors.Is finds ErrInvalid or
// ErrTooLarge in it.
type Error struct {
	Err   error  // ErrInvalid, ErrLoc or ErrTooLarge
	Entry int    // the entry, from 1; 0 when the error is not about an entry
	Line  int    // the line, from 1; 0 when unknown
	Loc   string // the entry's loc, shortened; empty when unknown
	Msg   string // what is wrong, and what the rule asks for, in words

	// More is what else is wrong in the same document, in its order. ReadXML, ReadJSON and
	// an NDJSONReader say up to MaxErrors.
	More []*Error
}

// MaxErrors is how many errors of one document its reader reports at most.
const MaxErrors = 20

// Error returns what is wrong, and all that is in More.
func (e *Error) Error() string {
	s := e.alone()
	for _, more := range e.More {
		s += "; " + more.alone()
	}
	return s
}

// alone returns the text of e without More.
func (e *Error) alone() string {
	s := e.Msg
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

// mistakes are what is wrong with the entries of one document.
type mistakes struct {
	all  []*Error
	room *room
}

// add notes an error of an entry that is not read to its end, or is not good. It reports
// whether reading may go on: not if err is no *Error, or if there are enough of them.
func (m *mistakes) add(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	m.room.begun = m.room.read
	m.all = append(m.all, e)
	return len(m.all) < MaxErrors
}

// end returns the error of a reading that ended with err. That is nil at the end of the
// document.
func (m *mistakes) end(err error) error {
	var e *Error
	switch {
	case len(m.all) == 0, err != nil && !errors.As(err, &e):
		return err
	case e != nil && e != m.all[len(m.all)-1]:
		m.all = append(m.all, e)
	}
	first := *m.all[0]
	first.More = m.all[1:]
	return &first
}

// inEntry adds to an *Error which entry it is about. It returns err.
func inEntry(err error, entry int, loc string) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.Entry, e.Loc = entry, Shorten(loc)
	}
	return err
}

// Invalidf returns an *Error with ErrInvalid. format and args say in words what is
// wrong.
func Invalidf(format string, args ...any) error {
	return &Error{Err: ErrInvalid, Msg: fmt.Sprintf(format, args...)}
}

// Wrap returns err with name and a colon before its text, where name says what err is
// about. In an *Error they come before the Msg. Any other err is wrapped.
func Wrap(name string, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return fmt.Errorf("%s: %w", name, err)
	}
	about := *e
	about.Msg = name + ": " + e.Msg
	return &about
}
