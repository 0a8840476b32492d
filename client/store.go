package client

import (
	"fmt"

	"github.com/rshub/rshub/internal/inventory"
)

// A Store holds the bookkeeping of Replicas, or the resources of an audit. Package client/disk
// opens one; others cannot be used. (It is a package of its own because its database would double
// the size of a program that does not need it.)
type Store interface {
	// Copy writes a copy of the Store to a directory that does not exist. It may be called
	// while the Store is used. The copy has what was flushed, see Replica.Flush.
	Copy(dir string) error

	// Close closes the Store. It, and all that reads it, must not be used after that.
	Close() error
}

// pagesOf returns the pages of a Store; nil is a new one in memory.
func pagesOf(s Store) (inventory.Store, error) {
	if s == nil {
		return inventory.NewMemory(), nil
	}
	pages, ok := s.(inventory.Store)
	if !ok {
		return nil, fmt.Errorf("got a Store of type %T, want one of package client/disk", s)
	}
	return pages, nil
}
