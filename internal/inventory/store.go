package inventory

import (
	"context"
	"errors"
	"iter"

	"github.com/rshub/rshub/feed"
)

var (
	// ErrRaced means that another call has changed the record of the inventory since
	// it was loaded, or that the attempt has ended. Nothing was written.
	ErrRaced = errors.New("lost a race with another commit")

	// ErrLog means that the log is not the one that the commit was made from: the set
	// was made anew, or the log has lost the entry at the cursor. Nothing was written.
	ErrLog = errors.New("the log is not the one that the inventory was built from")

	// ErrDamaged means that a page is missing or is not what was written. It names
	// the page.
	ErrDamaged = feed.ErrDamaged
)

// Limits of what one call of a Store takes.
const (
	MaxPut     = 1 << 20 // bytes of pages in one Put, unless it is a single page
	MaxNumbers = 1_000   // pages in one Put, Get or Remove
	MaxHead    = 16 << 10
)

// A Store keeps the pages of inventories beside the log that they are made from, so
// that a crash or a failover loses only the newest steps of both. What a Swap says
// about the log is then still true. All methods may be called concurrently. They
// block until the store has answered or ctx is done. Their other errors are those of
// changelog.Log: feed.ErrUnavailable, feed.ErrUnknown, feed.ErrFull, feed.ErrNoSet.
//
// A Store knows neither trees nor roots. It keeps, of each set, one small record and
// numbered pages. Deleting a set removes both.
type Store interface {
	// Load returns the record of a set. If there is none for the set's present log,
	// the record is the zero Record, except for Now and Log. It returns feed.ErrNoSet
	// if there is no such set.
	Load(ctx context.Context, set string) (Record, error)

	// Swap replaces the record in one atomic step, if its version is still s.Version and
	// the set's log is still the one that began at s.Begin. Else it returns ErrRaced or
	// ErrLog. If s.At is not the zero Cursor, the log must also hold the entry at
	// exactly that cursor (or have it as its floor); else Swap returns ErrLog. The first
	// Swap for a log removes the pages that an earlier log of the same name has left.
	// After feed.ErrUnknown the step may have happened.
	//
	// A Swap with Durable survives a crash of the machine when Swap returns nil. A crash
	// may undo a Swap without Durable, together with all later steps.
	Swap(ctx context.Context, set string, s Swap) error

	// Put writes pages. It returns ErrRaced, and writes nothing, unless the record of
	// the log that began at begin has the given attempt. The numbers were never used
	// before in this log, except by a Put of the same attempt with the same bytes. Put
	// does not keep the bytes when it has returned.
	Put(ctx context.Context, set string, begin int64, attempt uint64, pages []Page) error

	// Get returns the bytes of pages, in the order of the numbers; nil for a page that
	// is not there, or if the set's log began at another time than begin. It does not
	// check the pages. The caller may keep the bytes, but must not change them.
	Get(ctx context.Context, set string, begin int64, numbers []uint64) ([][]byte, error)

	// Remove removes pages. A page that is not there is no error. The caller
	// must make sure that no root in the record needs them. Remove does nothing
	// if the set's log began at another time than begin.
	Remove(ctx context.Context, set string, begin int64, numbers []uint64) error

	// Numbers yields the numbers of all pages of a set, in no order. A page that is put
	// or removed meanwhile may be yielded or not. There is none if the set's log began at
	// another time than begin. An error ends it.
	Numbers(ctx context.Context, set string, begin int64) iter.Seq2[uint64, error]
}

// A Page is a page on its way into a store.
type Page struct {
	Number uint64 // from 1, below 2^53; it rises from commit to commit
	Bytes  []byte
}

// A Record is what a Store keeps of a set besides pages.
type Record struct {
	Log     feed.State // the set as it is now
	Now     int64      // the store's clock, in microseconds since 1970
	Version uint64     // of the record: each Swap makes another one, at random or the next; 0: there is no record
	Attempt uint64     // the attempt whose Puts are accepted; 0: none. An attempt also ends when the store may have lost some of its pages
	Head    []byte     // at most MaxHead bytes
}

// A Swap is one change of a Record.
type Swap struct {
	Begin   int64       // when the record's log began
	Version uint64      // Version of the record that was loaded
	At      feed.Cursor // the cursor that the log must hold; zero: no condition
	Attempt uint64      // Attempt of the new record
	Head    []byte      // Head of the new record
	Durable bool        // wait until a crash of the machine cannot undo the Swap
}
