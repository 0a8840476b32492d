// Package diskpages implements inventory.Store in a directory of the local disk, with Pebble. It is
// for programs that hold a copy of a set and audit it; see client/disk.
//
// Such programs have no change memory that could store the pages. So every set exists, its log
// began at 0, and it holds every cursor. A hub stores its pages with disklog or redislog instead.
package diskpages

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/pebbledb"
)

// Options of a Store. Zero values are the defaults.
type Options struct {
	FS    vfs.FS      // default vfs.Default
	Fatal func(error) // see pebbledb.Options
}

// A Store is an inventory.Store in a directory. A crash of the process or of the machine
// may undo the newest steps, but none that came before a Swap that is Durable or that has
// a cursor.
type Store struct {
	dir  string
	opts Options
	db   *pebble.DB

	mu sync.Mutex // held from the read of a record to the write that depends on it
}

var _ inventory.Store = (*Store)(nil)

// The store has one record for each set, and the pages. Numbers are big-endian, so pages lie
// in their order.
const (
	recordPrefix = "record/" // followed by the set
	pagePrefix   = "page/"   // followed by the set, a slash, and the number
)

// Open opens the store in a directory. It makes them if they do not exist. Only one
// process may have the directory open. The caller closes the Store.
func Open(dir string, o Options) (*Store, error) {
	db, err := pebbledb.Open(dir, pebbledb.Options{What: "the inventories", Format: "1", FS: o.FS, Fatal: o.Fatal})
	if err != nil {
		return nil, err
	}
	return &Store{dir: dir, opts: o, db: db}, nil
}

// Close releases the store. Nothing may be called after it.
func (s *Store) Close() error {
	if err := errors.Join(s.db.Flush(), s.db.Close()); err != nil {
		return fmt.Errorf("close inventories in %s: %w", s.dir, err)
	}
	return nil
}

// Copy makes a copy of the store, as it is now, in a directory that does not exist yet.
// It is fast, because it links the files. The copy takes little room as long as the store
// changes little.
func (s *Store) Copy(dir string) error {
	if err := s.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("copy inventories in %s to %s: %w", s.dir, dir, err)
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
