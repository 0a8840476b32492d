// Package changelog defines the change memory: for each set, a bounded and ordered log of the
// changes that the hub accepted. It defines the contract of a Log, and how blocks store changes.
//
// Packages disklog and redislog implement Log; package logtest is its contract as a test suite.
// Package changelog does not know who publishes or reads: package hub appends to a Log, and follows
// it. The package carries no compatibility promise.
package changelog

import (
	"context"
	"errors"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// ErrCorrupt means that the store returned other data than was written.
var ErrCorrupt = errors.New("the change memory is damaged")

// SettledAfter is how old an entry must be before it can be relied on that it stays in its
// place for ever. After a failover, a memory that lost its tail may give the same positions to
// other entries; after an hour that cannot happen any more.
const SettledAfter = time.Hour

// Limits of what a log keeps together.
const (
	MaxBatch        = 50_000         // changes in one publish, the standard's limit for a document
	MaxBlockEntries = 1_000          // entries in one block
	MaxBlockBytes   = 256_000        // of encoded entries in one block, before compression, unless it is a single entry
	MaxKey          = 255            // bytes of an idempotency key
	MaxListSize     = 25_000         // entries in one list; the rolling view has two lists, and the standard allows 50,000
	KeyAge          = 24 * time.Hour // how long a set remembers an idempotency key
	KeyCount        = 100_000        // how many idempotency keys a set remembers
)

// When a store's clock is in doubt, see Log.Tick.
const (
	ClockStep  = time.Hour      // how far the clock may go ahead between two looks
	ClockDoubt = 24 * time.Hour // for how long a clock that went further is in doubt
)

// A Log keeps the logs of many sets. All methods may be called concurrently.
// They block until the store has answered or ctx is done. The names of errors
// after a method are those of package feed, unless a package is named.
//
// The entries of a set are numbered from 1 without a gap. Their datetimes strictly
// increase: the datetime of an entry is max(now, previous datetime + 1 µs), where
// now is the store's clock. No entry is readable before it is durable.
type Log interface {
	// ID returns the identity of this memory: a random text that is made with the
	// memory. A copy and a backup have the same identity. The identity changes when
	// the store is found to hold another memory than before, so do not keep the
	// result: call ID each time.
	ID() string

	// Secret returns the secret of this memory's hubs: they authenticate their
	// messages to each other with it. A copy, a backup and a clone of the store have
	// another secret or none. The secret changes when the store was restarted or
	// replaced, as soon as a call of Make, Sets or Check notices that. So do not keep the
	// result: call Secret each time. It is empty in a log that no other hub can
	// read, and while it is not known.
	Secret() string

	// Make makes a set with a description, a list size and an empty log. The log
	// begins now, and later than any entry that a deleted set of the same name ever
	// had, except for entries that lie further in the future than the clock skew. (The
	// cursors of those are gone as well, see Since.) If the set exists, Make changes
	// nothing and returns nil.
	Make(ctx context.Context, set string, d feed.Description, listSize int) error

	// Describe replaces a set's description. ErrNoSet.
	Describe(ctx context.Context, set string, d feed.Description) error

	// Delete removes a set, its log and its keys. Every cursor of the set is gone
	// from then on. ErrNoSet.
	Delete(ctx context.Context, set string) error

	// State returns the present state of a set, in one atomic step. ErrNoSet.
	State(ctx context.Context, set string) (feed.State, error)

	// Sets returns the states of the named sets, sorted by name; without a name, of
	// all sets. Each state is of one moment, but two states may be of different
	// moments. A set that does not exist is left out. When Sets returns an error, it
	// also returns the states that could be read.
	Sets(ctx context.Context, names ...string) ([]feed.State, error)

	// Append adds publishes to a set's log in the given order, in one atomic and
	// durable step. When it returns nil, every publish whose Appended has no Err
	// is kept whole, and survives a crash of the process and of the machine.
	// When it returns an error (ErrNoSet, ErrFull, ErrClock, ErrUnavailable or
	// another), no publish was added. A call whose publishes the set has all seen is
	// answered even if nothing can be added, because of ErrFull or a head in the future. ErrUnknown is the exception: then either all
	// publishes were added or none. ErrClock means that the set's newest entry lies
	// further in the future than the clock skew, or that the hub's clock and the
	// store's differ by more than that.
	//
	// Append does not add a publish if the set has seen its Key within KeyAge and
	// within the last KeyCount keys. Earlier publishes of the same call count. If the
	// Hash is the same, the Appended is that of the first publish, with Replayed set.
	// If the Hash differs, the Appended has Err = ErrKeyReused. It also has this Err
	// if the set has seen Unless and not Key. A publish with Refused that the set has not
	// seen has Refused as its Err. The other publishes of the call are added anyway. While the store's clock is in doubt, no key expires by KeyAge. That is
	// known without a Tick, too: the clock is compared with the noted time.
	Append(ctx context.Context, set string, publishes ...Publish) ([]Appended, error)

	// Since returns the entries that directly follow a cursor, in one atomic
	// step: never a range with a hole. It returns at most limit entries (1,000
	// when limit is 0 or less). It returns fewer when the entries are large, but at
	// least one if there is one. If no entry follows, the batch is empty and its
	// Cursor is its After. The batch belongs to the caller.
	//
	// The cursor is verified:
	//  1. The log knows the cursor: the entry at the cursor's position has the
	//     cursor's datetime, or the cursor is the floor, or the cursor is zero and
	//     the floor is at position 0. Then After is the cursor.
	//  2. Else, if the cursor's datetime is not before the floor's, and is later than
	//     any entry of a deleted set of the same name had, the log has lost its newest
	//     entries. Then Diverged is set, and After is the newest entry
	//     whose position is lower than the cursor's and whose datetime is earlier by
	//     at least the clock skew, or else the floor. Entries may repeat. No entry
	//     is skipped.
	//  3. Else Since returns ErrGone.
	//
	// In a set that does not exist, the zero cursor yields an empty batch, and any
	// other cursor ErrGone.
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)

	// At returns the cursor of the entry at a position; at the floor's position,
	// the floor. ErrGone when the position lies before the floor, an error with
	// resourcesync.ErrInvalid when it lies behind the head, ErrNoSet.
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)

	// Seek returns the cursor after which the entries with datetime >= micros
	// begin: that of the newest earlier entry, or the floor. ErrGone when such
	// an entry may have been removed, or may have come before the log began:
	// then micros is before the floor's datetime, or equal to it and the floor
	// is a removed entry. micros is in microseconds since 1970. ErrNoSet.
	Seek(ctx context.Context, set string, micros int64) (feed.Cursor, error)

	// Trim applies retention to a set and forgets expired keys. It removes whole
	// closed lists only, and returns how many entries it removed. ErrNoSet.
	Trim(ctx context.Context, set string, r Retention) (removed int, err error)

	// Tick notes the time of the store's clock. It is called about each minute, by every
	// hub of the memory. It returns true while the clock is in doubt, and nothing may
	// then be removed because of its age. The clock comes into doubt when it is ahead of
	// the last noted time by more than ClockStep: either it is wrong, or no hub ran for
	// that long. No idempotency key expires by its age then. The doubt ends after
	// ClockDoubt, or when the clock is set back. A store whose clock is not the hub's is in
	// doubt while the two differ by more than the clock skew.
	Tick(ctx context.Context) (doubtful bool, err error)

	// Check returns nil when an append could succeed now, and otherwise why not. It
	// compares the hub's clock with the store's. It does not look at the heads of sets:
	// a set whose head lies in the future is refused alone.
	Check(ctx context.Context) error

	// Close releases the store. Nothing may be called after it.
	Close() error
}

