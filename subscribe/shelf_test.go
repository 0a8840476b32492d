package subscribe_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sort"
	"sync"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
)

// A snapshotStore stores snapshots of the set "a", built from the whole log.
type snapshotStore struct {
	log changelog.Log

	mu        sync.Mutex
	snapshots map[feed.Cursor]resources
	opened    int // number of open snapshots
	complete  bool
	fail      error // error of Snapshot; nil for none
	walks     int   // number of walks until the snapshots are gone; zero means never
}

// resources are the entries of a snapshot, in the order of loc.
type resources struct {
	shelf   *snapshotStore
	cursor  feed.Cursor
	entries []feed.Entry
	tallies []digest.Tally // tallies of the entries before each, and of all
}

func (s *snapshotStore) Snapshot(ctx context.Context, set string, at feed.Cursor) (*subscribe.Snapshot, error) {
	state, err := s.log.State(ctx, set)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	r, ok := s.snapshots[at]
	switch {
	case !ok && !at.IsZero():
		return nil, feed.ErrGone
	case !ok:
		if r, ok = s.snapshots[state.Head]; ok {
			break
		}
		if r, err = s.fold(ctx, state); err != nil {
			return nil, err
		}
		s.snapshots[r.cursor] = r
	}
	s.opened++
	return &subscribe.Snapshot{Resources: r, Complete: s.complete, Release: func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.opened--
	}}, nil
}

// fold reads the resources from the log.
func (s *snapshotStore) fold(ctx context.Context, state feed.State) (resources, error) {
	all, cur := map[string]feed.Entry{}, state.Floor
	for {
		b, err := s.log.Since(ctx, state.Set, cur, 10_000)
		if err != nil {
			return resources{}, err
		}
		if len(b.Entries) == 0 {
			break
		}
		for _, e := range b.Entries {
			if all[e.Change.Loc] = e; e.Change.Change == resourcesync.Deleted {
				delete(all, e.Change.Loc)
			}
		}
		cur = b.Cursor
	}
	r := resources{shelf: s, cursor: cur, tallies: make([]digest.Tally, 1)}
	for _, loc := range slices.Sorted(maps.Keys(all)) {
		e := all[loc]
		sum := digest.TallyOf(&e)
		sum.Add(&r.tallies[len(r.entries)])
		r.entries, r.tallies = append(r.entries, e), append(r.tallies, sum)
	}
	return r, nil
}

func (s *snapshotStore) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

func (r resources) Cursor() feed.Cursor { return r.cursor }

func (r resources) Tally(_ context.Context, in inventory.Range) (t digest.Tally, err error) {
	from := r.find(in.From)
	to := from + sort.Search(len(r.entries)-from, func(i int) bool { return !in.Has(r.entries[from+i].Change.Loc) })
	t = r.tallies[to]
	t.Sub(&r.tallies[from])
	return t, nil
}

// find returns the index of the first resource at or after a loc.
func (r resources) find(loc string) int {
	return sort.Search(len(r.entries), func(i int) bool { return r.entries[i].Change.Loc >= loc })
}

func (r resources) Nth(_ context.Context, n uint64) (string, bool, error) {
	if n >= uint64(len(r.entries)) {
		return "", false, nil
	}
	return r.entries[n].Change.Loc, true, nil
}

func (r resources) Walk(ctx context.Context, in inventory.Range) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		r.shelf.mu.Lock()
		if r.shelf.walks > 0 {
			if r.shelf.walks--; r.shelf.walks == 0 {
				clear(r.shelf.snapshots)
			}
		}
		_, ok := r.shelf.snapshots[r.cursor]
		r.shelf.mu.Unlock()
		for i := r.find(in.From); i < len(r.entries) && in.Has(r.entries[i].Change.Loc); i++ {
			err := ctx.Err()
			if err == nil && !ok {
				err = fmt.Errorf("read snapshot: %w", feed.ErrGone)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			e := r.entries[i]
			if !yield(&e, nil) {
				return
			}
		}
	}
}
