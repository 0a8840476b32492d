package resourcesync

import (
	"errors"
	"fmt"
)

// ErrInvalid reports that input violates the standard, XML or JSON. It is wrapped in an
// *Error, which names the entry and the violation.
var ErrInvalid = errors.New("invalid")

// ErrTooLarge reports that input exceeds one of the Limits.
var ErrTooLarge = errors.New("too large")

// ErrLoc reports that the loc of an entry cannot be read, so that it is unknown which
// resource the entry is about. It wraps ErrInvalid.
var ErrLoc = fmt.Errorf("%w loc", ErrInvalid)

// An Error describes a violation and its position in the input. It wraps ErrInvalid,
// ErrLoc or ErrTooLarge, so callers can use errors.Is.
type Error struct {
	Err   error  // ErrInvalid, ErrLoc or ErrTooLarge
	Entry int    // number of the entry, from 1; 0 if the error is not about an entry
	Line  int    // line number, from 1; 0 if unknown
	Loc   string // shortened loc of the entry; empty if unknown
	Msg   string // description of the violation: what was found and what is wanted

	// More holds the other errors of the same document, in document order. ReadXML
	// and ReadJSON report up to MaxErrors errors per document, including this one.
	// The elements have no More of their own.
	More []*Error
}

// MaxErrors is the maximum number of errors that a reader reports for one document.
const MaxErrors = 20

// Error returns the messages of e and of all errors in More, separated by semicolons.
func (e *Error) Error() string {
	s := e.text()
	for _, more := range e.More {
		s += "; " + more.text()
	}
	return s
}

// text returns the message of e with its position, but without More.
func (e *Error) text() string {
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

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// errorList collects the errors of the entries of one document.
type errorList struct {
	list  []*Error
	meter *memoryMeter
}

// add appends the error of an entry that is invalid or could not be read to its end. It
// reports whether the reader should continue with the next entry. It should not if err
// is not an *Error, or if the list has reached MaxErrors.
func (l *errorList) add(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	l.meter.entryStart = l.meter.read
	l.list = append(l.list, e)
	return len(l.list) < MaxErrors
}

// result returns the error to report after reading stopped with err, which is nil at the
// end of the document. It is the first error of the list, with the others in More. If the
// list is empty or err is not an *Error, it is err.
func (l *errorList) result(err error) error {
	var e *Error
	switch {
	case len(l.list) == 0, err != nil && !errors.As(err, &e):
		return err
	case e != nil && e != l.list[len(l.list)-1]:
		l.list = append(l.list, e)
	}
	first := *l.list[0]
	first.More = l.list[1:]
	return &first
}

// inEntry sets the entry number and the loc of err if it is an *Error. It returns err.
func inEntry(err error, entry int, loc string) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.Entry, e.Loc = entry, Shorten(loc)
	}
	return err
}

// Invalidf returns an *Error that wraps ErrInvalid. Its Msg is formatted as by
// fmt.Sprintf.
func Invalidf(format string, args ...any) error {
	return &Error{Err: ErrInvalid, Msg: fmt.Sprintf(format, args...)}
}

// Wrap returns err with "name: " prepended to its message, where name identifies what
// err is about. If err is or wraps an *Error, the result is a copy of that *Error with
// the prefix in its Msg, so its entry and line stay in front. Any other error is
// wrapped. err must not be nil.
func Wrap(name string, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return fmt.Errorf("%s: %w", name, err)
	}
	wrapped := *e
	wrapped.Msg = name + ": " + e.Msg
	return &wrapped
}
