package logtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// inventoryOf returns the inventory of a set of the memory.
func (l *ScriptRun) inventoryOf(set string) *inventory.Inventory {
	log := l.Log.(interface{ Inventories() inventory.Store })
	return inventory.New(log.Inventories(), set, inventory.Options{})
}

// commit brings the inventory of a set up to the head of its log. It begins anew if the log
// no longer reaches back to the newest root.
func (l *ScriptRun) commit(ctx context.Context, set string) error {
	v := l.inventoryOf(set)
	rec, head, err := v.Load(ctx)
	if err != nil {
		return err
	}
	base, anew := head.Newest(), false
	if base.Cursor.Position < rec.Log.Floor.Position || base.Upto == 0 {
		base.Cursor, anew = rec.Log.Floor, true
	}
	newest := make(map[string]feed.Entry)
	if err := entries(ctx, l.Log, set, base.Cursor, rec.Log.Head, func(e feed.Entry) { newest[e.Change.Loc] = e }); err != nil {
		return err
	}
	_, err = v.Commit(ctx, inventory.Changes{Base: head.Newest(), Anew: anew, To: rec.Log.Head, Sorted: func(yield func(*feed.Entry) bool) {
		for _, loc := range slices.Sorted(maps.Keys(newest)) {
			if e := newest[loc]; !yield(&e) {
				return
			}
		}
	}})
	return err
}

// entries calls do with the entries of a log from one cursor to another.
func entries(ctx context.Context, log changelog.Log, set string, from, to feed.Cursor, do func(feed.Entry)) error {
	for from != to {
		b, err := log.Since(ctx, set, from, 0)
		if err != nil {
			return err
		}
		if b.Diverged || len(b.Entries) == 0 {
			return fmt.Errorf("set %q does not go on behind %v", set, from)
		}
		for _, e := range b.Entries {
			if e.Position <= to.Position {
				do(e)
				from = e.Cursor
			}
		}
	}
	return nil
}

// ResourceStates are what the sets of the script held after each of its steps. An inventory that
// is made after a step must hold the same. A Life without a fault fills them in.
type ResourceStates struct {
	held map[string]*fold
	text map[string]string // by name, begin and cursor
}

// A fold is the state of one log's resources at a cursor.
type fold struct {
	upto   feed.Cursor
	newest map[string]feed.Entry
}

func foldKey(set string, begin int64, at feed.Cursor) string {
	return fmt.Sprint(set, " ", begin, " ", at)
}

// Record records what the sets hold now. It is called after each step of a life without
// a fault.
func (f *ResourceStates) Record(t testing.TB, l *ScriptRun) {
	t.Helper()
	if f.held == nil {
		f.held, f.text = make(map[string]*fold), make(map[string]string)
	}
	for _, set := range []string{"a", "b"} {
		states, err := l.Log.Sets(t.Context(), set)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range states {
			key := foldKey(set, s.Begin, feed.Cursor{})
			held := f.held[key]
			if held == nil {
				held = &fold{upto: s.Floor, newest: make(map[string]feed.Entry)}
				f.held[key] = held
			}
			if err := entries(t.Context(), l.Log, set, held.upto, s.Head, func(e feed.Entry) {
				held.newest[e.Change.Loc] = e
				if !inventory.Exists(&e) {
					delete(held.newest, e.Change.Loc)
				}
			}); err != nil {
				t.Fatal(err)
			}
			held.upto = s.Head
			f.text[foldKey(set, s.Begin, s.Head)] = resources(maps.All(held.newest))
		}
	}
}

// resources returns a text with every resource, in the order of loc.
func resources(all func(yield func(string, feed.Entry) bool)) string {
	var lines []string
	for loc, e := range all {
		lines = append(lines, fmt.Sprint(loc, " ", e.Cursor, " ", e.Change.Change))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// CheckInventories checks the inventories of a memory after a fault. The first acked steps of
// the script were acknowledged. Every root must be whole, and hold what the log says up
// to its cursor. Everything that was acknowledged as durable must be there. Then
// CheckInventories commits, and checks the result, too.
func (l *ScriptRun) CheckInventories(t testing.TB, folds *ResourceStates, acked int) {
	t.Helper()
	for _, set := range []string{"a", "b"} {
		states, err := l.Log.Sets(t.Context(), set)
		if err != nil {
			t.Fatal(err)
		}
		if len(states) == 0 {
			continue
		}
		l.inventory(t, folds, states[0], slices.ContainsFunc(script()[:acked], func(s stage) bool { return s.name == "complete "+set }))
		if _, ok := folds.text[foldKey(set, states[0].Begin, states[0].Head)]; !ok {
			continue // nobody knows what this head says: another hub has done the rest of the script
		}
		if err := l.commit(t.Context(), set); err != nil {
			t.Fatalf("commit the inventory of %s after the fault: %v", set, err)
		}
		if root := l.inventory(t, folds, states[0], false); root.Cursor != states[0].Head {
			t.Fatalf("the inventory of %s is at %v after a commit, and the head is %v", set, root.Cursor, states[0].Head)
		}
	}
}

func (l *ScriptRun) inventory(t testing.TB, folds *ResourceStates, s feed.State, complete bool) inventory.Root {
	t.Helper()
	v := l.inventoryOf(s.Set)
	_, head, err := v.Load(t.Context())
	if err != nil {
		t.Fatalf("the inventory of %s: %v", s.Set, err)
	}
	if complete && head.Complete.IsZero() {
		t.Fatalf("the inventory of %s is not complete, and it was acknowledged to be", s.Set)
	}
	if err := v.Check(t.Context()); err != nil {
		t.Fatalf("the inventory of %s: %v", s.Set, err)
	}
	root := head.Newest()
	if root.Upto == 0 {
		return root
	}
	want, ok := folds.text[foldKey(s.Set, s.Begin, root.Cursor)]
	if !ok || root.Cursor.Position > s.Head.Position {
		t.Fatalf("the inventory of %s is at %v, the log at %v", s.Set, root.Cursor, s.Head)
	}
	held := make(map[string]feed.Entry)
	for e, err := range v.Tree(root).Walk(t.Context(), inventory.Range{}) {
		if err != nil {
			t.Fatalf("the inventory of %s: %v", s.Set, err)
		}
		held[strings.Clone(e.Change.Loc)] = *e
	}
	if got := resources(maps.All(held)); got != want {
		t.Fatalf("the inventory of %s at %v is\n%s\nwant\n%s", s.Set, root.Cursor, got, want)
	}
	return root
}
