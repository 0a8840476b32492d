// Package disk opens a client.Store in a directory of the local disk, so that a client.Replica
// continues in the next process where the last one stopped.
//
// The format of the directory is internal. Back it up with Store.Copy, not by copying files.
// Package client documents what a Replica does.
package disk

import (
	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/internal/inventory/diskpages"
)

// Options configures a Store. The zero value uses the defaults.
type Options struct {
	// Fatal is called when a write fails, because it is then unknown what reached the
	// disk. It must end the process. Open then finds what was durable. Default: print the
	// error, and exit with status 1.
	Fatal func(error)
}

// Open opens the Store in a directory, and makes the directory if it does not exist. One process
// at a time may have it open; a second one gets an error. The caller closes the Store.
func Open(dir string, o Options) (client.Store, error) {
	s, err := diskpages.Open(dir, diskpages.Options{Fatal: o.Fatal})
	if err != nil {
		return nil, err // and not a Store that holds a nil pointer
	}
	return s, nil
}