// A Publish is one batch on its way into the log.
type Publish struct {
	Changes []resourcesync.Change // 1 to MaxBatch valid changes; the log does not keep the slice
	Key     string                // idempotency key, unique per set and caller, at most MaxKey bytes; empty for none
	Hash    [32]byte              // of the content; a publish with the same Key must have the same Hash
	Unless  string                // a key that must not have been used, like Key; empty for none
	There   bool                  // the set is not made if it is not there; only a hub makes sets
	Refused error                 // why the publish must not be added, such as a quota; nil if it may be added
}

// CheckPublishes returns nil when a log can take publishes. Each implementation
// of Log calls it. It checks only the number of changes and the length of keys:
// the caller of Append has validated each change. The error is a
// *resourcesync.Error with ErrInvalid.
func CheckPublishes(publishes []Publish) error {
	for _, p := range publishes {
		if n := len(p.Changes); n < 1 || n > MaxBatch {
			return resourcesync.Invalid("a publish has 1 to %d changes, not %d", MaxBatch, n)
		}
		if n := max(len(p.Key), len(p.Unless)); n > MaxKey {
			return resourcesync.Invalid("an idempotency key has at most %d bytes, not %d", MaxKey, n)
		}
	}
	return nil
}

// An Appended says where a publish is in the log.
type Appended struct {
	After    feed.Cursor // cursor before its first entry
	Cursor   feed.Cursor // cursor of its last entry
	Count    int         // number of its entries
	Blocks   []CutBlock  // its entries as the log keeps them, to announce them to other hubs; nil in a log that no other hub can read
	Replayed bool        // the log had it before this call
	Err      error       // why it was not added: feed.ErrKeyReused, or Publish.Refused
}

// Retention says what to keep. Trim removes the oldest closed list, again and
// again, while all entries of that list are older than Age, or while the other
// lists still hold Count entries. Age 0 removes nothing because of its age, and
// Count 0 nothing because of the number of entries. The open list and the
// newest closed list are always kept.
type Retention struct {
	Age      time.Duration
	Count    uint64
	Doubtful bool         // the clock is in doubt: no entry and no key is removed because of its age
	Unread   *feed.Cursor // no entry after it is removed, whatever the other fields say, because a reader has not read them yet; nil: no such cursor
}

// Size returns how many bytes the changes take at most; see resourcesync.Change.Size.
func (p *Publish) Size() int {
	n := 0
	for i := range p.Changes {
		n += p.Changes[i].Size()
	}
	return n
}
