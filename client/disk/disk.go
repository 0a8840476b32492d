// Package disk provides a client.Store in a directory, so that a client.Replica can continue where
// the previous process stopped.
//
// The format of the directory is internal. Use Store.Copy to back it up; a copy of the files may be
// inconsistent.
package disk

import (
	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/internal/inventory/diskpages"
)

// Options configures a Store. The zero value uses the defaults.
type Options struct {
	// Fatal is called when a write fails, since it is then unknown what was stored. It must end the
	// process. The next Open finds what was durable. The default prints the error and exits with
	// status 1.
	Fatal func(error)
}

// Open opens the Store in a directory, which is created if it does not exist. Only one process at a
// time can open it; Open fails in others. The caller must close the Store.
func Open(dir string, o Options) (client.Store, error) {
	s, err := diskpages.Open(dir, diskpages.Options{Fatal: o.Fatal})
	if err != nil {
		return nil, err // not s, which would be a non-nil Store
	}
	return s, nil
}
