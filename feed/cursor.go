// Package feed defines the data that a hub and its clients exchange: names of sets, cursors, entries
// and batches with their encodings in JSON and XML, the state of a set, the URLs of a hub, and the
// errors that both sides handle.
//
// It is part of the public API, and depends on no server and no store. The changes in entries are
// the types of package resourcesync. Package client is a client that uses these types.
package feed

import (
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// MaxNumber is the maximum of the position and of the microseconds of a cursor. It is the largest
// integer up to which JavaScript and Lua represent all integers exactly.
const MaxNumber = 1<<53 - 1

// A Cursor is a position in the log of one set: the position and the datetime of the last entry
// that a follower has seen. A follower continues with the next entry. A cursor verifies itself: if
// the log has another datetime at that position, it has lost its tail in the meantime, and
// changelog.Log.Since reports that.
//
// The zero Cursor is before the first entry of a log. It is valid for a log that does not exist
// yet, and for every log from which retention has removed nothing.
type Cursor struct {
	Position uint64 // position of the entry, from 1; 0 is the start of the log
	Micros   int64  // datetime of the entry in microseconds since 1970; at position 0, the datetime at which the log started
}

// ParseCursor parses the text form of a cursor, "position-microseconds". An error is a
// *resourcesync.Error with ErrInvalid.
func ParseCursor(s string) (Cursor, error) {
	p, m, ok := strings.Cut(s, "-")
	position, perr := strconv.ParseUint(p, 10, 64)
	micros, merr := strconv.ParseUint(m, 10, 64)
	if !ok || perr != nil || merr != nil || position > MaxNumber || micros > MaxNumber {
		return Cursor{}, resourcesync.Invalidf("invalid cursor %q: want two numbers, position-microseconds, as the hub returned it", resourcesync.Shorten(s))
	}
	return Cursor{position, int64(micros)}, nil
}

// String returns the text form. Clients must treat it as opaque.
func (c Cursor) String() string { return string(c.Append(nil)) }

// Append appends the text form to dst and returns the extended slice.
func (c Cursor) Append(dst []byte) []byte {
	dst = strconv.AppendUint(dst, c.Position, 10)
	dst = append(dst, '-')
	return strconv.AppendInt(dst, c.Micros, 10)
}

// Time returns the datetime in UTC.
func (c Cursor) Time() time.Time { return time.UnixMicro(c.Micros).UTC() }

// IsZero reports whether c is the zero Cursor, "0-0".
func (c Cursor) IsZero() bool { return c == Cursor{} }
