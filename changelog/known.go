package changelog

import (
	"errors"

	"github.com/rshub/rshub/feed"
)

// ErrUnfinished means that the store holds an unfinished copy, which no hub can use yet.
var ErrUnfinished = errors.New("it is an unfinished copy of a change memory: run rshub copy again, or remove it")

// A Known is a publish that a set remembers by its idempotency key.
type Known struct {
	Key           string
	Hash          [32]byte
	Number        uint64      // the set's first key has 1, the next 2, and so on
	After, Cursor feed.Cursor // see Appended
}

// A Left is what a set remembers of deleted sets of its name. Datetimes are in
// microseconds since 1970.
type Left struct {
	Upto int64 // the next log begins later than this, unless this lies too far in the future
	Ever int64 // the latest datetime that an entry ever had: later than Upto if a clock was wrong
}
