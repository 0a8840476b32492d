package inventory

import (
	"context"
	"errors"
	"iter"

	"github.com/rshub/rshub/feed"
)

var (
	// ErrFenced means that the store no longer accepts writes of a Writer: there is a writer with a higher
	// term, or Redis was restarted and may have lost pages. The root that the Writer has loaded may be out of
	// date. Nothing was written.
	ErrFenced = errors.New("the term of the writer has ended")

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
// crash or a failover loses only the newest writes of both, and the condition of an Update on the log remains
// true. All methods may be called concurrently. They block until the store has responded or ctx is done. They
// also return the errors of changelog.Log: feed.ErrUnavailable, feed.ErrUnknown, feed.ErrFull, feed.ErrNoSet.
//
// A Store knows neither trees nor roots. It has one small record and numbered pages for each set. If a set is
// deleted, both are removed.
type Store interface {
	// Load returns the record of a set. If the current log of the set has none, the result is the zero
	// Record, except for Now and Log. If the set does not exist, Load returns feed.ErrNoSet.
	Load(ctx context.Context, set string) (Record, error)

	// Update changes Term and Head of the record in one atomic step: it loads the record, calls u.Change, and
	// writes what Change has made of it. Change must not block. If others update the record at the same time,
	// Change may be called again with a newer record. If Change returns an error, Update returns that error
	// and writes nothing.
	//
	// If u.At is not the zero Cursor, and the log has neither an entry at exactly that cursor nor its floor
	// there, Update returns ErrLog. The first Update for a log removes the pages of an earlier log of the same
	// name. After feed.ErrUnknown the record may have been written.
	//
	// When Update returns nil, a crash of the machine does not undo an Update with Durable. It may undo
	// another Update, together with all later steps.
	Update(ctx context.Context, set string, u Update) error

	// Put writes pages. It writes nothing and returns ErrLog if the log of the set did not begin at begin, and
	// ErrFenced if the record does not have the term. Pages that a root has are never written again. Put does
	// not retain the bytes.
	Put(ctx context.Context, set string, begin int64, term uint64, pages []Page) error

	// Get returns the bytes of pages, in the order of the numbers. The bytes of a missing page are nil, and so
	// are all if the log of the set did not begin at begin. Get does not verify the pages. The caller may
	// retain the bytes, but must not modify them.
	Get(ctx context.Context, set string, begin int64, numbers []uint64) ([][]byte, error)

	// Remove removes pages, and ignores those that are missing. It removes nothing if the log of the set did
	// not begin at begin, and returns ErrFenced if the record does not have the term. The caller must make
	// sure that no root in the record needs the pages.
	Remove(ctx context.Context, set string, begin int64, term uint64, numbers []uint64) error

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
	Log  feed.State // state of the set
	Now  int64      // clock of the store, in microseconds since 1970
	Term uint64     // term of the writer whose pages are accepted, below 2^53; zero if there is none, or if the store may have lost some of its pages
	Head []byte     // at most MaxHead bytes
}

// An Update is one change of a Record.
type Update struct {
	At      feed.Cursor // cursor that the log must have; zero means no condition
	Durable bool        // whether to wait until a crash of the machine cannot undo the Update
	Change  func(*Record) error
}
