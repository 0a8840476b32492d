// Package changelog defines the change memory: for each set, a bounded, ordered log of the changes
// that the hub accepted. It defines the contract of a Log, and the encoding of changes in blocks.
//
// Packages disklog and redislog implement Log; package logtest is its contract as a test suite.
// Package hub appends to a Log and follows it. The package carries no compatibility promise.
package changelog

import (
	"context"
	"errors"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// ErrCorrupt reports that the store returned different data than was written.
var ErrCorrupt = errors.New("the change memory is damaged")

// SettledAfter is the age from which an entry keeps its position forever. After a failover, a
// memory that lost its tail may give the positions of younger entries to other entries.
const SettledAfter = time.Hour

// Limits of a log.
const (
	MaxBatch        = 50_000         // changes in one publish, which is the standard's limit for a document
	MaxBlockEntries = 1_000          // entries in one block
	MaxBlockBytes   = 256_000        // bytes of encoded entries in one block before compression, unless it has a single entry
	MaxKey          = 255            // bytes of an idempotency key
	MaxListSize     = 25_000         // entries in one list; changelist.xml may have two lists, and the standard allows 50,000
	KeyAge          = 24 * time.Hour // time for which a set remembers an idempotency key
	KeyCount        = 100_000        // number of idempotency keys that a set remembers
)

// Conditions under which a store's clock is in doubt; see Log.Tick.
const (
	ClockStep  = time.Hour      // maximum advance of the clock between two checks
	ClockDoubt = 24 * time.Hour // duration of the doubt after a larger advance
)

// A Log has the logs of many sets. It is safe for concurrent use. Methods block until the store has
// answered or ctx is done. Errors named in the comments are defined by package feed, unless a
// package is named.
//
// The entries of a set are numbered from 1 without a gap. Their datetimes strictly
// increase: the datetime of an entry is max(now, previous datetime + 1 µs), where
// now is the store's clock. No entry is readable before it is durable.
type Log interface {
	// ID returns the identity of this memory, a random text created with it. Copies and backups
	// have the same identity. The identity changes when the store turns out to hold another
	// memory, so callers must not cache it.
	ID() string

	// Secret returns the secret with which the hubs of this memory authenticate their messages to
	// each other. Copies, backups and clones of the store have another secret or none. The secret
	// changes when a call of Make, Sets or Check notices that the store was restarted or
	// replaced, so callers must not cache it. It is empty if no other hub can read the log, and
	// while it is unknown.
	Secret() string

	// Make creates a set with a description, a list size and an empty log. The log starts now,
	// and later than any entry of a deleted set with the same name, except for entries further in
	// the future than the clock skew. (Their cursors are gone as well, see Since.) If the set
	// exists, Make does nothing and returns nil.
	Make(ctx context.Context, set string, d feed.Description, listSize int) error

	// Describe replaces the description of a set. It returns ErrNoSet if the set does not exist.
	Describe(ctx context.Context, set string, d feed.Description) error

	// Delete removes a set with its log and its keys. All cursors of the set are gone from then
	// on. It returns ErrNoSet if the set does not exist.
	Delete(ctx context.Context, set string) error

	// State returns the state of a set, in one atomic step. It returns ErrNoSet if the set does
	// not exist.
	State(ctx context.Context, set string) (feed.State, error)

	// Sets returns the states of the named sets, or of all sets without names, sorted by name.
	// Each state is read atomically, but not all states together. Sets that do not exist are
	// omitted. With an error, Sets also returns the states that it could read.
	Sets(ctx context.Context, names ...string) ([]feed.State, error)

	// Append adds publishes to the log of a set in the given order, in one atomic and durable
	// step. If it returns nil, every publish whose Appended has no Err is stored completely, and
	// survives a crash of the process and of the machine. If it returns an error (ErrNoSet,
	// ErrFull, ErrClock, ErrUnavailable or another), no publish was added, except for
	// ErrUnknown: then either all publishes were added or none. ErrClock means that the newest
	// entry of the set is further in the future than the clock skew, or that the clocks of hub
	// and store differ by more. If the set has seen all publishes of the call, Append succeeds
	// even if nothing can be added because of ErrFull or a head in the future.
	//
	// Append does not add a publish whose Key the set has seen within KeyAge and within the last
	// KeyCount keys, including earlier publishes of the same call. If the Hash is equal, the
	// Appended is a copy of the first one, with Replayed set; otherwise its Err is
	// ErrKeyReused. Err is also ErrKeyReused if the set has seen Unless and not Key. A publish
	// with Refused that the set has not seen gets Refused as Err. The other publishes of the call
	// are added anyway. While the store's clock is in doubt, no key expires by KeyAge. Append
	// detects a doubtful clock even without a Tick, by comparing it with the recorded time.
	Append(ctx context.Context, set string, publishes ...Publish) ([]Appended, error)

	// Since returns the entries that directly follow a cursor, in one atomic step and without
	// holes. It returns at most limit entries (1,000 if limit is not positive), and fewer if the
	// entries are large, but at least one if one exists. If no entry follows, the batch is empty
	// and its Cursor equals its After. The caller owns the batch.
	//
	// The cursor is verified:
	//  1. If the entry at the cursor's position has the cursor's datetime, or the cursor is the
	//     floor, or the cursor is zero and the floor is at position 0, the log has the cursor.
	//     Then After is the cursor.
	//  2. Otherwise, if the cursor's datetime is not before the floor's, and later than any entry
	//     of a deleted set with the same name, the log lost its newest entries. Then Diverged is
	//     set, and After is the newest entry with a lower position and a datetime that is earlier
	//     by at least the clock skew, or else the floor. Entries may repeat; none is skipped.
	//  3. Otherwise Since returns ErrGone.
	//
	// If the set does not exist, the zero cursor yields an empty batch, and any other cursor
	// ErrGone.
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)

	// At returns the cursor of the entry at a position, or the floor at the floor's position. It
	// returns ErrGone for a position before the floor, an error with resourcesync.ErrInvalid for
	// a position after the head, and ErrNoSet if the set does not exist.
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)

	// Seek returns the cursor after which the entries with datetime >= micros start: the newest
	// earlier entry, or the floor. micros is in microseconds since 1970. Seek returns ErrGone if
	// such an entry may have been removed, or may be older than the log: that is, if micros is
	// before the floor's datetime, or equal to it and the floor is a removed entry. It returns
	// ErrNoSet if the set does not exist.
	Seek(ctx context.Context, set string, micros int64) (feed.Cursor, error)

	// Trim applies retention to a set and removes expired keys. It removes only whole closed
	// lists, and returns the number of entries removed. It returns ErrNoSet if the set does not
	// exist.
	Trim(ctx context.Context, set string, r Retention) (removed int, err error)

	// Tick records the time of the store's clock. Every hub of the memory calls it about once a
	// minute. It reports whether the clock is in doubt; then nothing may be removed because of its
	// age, and no idempotency key expires by age. The clock is in doubt if it is ahead of the last
	// recorded time by more than ClockStep: either it is wrong, or no hub ran for that long. The
	// doubt ends after ClockDoubt, or when the clock is set back. A store with a clock of its own
	// is doubtful, too, while it differs from the hub's clock by more than the clock skew.
	Tick(ctx context.Context) (doubtful bool, err error)

	// Check returns nil if an append could succeed now, and otherwise the reason. It compares the
	// clocks of hub and store. It does not check the heads of sets, because a head in the future
	// affects only its set.
	Check(ctx context.Context) error

	// Close releases the store. No method may be called after it.
	Close() error
}

