package changelog

import (
	"errors"

	"github.com/rshub/rshub/feed"
)

// ErrUnfinished reports that the store has an unfinished copy of a memory, which hubs must not use.
var ErrUnfinished = errors.New("unfinished copy of a change memory; run rshub copy again, or remove it")

// A KeyRecord is the record of a publish under its idempotency key.
type KeyRecord struct {
	Key           string
	Hash          [32]byte
	Number        uint64      // number of the key in its set, from 1
	After, Cursor feed.Cursor // see Appended
}

// A Tombstone is the record of deleted sets with the name of a set. Datetimes are in microseconds since
// 1970.
type Tombstone struct {
	End    int64 // the next log starts later than this, unless this is too far in the future
	Latest int64 // latest datetime of any entry; later than End if a clock was wrong
}
