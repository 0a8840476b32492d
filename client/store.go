package client

import (
	"fmt"

	"github.com/rshub/rshub/internal/inventory"
)

// A Store holds the state of Replicas, or the resources of an audit. Package client/disk provides
// the only implementation; others are rejected. (It is a separate package because its database
// would double the size of programs that do not need it.)
type Store interface {
	// Copy writes a copy of the Store to dir, which must not exist. It may be called while the
	// Store is used. The copy has the state that was last flushed, see Replica.Flush.
	Copy(dir string) error

	// Close closes the Store. Neither the Store nor anything that reads it may be used afterwards.
	Close() error
}

// inventoryStore returns the implementation of s, or a new one in memory if s is nil.
func inventoryStore(s Store) (inventory.Store, error) {
	if s == nil {
		return inventory.NewMemory(), nil
	}
	pages, ok := s.(inventory.Store)
	if !ok {
		return nil, fmt.Errorf("got a Store of type %T, want one of package client/disk", s)
	}
	return pages, nil
}
