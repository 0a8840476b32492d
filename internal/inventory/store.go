package inventory

import (
	"context"
	"errors"
	"iter"

	"github.com/rshub/rshub/feed"
)

var (
	// ErrRaced means that another call has changed the record of the inventory since it was loaded, or that
	// the attempt has ended. Nothing was written.
	ErrRaced = errors.New("lost a race with another commit")

	// ErrLog means that the log is not the one that the commit was made from: the set was created again, or
	// the log has lost the entry at the cursor. Nothing was written.
	ErrLog = errors.New("the log is not the one that the inventory was built from")

	// ErrDamaged means that a page is missing or is not what was written. It names the page.
	ErrDamaged = feed.ErrDamaged
)

// Limits of the calls of a Store.
const (
	MaxPut     = 1 << 20 // bytes of pages in one Put, unless it is a single page
	MaxNumbers = 1_000   // pages in one Put, Get or Remove
	MaxHead    = 16 << 10
)

// A Store has the pages of inventories. They are in the same store as the log that they are made from, so a
// crash or a failover loses only the newest writes of both, and the condition of a Swap on the log remains
// true. All methods may be called concurrently. They block until the store has responded or ctx is done. They
// also return the errors of changelog.Log: feed.ErrUnavailable, feed.ErrUnknown, feed.ErrFull, feed.ErrNoSet.
//
// A Store knows neither trees nor roots. It has one small record and numbered pages for each set. If a set is
// deleted, both are removed.
type Store interface {
	// Load returns the record of a set. If the current log of the set has none, the result is the zero
	// Record, except for Now and Log. If the set does not exist, Load returns feed.ErrNoSet.
	Load(ctx context.Context, set string) (Record, error)

	// Swap replaces the record in one atomic step. If the version of the record is not s.Version, it returns
	// ErrRaced. If the log of the set did not begin at s.Begin, it returns ErrLog. So it does if s.At is not
	// the zero Cursor and the log has neither an entry at exactly that cursor nor its floor there. The first Swap
	// for a log removes the pages of an earlier log of the same name. After feed.ErrUnknown the Swap may have
	// happened.
	//
	// When Swap returns nil, a crash of the machine does not undo a Swap with Durable. It may undo another
	// Swap, together with all later steps.
	Swap(ctx context.Context, set string, s Swap) error

	// Put writes pages. It returns ErrRaced, and writes nothing, unless the record of the log that began at
	// begin has the given attempt. Pages that a root has are never written again. Put does not retain the
	// bytes.
	Put(ctx context.Context, set string, begin int64, attempt uint64, pages []Page) error

	// Get returns the bytes of pages, in the order of the numbers. The bytes of a missing page are nil, and so
	// are all if the log of the set did not begin at begin. Get does not verify the pages. The caller may
	// retain the bytes, but must not modify them.
	Get(ctx context.Context, set string, begin int64, numbers []uint64) ([][]byte, error)

	// Remove removes pages, and ignores those that are missing. The caller must make sure that no root in the
	// record needs them. Remove does nothing if the log of the set did not begin at begin.
	Remove(ctx context.Context, set string, begin int64, numbers []uint64) error

	// Numbers yields the numbers of all pages of a set, in no order, or nothing if the log of the set did not
	// begin at begin. Pages that are put or removed during the call may be missing. An error ends the sequence.
	Numbers(ctx context.Context, set string, begin int64) iter.Seq2[uint64, error]
}

// A Page is a page to be written.
type Page struct {
	Number uint64 // from 1, below 2^53; it rises from commit to commit
	Bytes  []byte
}

// A Record is the data of a set besides its pages.
type Record struct {
	Log     feed.State // state of the set
	Now     int64      // clock of the store, in microseconds since 1970
	Version uint64     // changed by each Swap; zero if there is no record
	Attempt uint64     // attempt whose Puts are accepted, or zero; the store ends it if some of its pages may be lost
	Head    []byte     // at most MaxHead bytes
}

// A Swap is one change of a Record.
type Swap struct {
	Begin   int64       // when the log of the record began
	Version uint64      // Version of the loaded record
	At      feed.Cursor // cursor that the log must have; zero means no condition
	Attempt uint64      // Attempt of the new record
	Head    []byte      // Head of the new record
	Durable bool        // whether to wait until a crash of the machine cannot undo the Swap
}
