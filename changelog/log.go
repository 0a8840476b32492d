// Package changelog is the change memory: per set of resources, a bounded
// ordered log of the changes that were accepted. It says what a Log must do,
// how changes are kept in blocks and shown as JSON and XML, and it serves the
// memory as ResourceSync documents. The logs themselves are in disklog and its
// siblings; logtest states their contract in running form.
package changelog

import (
	"context"
	"errors"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// What callers decide by. Everything else a Log returns is a failure of the
// store, wrapped with what was being done.
var (
	// ErrGone means that the memory does not reach back to a cursor, a position or
	// a datetime. The destination should read the source's resources anew.
	ErrGone = errors.New("gone from the change memory")

	// ErrNoSet means that there is no set of that name.
	ErrNoSet = errors.New("no such set")

	// ErrKeyReused means that an idempotency key came with other content than
	// the first time.
	ErrKeyReused = errors.New("idempotency key was used before with other content")

	// ErrFull means that the store has no room; nothing was written.
	ErrFull = errors.New("the change memory is full")

	// ErrClock means that the head of the log lies further in the future than
	// the clock may be wrong; nothing was written.
	ErrClock = errors.New("clock is behind the change memory")

	// ErrUnavailable means that the store cannot be reached now and nothing was
	// written; trying again later makes sense.
	ErrUnavailable = errors.New("the change memory cannot be reached")

	// ErrUnknown means that an append was sent and its answer did not come: it
	// may be in the memory. Sending it again with the same key is safe.
	ErrUnknown = errors.New("unknown whether the change memory has it")

	// ErrCorrupt means that what the store holds is not what was written.
	ErrCorrupt = errors.New("the change memory is damaged")
)

// Limits of what a log keeps together.
const (
	MaxBatch        = 50_000  // changes in one publish, the standard's limit for a document
	MaxBlockEntries = 1_000   // entries in one block
	MaxBlockBytes   = 256_000 // of encoded entries in one block, before compression, unless it is a single entry
	MaxKey          = 255     // bytes of an idempotency key
	MaxListSize     = 25_000  // two lists, the rolling view, stay within the standard's 50,000
	KeyAge          = 24 * time.Hour
	KeyCount        = 100_000 // keys remembered per set
)

// A Log keeps the logs of many sets. All methods may be called concurrently.
// They block until the store answered or ctx is done.
//
// Entries of a set are numbered from 1 without a gap. Their datetimes strictly
// increase: an entry's is max(now, the previous one's + 1 µs) where now is the
// store's clock. No entry is readable before it is durable.
type Log interface {
	// ID is the identity of this memory: random and made with it. A copy and a
	// backup keep it. It changes only where the store is found to hold another
	// memory than before, so it is to be asked for each time.
	ID() string

	// Make makes a set with the description and the list size K, and an empty
	// log that begins now (later than any entry that a deleted set of the same
	// name ever had). If there is one, Make changes nothing and returns nil.
	Make(ctx context.Context, set string, d Description, listSize int) error

	// Describe replaces a set's description. ErrNoSet.
	Describe(ctx context.Context, set string, d Description) error

	// Delete removes a set, its log and its keys; its cursors are gone. ErrNoSet.
	Delete(ctx context.Context, set string) error

	// State returns what a set is now, in one atomic step. ErrNoSet.
	State(ctx context.Context, set string) (State, error)

	// Sets returns the states of the sets with the names, without one of all sets,
	// sorted by name. Each is atomic, not all together. A set that is not there is
	// left out. With an error it returns those that could be read.
	Sets(ctx context.Context, names ...string) ([]State, error)

	// Append adds publishes to a set's log in the given order, in one atomic and
	// durable step: when it returns nil, every publish whose Appended has no Err
	// is kept whole, and survives a crash of the process and of the machine.
	// When it returns an error no publish was added (ErrNoSet, ErrFull, ErrClock,
	// ErrUnavailable, other), except that with ErrUnknown all or none were.
	//
	// A publish whose Key the set has seen within KeyAge (and not more than
	// KeyCount keys ago), also earlier in the same call, is not added again: with
	// the same Hash its Appended is the first one's with Replayed set; with
	// another it has Err = ErrKeyReused, and the others are not affected.
	Append(ctx context.Context, set string, publishes ...Publish) ([]Appended, error)

	// Since returns the entries that directly follow a cursor, in one atomic
	// step: never a range with a hole. It returns at most limit entries (1,000
	// when limit is 0 or less) and ends early where they grow large, but at least
	// one when there is one. Without a following entry the batch is empty and its
	// Cursor is its After. The batch is the caller's and not shared.
	//
	// The cursor is verified:
	//  1. The entry at its position has its datetime, or it is the floor, or it
	//     is zero and the floor is at position 0: the batch's After is the cursor.
	//  2. Else, if its datetime is not before the floor's, the log has lost its
	//     tail: Diverged is set, and After is the newest entry whose position is
	//     lower and whose datetime is earlier by at least the clock skew, else the
	//     floor. Entries may repeat, none is skipped.
	//  3. Else ErrGone.
	//
	// In a set that is not made, the zero cursor yields an empty batch, any other
	// ErrGone.
	Since(ctx context.Context, set string, after Cursor, limit int) (*Batch, error)

	// At returns the cursor of the entry at a position, or the floor's. ErrGone
	// when it lies before the floor; ErrNoSet, and an error with
	// resourcesync.ErrInvalid when it lies behind the head.
	At(ctx context.Context, set string, position uint64) (Cursor, error)

	// Seek returns the cursor behind which the entries with datetime >= micros
	// begin: the newest entry that is earlier, or the floor. ErrGone when an entry
	// with such a datetime may have been removed or have come before the log
	// began: micros is before the floor's datetime, or equal to it where the floor
	// is a removed entry. ErrNoSet.
	Seek(ctx context.Context, set string, micros int64) (Cursor, error)

	// Trim applies retention to a set and forgets expired keys. It removes whole
	// closed lists only, and returns how many entries it removed. ErrNoSet.
	Trim(ctx context.Context, set string, r Retention) (removed int, err error)

	// Check reports whether an append could succeed now, nil or why not.
	Check(ctx context.Context) error

	// Close releases the store. Nothing may be called after it.
	Close() error
}

// A Description is what a source says of a set.
type Description struct {
	Title       string `json:"title,omitempty"`
	DescribedBy string `json:"describedby,omitempty"` // URI of a document about the set
	ChangeList  string `json:"changelist,omitempty"`  // URL of the source's own Change List, or index of some; no document shows it
}

// A State is what a set is at one moment.
type State struct {
	Set string
	Description
	ListSize int    // K: a closed Change List holds as many entries
	Begin    int64  // when the log began, in microseconds since 1970
	Floor    Cursor // the newest entry that was removed; at first position 0 and Begin
	Head     Cursor // the newest entry; the Floor when there is none
	Latest   Cursor // the cursor before the newest batch; Head when there is none
}

// Lists returns the numbers of the oldest Change List that is still kept and of
// the newest, which is open. List n holds the positions (n-1)·K+1 to n·K.
func (s State) Lists() (oldest, open uint64) {
	k := uint64(s.ListSize)
	return s.Floor.Position/k + 1, s.Head.Position/k + 1
}

// A Publish is one batch on its way into the log.
type Publish struct {
	Changes []resourcesync.Change // 1 to MaxBatch, valid; the log does not keep the slice
	Key     string                // names the publish, unique per set and caller, at most MaxKey bytes; empty: none
	Hash    [32]byte              // of its content, compared when the key is seen again
	Brief   bool                  // Key was made by the hub: it need only outlive the retries of this call
}

// CheckPublishes returns nil when a log can take publishes: it is for those who
// implement Log. What a change may be, whoever appends has checked. The error is
// a *resourcesync.Error with ErrInvalid.
func CheckPublishes(publishes []Publish) error {
	for _, p := range publishes {
		if n := len(p.Changes); n < 1 || n > MaxBatch {
			return Invalid("a publish has 1 to %d changes, not %d", MaxBatch, n)
		}
		if len(p.Key) > MaxKey {
			return Invalid("an idempotency key has at most %d bytes, not %d", MaxKey, len(p.Key))
		}
	}
	return nil
}

// An Appended says where a publish is in the log.
type Appended struct {
	After    Cursor // before its first entry
	Cursor   Cursor // of its last
	Count    int
	Blocks   []CutBlock // its entries as the log keeps them, for who passes them on; nil where they are of no use to anybody else
	Replayed bool       // it was there already
	Err      error      // it was refused: ErrKeyReused
}

// Retention says what to keep. Trim removes the oldest closed list as long as
// all its entries are older than Age, or the rest still holds Count entries; a
// zero value is no reason to remove. The open list and the newest closed one
// are always kept.
type Retention struct {
	Age   time.Duration
	Count uint64
}
