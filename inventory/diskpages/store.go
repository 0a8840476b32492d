// Package diskpages keeps inventories in a directory of the local disk. It is for
// programs that hold a copy of a set and want to prove it, see client.Replica: they
// have no change memory that could keep the pages.
package diskpages

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/pebbledb"
	"github.com/rshub/rshub/inventory"
)

// Options are what a Store can be told. The zero value is good.
type Options struct {
	// Log is the log that the inventories are made from. Default: none is at hand, as with
	// a destination. Then every set exists, its log began at 0, and it holds every cursor.
	Log inventory.Log

	Now   func() time.Time // default time.Now
	FS    vfs.FS           // default vfs.Default
	Fatal func(error)      // see pebbledb.Options
}

// A Store is an inventory.Store in a directory. A crash of the process or of the machine
// may undo the newest steps, but none that came before a Swap that is Durable or that has
// a cursor.
type Store struct {
	dir  string
	opts Options
	db   *pebble.DB

	mu sync.Mutex // held while a record is looked at and then written by
}

var _ inventory.Store = (*Store)(nil)

// The store has one record for each set, and the pages. Numbers are big-endian, so pages lie
// in their order.
const (
	recordPrefix = "record/" // and the set
	pagePrefix   = "page/"   // and the set, a slash, and the number
)

// Open opens the store in a directory. It makes the directory and the store if there is
// none. Only one process may have the directory open. The caller closes the Store.
func Open(dir string, o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	db, err := pebbledb.Open(dir, pebbledb.Options{What: "the inventories", Format: "1", FS: o.FS, Fatal: o.Fatal})
	if err != nil {
		return nil, err
	}
	return &Store{dir: dir, opts: o, db: db}, nil
}

// Close releases the store. Nothing may be called after it.
func (s *Store) Close() error {
	if err := errors.Join(s.db.Flush(), s.db.Close()); err != nil {
		return fmt.Errorf("close the inventories in %s: %w", s.dir, err)
	}
	return nil
}

// Copy makes a copy of the store, as it is now, in a directory that does not exist yet. It
// takes moments, and little room as long as the store changes little.
func (s *Store) Copy(dir string) error {
	if err := s.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("copy the inventories in %s to %s: %w", s.dir, dir, err)
	}
	return nil
}

// known returns the error of a write that may have happened or not.
func (s *Store) known(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", feed.ErrUnknown, err)
	}
	return nil
}
