// Package feed defines what a hub and its clients share: names of sets, cursors, entries and
// batches with their JSON and XML, the state of a set, the URLs of a hub, and the errors that both
// ends branch on.
//
// It is a part of the public API. It knows no server and no store. The changes inside an entry are
// those of package resourcesync; package client reads and writes what feed defines.
package feed

import (
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// MaxNumber bounds both halves of a cursor. JavaScript and Lua hold no greater
// number exactly.
const MaxNumber = 1<<53 - 1

// A Cursor is a place in the log of one set: the position and the datetime of
// the last entry that a follower has seen. A follower goes on with the entry
// after it. A cursor verifies itself: if the log holds another datetime at that
// position, the log has lost its tail since, and changelog.Log.Since says so.
//
// The zero Cursor stands before the first entry of a log. It fits a log that is
// not made yet, and every log that retention has not shortened.
type Cursor struct {
	Position uint64 // position of the entry, from 1; 0 is the beginning of the log
	Micros   int64  // datetime of the entry in microseconds since 1970; at position 0, when the log began
}

// ParseCursor reads the text form of a cursor, "position-microseconds". An
// error is a *resourcesync.Error with ErrInvalid.
func ParseCursor(s string) (Cursor, error) {
	p, m, ok := strings.Cut(s, "-")
	position, perr := strconv.ParseUint(p, 10, 64)
	micros, merr := strconv.ParseUint(m, 10, 64)
	if !ok || perr != nil || merr != nil || position > MaxNumber || micros > MaxNumber {
		return Cursor{}, resourcesync.Invalid("%q is no cursor: a cursor is two numbers, position-microseconds, as the hub gave it", resourcesync.Shorten(s))
	}
	return Cursor{position, int64(micros)}, nil
}

// String returns the text form. Clients must treat it as opaque.
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
