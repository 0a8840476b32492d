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

// commit commits the inventory of a set at the head of its log. It builds the inventory from
// scratch if the log no longer reaches back to the newest root.
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
	_, err = v.Writer(head.Term+1).Commit(ctx, inventory.Changes{Base: head.Newest(), Anew: anew, To: rec.Log.Head, Sorted: func(yield func(*feed.Entry) bool) {
		for _, loc := range slices.Sorted(maps.Keys(newest)) {
			if e := newest[loc]; !yield(&e) {
				return
			}
		}
	}})
	return err
}

// entries calls do with each entry of a log after the cursor from, up to the cursor to.
func entries(ctx context.Context, log changelog.Log, set string, from, to feed.Cursor, do func(feed.Entry)) error {
	for from != to {
		b, err := log.Since(ctx, set, from, 0)
		if err != nil {
			return err
		}
		if b.Diverged || len(b.Entries) == 0 {
			return fmt.Errorf("no entries of set %q after %v", set, from)
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

// ResourceStates has the resources of the script's sets after each of its steps. A ScriptRun
// without a fault records them. An inventory committed after a step must have the same resources.
type ResourceStates struct {
	found map[string]*resourceState // newest state by set and begin
	text  map[string]string         // result of resources by stateKey
}

// A resourceState has the resources of one log at a cursor.
type resourceState struct {
	upto   feed.Cursor
	newest map[string]feed.Entry
}

func stateKey(set string, begin int64, at feed.Cursor) string {
	return fmt.Sprint(set, " ", begin, " ", at)
}

// Record records the present resources of the sets. The test calls it after each step of a run
// without a fault.
func (f *ResourceStates) Record(t testing.TB, l *ScriptRun) {
	t.Helper()
	if f.found == nil {
		f.found, f.text = make(map[string]*resourceState), make(map[string]string)
	}
	for _, set := range []string{"a", "b"} {
		states, err := l.Log.Sets(t.Context(), set)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range states {
			key := stateKey(set, s.Begin, feed.Cursor{})
			found := f.found[key]
			if found == nil {
				found = &resourceState{upto: s.Floor, newest: make(map[string]feed.Entry)}
				f.found[key] = found
			}
			if err := entries(t.Context(), l.Log, set, found.upto, s.Head, func(e feed.Entry) {
				found.newest[e.Change.Loc] = e
				if !inventory.Exists(&e) {
					delete(found.newest, e.Change.Loc)
				}
			}); err != nil {
				t.Fatal(err)
			}
			found.upto = s.Head
			f.text[stateKey(set, s.Begin, s.Head)] = resources(maps.All(found.newest))
		}
	}
}

// resources returns a string with a line for each resource, in the order of loc.
func resources(all func(yield func(string, feed.Entry) bool)) string {
	var lines []string
	for loc, e := range all {
		lines = append(lines, fmt.Sprint(loc, " ", e.Cursor, " ", e.Change.Change))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// CheckInventories checks the inventories of a memory after a fault. The first acked steps of the
// script were acknowledged. Every root must be complete, and match the log up to its cursor.
// Everything that was acknowledged as durable must exist. Then CheckInventories commits, and checks
// the result, too.
func (l *ScriptRun) CheckInventories(t testing.TB, recorded *ResourceStates, acked int) {
	t.Helper()
	for _, set := range []string{"a", "b"} {
		states, err := l.Log.Sets(t.Context(), set)
		if err != nil {
			t.Fatal(err)
		}
		if len(states) == 0 {
			continue
		}
		l.inventory(t, recorded, states[0], slices.ContainsFunc(script()[:acked], func(s scriptStep) bool { return s.name == "complete "+set }))
		if _, ok := recorded.text[stateKey(set, states[0].Begin, states[0].Head)]; !ok {
			continue // no state was recorded for this head, because another hub executed the rest of the script
		}
		if err := l.commit(t.Context(), set); err != nil {
			t.Fatalf("commit of inventory %s after the fault: %v", set, err)
		}
		if root := l.inventory(t, recorded, states[0], false); root.Cursor != states[0].Head {
			t.Fatalf("inventory of %s after a commit is at %v, want %v", set, root.Cursor, states[0].Head)
		}
	}
}

func (l *ScriptRun) inventory(t testing.TB, recorded *ResourceStates, s feed.State, complete bool) inventory.Root {
	t.Helper()
	v := l.inventoryOf(s.Set)
	_, head, err := v.Load(t.Context())
	if err != nil {
		t.Fatalf("inventory of %s: %v", s.Set, err)
	}
	if complete && head.Complete.IsZero() {
		t.Fatalf("inventory of %s is not complete, want it complete as acknowledged", s.Set)
	}
	if err := v.Check(t.Context()); err != nil {
		t.Fatalf("inventory of %s: %v", s.Set, err)
	}
	root := head.Newest()
	if root.Upto == 0 {
		return root
	}
	want, ok := recorded.text[stateKey(s.Set, s.Begin, root.Cursor)]
	if !ok || root.Cursor.Position > s.Head.Position {
		t.Fatalf("inventory of %s is at unknown cursor %v, log at %v", s.Set, root.Cursor, s.Head)
	}
	found := make(map[string]feed.Entry)
	for e, err := range v.Tree(root).Walk(t.Context(), inventory.Range{}) {
		if err != nil {
			t.Fatalf("inventory of %s: %v", s.Set, err)
		}
		found[strings.Clone(e.Change.Loc)] = *e
	}
	if got := resources(maps.All(found)); got != want {
		t.Fatalf("inventory of %s at %v =\n%s\nwant\n%s", s.Set, root.Cursor, got, want)
	}
	return root
}
