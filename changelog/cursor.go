package changelog

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// maxNumber bounds both halves of a cursor: what JavaScript and Lua hold exactly.
const maxNumber = 1<<53 - 1

// A Cursor is a place in the log of one set: the position and the datetime of
// the last entry that was seen. Following from it goes on with the entry behind
// it. It verifies itself: a log that holds another datetime at that position
// has lost its tail since, and Log.Since says so.
//
// The zero Cursor stands before the first entry of any log that retention has
// not shortened, also of one that is not made yet.
type Cursor struct {
	Position uint64 // of the entry, from 1; 0 is the beginning of the log
	Micros   int64  // the entry's datetime in microseconds since 1970; at position 0 when the log began
}

// ParseCursor reads the text form, "position-microseconds". An error is a
// *resourcesync.Error with ErrInvalid.
func ParseCursor(s string) (Cursor, error) {
	p, m, ok := strings.Cut(s, "-")
	position, perr := strconv.ParseUint(p, 10, 64)
	micros, merr := strconv.ParseUint(m, 10, 64)
	if !ok || perr != nil || merr != nil || position > maxNumber || micros > maxNumber {
		return Cursor{}, Invalid("%q is no cursor: a cursor is two numbers, position-microseconds, as the hub gave it", shorten(s))
	}
	return Cursor{position, int64(micros)}, nil
}

// String returns the text form, opaque to clients.
func (c Cursor) String() string { return string(c.Append(nil)) }

// Append appends the text form to dst.
func (c Cursor) Append(dst []byte) []byte {
	dst = strconv.AppendUint(dst, c.Position, 10)
	dst = append(dst, '-')
	return strconv.AppendInt(dst, c.Micros, 10)
}

// Time returns the datetime in UTC.
func (c Cursor) Time() time.Time { return time.UnixMicro(c.Micros).UTC() }

// IsZero reports whether c is the zero Cursor, "0-0".
func (c Cursor) IsZero() bool { return c == Cursor{} }

// Invalid returns a *resourcesync.Error for a request that breaks a rule: a 400.
func Invalid(format string, args ...any) error {
	return &resourcesync.Error{Err: resourcesync.ErrInvalid, Rule: fmt.Sprintf(format, args...)}
}

// shorten keeps what a client sent from filling an error.
func shorten(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