// A Publish is one batch to append.
type Publish struct {
	Changes   []resourcesync.Change // 1 to MaxBatch valid changes; the log does not retain the slice
	Key       string                // idempotency key, unique per set and caller, at most MaxKey bytes; empty for none
	Hash      [32]byte              // hash of the content; a publish with the same Key must have the same Hash
	Unless    string                // a key that must not have been used, like Key; empty for none
	MustExist bool                  // do not create the set if it does not exist; used by hubs only
	Refused   error                 // reason not to add the publish, such as a quota; nil if it may be added
}

// CheckPublishes checks the number of changes and the length of keys. Each implementation of Log
// calls it; the caller of Append has validated the changes themselves. The error is a
// *resourcesync.Error with ErrInvalid.
func CheckPublishes(publishes []Publish) error {
	for _, p := range publishes {
		if n := len(p.Changes); n < 1 || n > MaxBatch {
			return resourcesync.Invalidf("publish: got %d changes, want 1 to %d", n, MaxBatch)
		}
		if n := max(len(p.Key), len(p.Unless)); n > MaxKey {
			return resourcesync.Invalidf("idempotency key: got %d bytes, want at most %d", n, MaxKey)
		}
	}
	return nil
}

// An Appended is the result of appending a publish.
type Appended struct {
	After    feed.Cursor // cursor before its first entry
	Cursor   feed.Cursor // cursor of its last entry
	Count    int         // number of its entries
	Blocks   []CutBlock  // stored blocks, to announce them to other hubs; nil if no other hub can read the log
	Replayed bool        // the publish was in the log before this call
	Err      error       // reason why it was not added: feed.ErrKeyReused, or Publish.Refused
}

// Retention configures Trim, which removes the oldest closed list repeatedly, while all its
// entries are older than Age, or the remaining lists have at least Count entries. If Age or Count
// is 0, it removes nothing by age or by number. The open list and the newest closed list are
// never removed.
type Retention struct {
	Age      time.Duration
	Count    uint64
	Doubtful bool         // the clock is in doubt; nothing is removed because of its age
	Unread   *feed.Cursor // cursor after which no entry may be removed, because a reader still needs them, or nil
}

// Size returns an upper bound of the size of the changes in bytes; see resourcesync.Change.Size.
func (p *Publish) Size() int {
	n := 0
	for i := range p.Changes {
		n += p.Changes[i].Size()
	}
	return n
}
