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

// A holding is the list of a source, in a temporary directory. It is sorted into an
// inventory only when own is called.
type holding struct {
	dir   string
	opts  *Options
	room  room
	list  *spool
	store *diskpages.Store // nil until the list is sorted
	state *inventory.State // of the list; nil until it is sorted
}

// temporary begins the names of temporary directories.
const temporary = "pages-"

// Sweep removes the temporary directories of a process that was killed from a directory that
// no other process uses for Options.Dir.
func Sweep(dir string) error {
	left, err := os.ReadDir(dir)
	for _, e := range left {
		if err == nil && strings.HasPrefix(e.Name(), temporary) {
			err = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("remove what an earlier run has left: %w", err)
	}
	return nil
}

func newHolding(o *Options) (*holding, error) {
	dir, err := os.MkdirTemp(o.Dir, temporary+"*")
	if err != nil {
		return nil, fmt.Errorf("make a temporary directory: %w", err)
	}
	return &holding{dir: dir, opts: o, room: room{ask: o.Room}}, nil
}

// own returns the list, sorted.
func (h *holding) own(ctx context.Context) (*inventory.State, error) {
	if h.state != nil {
		return h.state, nil
	}
	var err error
	h.state, err = h.sorted(ctx, "own", h.list.resources())
	return h.state, err
}

// sorted sorts resources into an inventory of this name.
func (h *holding) sorted(ctx context.Context, name string, resources iter.Seq2[*feed.Entry, error]) (_ *inventory.State, err error) {
	release, err := h.opts.Memory(ctx)
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
	if h.opts.Doubles {
		collect = inventory.CollectLast
	}
	return collect(ctx, h.store, name, resources)
}

// close removes everything. A nil holding has nothing to remove.
func (h *holding) close() error {
	if h == nil {
		return nil
	}
	err := h.list.close()
	if h.store != nil {
		err = errors.Join(err, h.store.Close())
	}
	err = errors.Join(err, os.RemoveAll(h.dir))
	return errors.Join(err, h.opts.Room(0))
}
