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

// inventories are the inventories of a site. A new root is made for each request, and retained
// until dropRoots.
type inventories struct {
	mu       sync.Mutex
	log      changelog.Log
	pages    inventory.Store
	trees    map[feed.Cursor]*inventory.Tree
	complete bool // whether the hub knows all resources
	frozen   bool // whether an existing root is used instead of a new one
}

func newInventories(log *disklog.Log) *inventories {
	return &inventories{log: log, pages: storetest.Beside(inventory.NewMemory(), log), trees: map[feed.Cursor]*inventory.Tree{}, complete: true}
}

// dropRoots drops all roots.
func (s *inventories) dropRoots() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.trees)
}

// set calls change while it holds the lock.
func (s *inventories) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// newestLocked returns the tree at the head of the log. The caller must hold s.mu.
func (s *inventories) newestLocked(ctx context.Context, set string) (*inventory.Tree, error) {
	v := inventory.New(s.pages, set, inventory.Options{})
	_, head, err := v.Load(ctx)
	if err != nil {
		return nil, err
	}
	root := head.Newest()
	if t := s.trees[root.Cursor]; s.frozen && t != nil {
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
	root, err = v.Writer(1).Commit(ctx, inventory.Changes{Base: root, To: at, Sorted: func(yield func(*feed.Entry) bool) {
		for _, loc := range slices.Sorted(maps.Keys(newest)) {
			if !yield(newest[loc]) {
				return
			}
		}
	}})
	if err != nil {
		return nil, err
	}
	if _, err := v.Pin(ctx, root.Upto, "site", time.Hour); err != nil {
		return nil, err
	}
	s.trees[root.Cursor] = v.Tree(root)
	return s.trees[root.Cursor], nil
}

// At returns the content of a set at a cursor, or the newest for the zero cursor.
func (s *inventories) At(ctx context.Context, set string, at feed.Cursor) (*inventory.Pinned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.trees[at], error(nil)
	if at.IsZero() {
		t, err = s.newestLocked(ctx, set)
	} else if t == nil {
		err = feed.ErrGone
	}
	if err != nil {
		return nil, err
	}
	return &inventory.Pinned{State: t.State(), Tree: t, Complete: s.complete, Release: func() {}}, nil
}

func (s *inventories) State(ctx context.Context, set string, from feed.Cursor, _ time.Duration) (*inventory.Pinned, error) {
	if !from.IsZero() {
		if b, err := s.log.Since(ctx, set, from, 1); err != nil || b.Diverged {
			return nil, feed.ErrGone
		}
	}
	return s.At(ctx, set, feed.Cursor{})
}

func (s *inventories) Snapshot(ctx context.Context, set string, at feed.Cursor) (*subscribe.Snapshot, error) {
	p, err := s.At(ctx, set, at)
	if err != nil {
		return nil, err
	}
	return &subscribe.Snapshot{Resources: p, Complete: p.Complete, Release: p.Release}, nil
}

// A siteCopy is a copy of a site's change memory, with its inventory.
type siteCopy struct {
	dir       string
	cursor    feed.Cursor
	resources []feed.Entry
}

// copy copies the site's change memory.
func (s *site) copy(t *testing.T) *siteCopy {
	t.Helper()
	held, err := s.inventories.At(t.Context(), "demo", feed.Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	c := &siteCopy{dir: filepath.Join(t.TempDir(), "copy"), cursor: held.Cursor()}
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

// restore replaces the site's change memory by a copy.
func (s *site) restore(t *testing.T, c *siteCopy) {
	t.Helper()
	s.stop()
	if err := s.log.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := disklog.Open(context.Background(), c.dir, disklog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.log, s.inventories = log, newInventories(log)
	_, err = inventory.New(s.inventories.pages, "demo", inventory.Options{}).Writer(1).Commit(t.Context(), inventory.Changes{To: c.cursor, Sorted: func(yield func(*feed.Entry) bool) {
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

// deleteSet deletes the set from the change memory without the hub. The next publish creates it
// again.
func (s *site) deleteSet(t *testing.T) {
	t.Helper()
	if err := s.log.Delete(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
}

// change publishes changes of the given type.
func (s *site) change(t *testing.T, kind resourcesync.ChangeType, locs ...string) feed.Cursor {
	t.Helper()
	return s.collect(t, kind, "", locs...)
}

// collect publishes changes of resources that are in the given collection, or in none if it is
// empty.
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

// resources returns the positions of existing resources by loc, according to the log.
func (s *site) resources(t *testing.T) map[string]uint64 {
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

// within returns the resources whose loc starts with prefix.
func within(all map[string]uint64, prefix string) map[string]uint64 {
	filtered := maps.Clone(all)
	maps.DeleteFunc(filtered, func(loc string, _ uint64) bool { return !strings.HasPrefix(loc, prefix) })
	return filtered
}
