package client_test

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/storetest"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
)

// A shelf is the inventories of a site. It makes a root whenever somebody asks, and keeps
// it until forget.
type shelf struct {
	mu       sync.Mutex
	log      changelog.Log
	pages    inventory.Store
	trees    map[feed.Cursor]*inventory.Tree
	complete bool // whether the hub knows all resources
	still    bool // no new root is made while there is one
}

func newShelf(log *disklog.Log) *shelf {
	return &shelf{log: log, pages: storetest.Beside(inventory.NewMemory(), log), trees: map[feed.Cursor]*inventory.Tree{}, complete: true}
}

// forget drops all roots.
func (s *shelf) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.trees)
}

// set changes the shelf.
func (s *shelf) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// newest returns the tree at the head of the log. The caller holds s.mu.
func (s *shelf) newest(ctx context.Context, set string) (*inventory.Tree, error) {
	v := inventory.New(s.pages, set, inventory.Options{})
	_, head, err := v.Load(ctx)
	if err != nil {
		return nil, err
	}
	root := head.Newest()
	if t := s.trees[root.Cursor]; s.still && t != nil {
		return t, nil
	}
	newest, at := map[string]*feed.Entry{}, root.Cursor
	for {
		b, err := s.log.Since(ctx, set, at, 1_000)
		if err != nil {
			return nil, err
		}
		at = b.Cursor
		for i := range b.Entries {
			newest[b.Entries[i].Change.Loc] = &b.Entries[i]
		}
		if len(b.Entries) == 0 {
			break
		}
	}
	root, err = v.Commit(ctx, inventory.Changes{Base: root, To: at, Sorted: func(yield func(*feed.Entry) bool) {
		for _, loc := range slices.Sorted(maps.Keys(newest)) {
			if !yield(newest[loc]) {
				return
			}
		}
	}})
	if err != nil {
		return nil, err
	}
	if _, err := v.Pin(ctx, root.Upto, "shelf", time.Hour); err != nil {
		return nil, err
	}
	s.trees[root.Cursor] = v.Tree(root)
	return s.trees[root.Cursor], nil
}

// At returns what a set holds at a cursor; at the zero cursor, the newest.
func (s *shelf) At(ctx context.Context, set string, at feed.Cursor) (*inventory.Pinned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.trees[at], error(nil)
	if at.IsZero() {
		t, err = s.newest(ctx, set)
	} else if t == nil {
		err = feed.ErrGone
	}
	if err != nil {
		return nil, err
	}
	return &inventory.Pinned{State: t.State(), Tree: t, Complete: s.complete, Release: func() {}}, nil
}

func (s *shelf) State(ctx context.Context, set string, from feed.Cursor, _ time.Duration) (*inventory.Pinned, error) {
	if !from.IsZero() {
		if b, err := s.log.Since(ctx, set, from, 1); err != nil || b.Diverged {
			return nil, feed.ErrGone
		}
	}
	return s.At(ctx, set, feed.Cursor{})
}

func (s *shelf) Snapshot(ctx context.Context, set string, at feed.Cursor) (*subscribe.Snapshot, error) {
	p, err := s.At(ctx, set, at)
	if err != nil {
		return nil, err
	}
	return &subscribe.Snapshot{Resources: p, Complete: p.Complete, Release: p.Release}, nil
}

// A copy is a site's memory at one moment, with its inventory.
type copied struct {
	dir       string
	cursor    feed.Cursor
	resources []feed.Entry
}

// copy copies the site's memory.
func (s *site) copy(t *testing.T) *copied {
	t.Helper()
	held, err := s.shelf.At(t.Context(), "demo", feed.Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	c := &copied{dir: filepath.Join(t.TempDir(), "copy"), cursor: held.Cursor()}
	for e, err := range held.Walk(t.Context(), inventory.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		c.resources = append(c.resources, *e)
	}
	if err := s.log.Checkpoint(c.dir); err != nil {
		t.Fatal(err)
	}
	return c
}

// restore puts the site's memory back to what it was when a copy was made.
func (s *site) restore(t *testing.T, c *copied) {
	t.Helper()
	s.stop()
	if err := s.log.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := disklog.Open(context.Background(), c.dir, disklog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.log, s.shelf = log, newShelf(log)
	_, err = inventory.New(s.shelf.pages, "demo", inventory.Options{}).Commit(t.Context(), inventory.Changes{To: c.cursor, Sorted: func(yield func(*feed.Entry) bool) {
		for i := range c.resources {
			if !yield(&c.resources[i]) {
				return
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.start()
}

// deleteSet deletes the set from the memory, past the hub. The next publish makes it anew.
func (s *site) deleteSet(t *testing.T) {
	t.Helper()
	if err := s.log.Delete(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
}

// change publishes changes of one kind.
func (s *site) change(t *testing.T, kind resourcesync.ChangeType, locs ...string) feed.Cursor {
	t.Helper()
	return s.collect(t, kind, "", locs...)
}

// collect publishes changes of resources that are in a collection; empty: in none.
func (s *site) collect(t *testing.T, kind resourcesync.ChangeType, collection string, locs ...string) feed.Cursor {
	t.Helper()
	changes := updated(locs...)
	for i := range changes {
		if changes[i].Change = kind; collection != "" {
			changes[i].Links = []resourcesync.Link{{Rel: "collection", Href: collection}}
		}
	}
	a, err := s.hub.Publish(t.Context(), "demo", changelog.Publish{Changes: changes})
	if err != nil {
		t.Fatal(err)
	}
	return a.Cursor
}

// truth returns what the site's log says that exists: locs and positions.
func (s *site) truth(t *testing.T) map[string]uint64 {
	t.Helper()
	all, at := map[string]uint64{}, feed.Cursor{}
	for {
		b, err := s.log.Since(t.Context(), "demo", at, 1_000)
		if errors.Is(err, feed.ErrNoSet) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if at = b.Cursor; len(b.Entries) == 0 {
			return all
		}
		for _, e := range b.Entries {
			if all[e.Change.Loc] = e.Position; e.Change.Change == resourcesync.Deleted {
				delete(all, e.Change.Loc)
			}
		}
	}
}

// within returns what begins with a prefix.
func within(all map[string]uint64, prefix string) map[string]uint64 {
	some := maps.Clone(all)
	maps.DeleteFunc(some, func(loc string, _ uint64) bool { return !strings.HasPrefix(loc, prefix) })
	return some
}
