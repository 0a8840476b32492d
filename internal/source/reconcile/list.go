package reconcile

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/diskpages"
)

// A localList is the list of a source, in a temporary directory. It is sorted into an inventory
// only when sortedState is called.
type localList struct {
	dir   string
	opts  *Options
	space diskSpace
	spool *spool
	store *diskpages.Store // nil until the list is sorted
	state *inventory.State // the sorted list; nil until it is sorted
}

// tempPrefix is the prefix of the names of temporary directories.
const tempPrefix = "pages-"

// Sweep removes the temporary directories of a killed process from dir. No other process may use
// dir for Options.Dir.
func Sweep(dir string) error {
	left, err := os.ReadDir(dir)
	for _, e := range left {
		if err == nil && strings.HasPrefix(e.Name(), tempPrefix) {
			err = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("remove temporary directories of an earlier run: %w", err)
	}
	return nil
}

func newLocalList(o *Options) (*localList, error) {
	dir, err := os.MkdirTemp(o.Dir, tempPrefix+"*")
	if err != nil {
		return nil, fmt.Errorf("create temporary directory: %w", err)
	}
	return &localList{dir: dir, opts: o, space: diskSpace{reserve: o.ReserveDisk}}, nil
}

// sortedState returns the sorted list.
func (h *localList) sortedState(ctx context.Context) (*inventory.State, error) {
	if h.state != nil {
		return h.state, nil
	}
	var err error
	h.state, err = h.sort(ctx, "own", h.spool.resources())
	return h.state, err
}

// sort sorts resources into an inventory with this name.
func (h *localList) sort(ctx context.Context, name string, resources iter.Seq2[*feed.Entry, error]) (_ *inventory.State, err error) {
	release, err := h.opts.ReserveMemory(ctx)
	if err != nil {
		return nil, fmt.Errorf("wait for memory to sort resources: %w", err)
	}
	defer release()
	if h.store == nil {
		if h.store, err = diskpages.Open(filepath.Join(h.dir, "pages"), diskpages.Options{}); err != nil {
			return nil, err
		}
	}
	collect := inventory.Collect
	if h.opts.AllowDuplicates {
		collect = inventory.CollectLast
	}
	return collect(ctx, h.store, name, resources)
}

// close removes all files. It does nothing if h is nil.
func (h *localList) close() error {
	if h == nil {
		return nil
	}
	err := h.spool.close()
	if h.store != nil {
		err = errors.Join(err, h.store.Close())
	}
	err = errors.Join(err, os.RemoveAll(h.dir))
	return errors.Join(err, h.opts.ReserveDisk(0))
}
