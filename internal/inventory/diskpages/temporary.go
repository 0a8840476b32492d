package diskpages

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// Collect is inventory.Collect with the pages in a new temporary directory. The caller
// must call done when it no longer needs the state; done removes the directory. After an
// error the directory is already removed, and done is nil.
func Collect(ctx context.Context, set string, resources iter.Seq2[*feed.Entry, error]) (s *inventory.State, done func() error, err error) {
	dir, err := os.MkdirTemp("", "rshub-pages-*")
	if err != nil {
		return nil, nil, fmt.Errorf("create temporary directory for the resources of %s: %w", set, err)
	}
	pages, err := Open(dir, Options{})
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	done = func() error { return errors.Join(pages.Close(), os.RemoveAll(dir)) }
	if s, err = inventory.Collect(ctx, pages, set, resources); err != nil {
		_ = done() // the first error is more useful
		return nil, nil, err
	}
	return s, done, nil
}
