package redislog

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// A resourceHistory has the resources of a set at each position that the test has read.
type resourceHistory map[feed.Cursor]map[string]uint64

// commit commits the inventory of the set at the head of its log.
func (f resourceHistory) commit(t *testing.T, l *Log) {
	t.Helper()
	v := inventory.New(l.Inventories(), "set", inventory.Options{PageBytes: 400})
	rec, head, err := v.Load(t.Context())
	ok(t, err)
	newest, held := make(map[string]feed.Entry), make(map[string]uint64)
	for _, e := range all(t, l, feed.Cursor{}) {
		newest[e.Change.Loc] = e
		held[e.Change.Loc] = e.Position
		if !inventory.Exists(&e) {
			delete(held, e.Change.Loc)
		}
	}
	f[rec.Log.Head] = held
	_, err = v.Writer(head.Term+1).Commit(t.Context(), inventory.Changes{Base: head.Newest(), To: rec.Log.Head, Sorted: func(yield func(*feed.Entry) bool) {
		for _, loc := range slices.Sorted(maps.Keys(newest)) {
			if e := newest[loc]; !yield(&e) {
				return
			}
		}
	}})
	ok(t, err)
}

// check checks that the inventory of the set is complete, and matches the log up to its cursor.
func (f resourceHistory) check(t *testing.T, l *Log) inventory.Root {
	t.Helper()
	v := inventory.New(l.Inventories(), "set", inventory.Options{})
	_, head, err := v.Load(t.Context())
	ok(t, err)
	ok(t, v.Check(t.Context()))
	root := head.Newest()
	if root.Upto == 0 {
		return root
	}
	held := make(map[string]uint64)
	for e, err := range v.Tree(root).Walk(t.Context(), inventory.Range{}) {
		ok(t, err)
		held[e.Change.Loc] = e.Position
	}
	if !maps.Equal(held, f[root.Cursor]) {
		t.Fatalf("inventory at %v =\n\t%v, want\n\t%v", root.Cursor, held, f[root.Cursor])
	}
	return root
}

// changed publishes n more changes of some resources, including a deletion.
func changed(t *testing.T, l *Log, n int) {
	t.Helper()
	c := changes("a", 30)
	for i := range c {
		if i%7 == n%7 {
			c[i].Change = resourcesync.Deleted
		}
	}
	_, err := l.Append(t.Context(), "set", changelog.Publish{Changes: c[n%10 : 10+n%20]})
	ok(t, err)
}

// TestTornCommit tears a commit of an inventory at each of its commands, as if Redis was killed
// while it appended them to its append-only file; see TestTorn. After the first start it executes
// other steps. After both starts, the inventory is complete and accepts commits.
func TestTornCommit(t *testing.T) {
	if testing.Short() {
		t.Skip("restarts Redis many times")
	}
	t.Parallel()
	s := newServer(t, "--appendfsync", "always")
	l := start(t, s.url(), Options{Prefix: prefix()})
	f := make(resourceHistory)
	makeSet(t, l, 1000)
	for n := range 3 { // the third commit removes pages of the first
		changed(t, l, n)
		f.commit(t, l)
	}
	changed(t, l, 3)
	from := len(readAOF(t, s))
	f.commit(t, l)
	written := readAOF(t, s)
	want := f.check(t, l)
	starts := commandStarts(t, written[from:])
	t.Logf("%d commands", len(starts))
	if len(starts) < 10 {
		t.Fatalf("got %d commands in a commit", len(starts))
	}
	later := []struct {
		name string
		do   func(t *testing.T, l *Log)
	}{
		{"nothing", func(*testing.T, *Log) {}},
		{"append", func(t *testing.T, l *Log) { changed(t, l, 4) }},
		{"commit", f.commit},
		{"append and commit", func(t *testing.T, l *Log) { changed(t, l, 5); f.commit(t, l) }},
		{"recreate and commit", func(t *testing.T, l *Log) {
			remove(t, l)
			makeSet(t, l, 1000)
			changed(t, l, 6)
			f.commit(t, l)
		}},
	}
	for i, at := range append(starts, len(written)-from) {
		for j, do := range later {
			if !everything && (i+j)%len(later) > 1 {
				continue // two commands
			}
			t.Run(fmt.Sprintf("%d of %d then %s", i, len(starts), do.name), func(t *testing.T) {
				s.kill()
				ok(t, os.WriteFile(aof(s), bytes.Clone(written[:min(from+at+3, len(written))]), 0o600))
				ok(t, s.start())
				f.check(t, l)
				do.do(t, l)
				was := f.check(t, l)
				s.kill()
				ok(t, s.start())
				if root := f.check(t, l); root != was && root.Cursor != want.Cursor {
					t.Errorf("after the second start, root = %+v, want %+v", root, was)
				}
				changed(t, l, 7)
				f.commit(t, l)
				f.check(t, l)
			})
		}
	}
}
