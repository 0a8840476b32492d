package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
	"github.com/rshub/rshub/resourcesync"
)

// wantState fails the test unless a state is what a plain map is.
func wantState(t *testing.T, s *State, want sourcetest.Set, r *rand.Rand) {
	t.Helper()
	ctx := context.Background()
	locs := slices.Sorted(maps.Keys(want))
	sums := newSorted(want.Entries())
	ranges := []Range{{}, Prefix("https://example.org/pep-00"), {From: "https://example.org/pep-0020/"}, {To: "https://example.org/3"}, {"x", "y"}}
	for range 4 {
		if len(locs) > 1 {
			a, b := r.IntN(len(locs)), r.IntN(len(locs))
			ranges = append(ranges, Range{locs[min(a, b)], locs[max(a, b)] + "0"})
		}
	}
	for _, in := range ranges {
		got, err := s.Tally(ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		sum, _ := sums.Tally(ctx, in)
		wantTally(t, fmt.Sprint(in), got, sum)
		i := 0
		for e, err := range s.Walk(ctx, in) {
			if err != nil {
				t.Fatal(err)
			}
			for i < len(locs) && !in.Has(locs[i]) {
				i++
			}
			if i == len(locs) || !reflect.DeepEqual(*e, want[locs[i]]) {
				t.Fatalf("walking %q: %+v is not what is next", in, e)
			}
			i++
		}
		for ; i < len(locs); i++ {
			if in.Has(locs[i]) {
				t.Fatalf("walking %q ended before %s", in, locs[i])
			}
		}
	}
	some := []string{"a", "z"} // they do not exist
	for _, loc := range locs {
		if r.IntN(10) == 0 {
			some = append(some, loc)
		}
	}
	slices.Sort(some)
	found := map[string]bool{}
	err := s.Find(ctx, some, func(i int, e *feed.Entry) {
		if found[some[i]] = true; !reflect.DeepEqual(*e, want[some[i]]) {
			t.Fatalf("%s is found as %+v", some[i], e)
		}
	})
	if err != nil || len(found) != len(some)-2 {
		t.Fatalf("%d of %d are found, %v", len(found), len(some)-2, err)
	}
	for range 10 {
		loc := fmt.Sprintf("https://example.org/pep-%04d/", r.IntN(100))
		e, ok, err := s.Get(ctx, loc)
		if w, wantOK := want[loc]; err != nil || ok != wantOK || !reflect.DeepEqual(e, w) {
			t.Fatalf("Get(%s) = %+v, %t, %v; want %+v, %t", loc, e, ok, err, w, wantOK)
		}
	}
	wantSplit(t, s, Range{}, sums)
	wantSplit(t, s, ranges[len(ranges)-1], sums)
}

// history runs a random history of an overlay against a plain map.
func history(t *testing.T, seed uint64, steps int) {
	ctx := context.Background()
	src := sourcetest.New(seed, 20+int(seed%300))
	now := sourcetest.Set{}
	for range src.IntN(200) {
		now.Add(src.Next())
	}
	base := newSorted(now.Entries())
	o := newOverlay(base, base.total(), src.Head)
	type kept struct {
		state *State
		want  sourcetest.Set
	}
	var snapshots []kept
	var log []feed.Entry // behind the base
	for range steps {
		switch src.IntN(8) {
		case 0: // a snapshot
			snapshots = append(snapshots, kept{o.State(src.Head), maps.Clone(now)})
		case 1: // a newer root, which is older than the head
			if len(log) == 0 {
				continue
			}
			upto := src.IntN(len(log)) + 1
			older := sourcetest.Set{}
			for i := range base.entries {
				older.Add(base.entries[i])
			}
			for _, e := range log[:upto] {
				older.Add(e)
			}
			// A commit of the changes has the same result.
			if upto == len(log) {
				merged := sourcetest.Set{}
				for i := range base.entries {
					merged.Add(base.entries[i])
				}
				for e := range o.Changes() {
					merged.Add(*e)
				}
				if !reflect.DeepEqual(merged, older) {
					t.Fatal("the changes do not lead from the base to the state")
				}
			}
			base = newSorted(older.Entries())
			o = newOverlay(base, base.total(), log[upto-1].Cursor)
			if err := o.Add(ctx, log[:upto]); err != nil || o.Len() != 0 {
				t.Fatalf("%d changes wait behind a root that has them (%v)", o.Len(), err)
			}
			if err := o.Add(ctx, log[upto:]); err != nil {
				t.Fatal(err)
			}
			log = log[upto:]
		case 2: // the same changes again
			if len(log) > 0 {
				i := src.IntN(len(log))
				if err := o.Add(ctx, log[i:i+1+src.IntN(len(log)-i)]); err != nil {
					t.Fatal(err)
				}
			}
		case 3: // the tree cannot be read
			base.err = errors.New("out of order")
			before, bytes := o.Len(), o.Bytes()
			again := *src
			if err := o.Add(ctx, []feed.Entry{again.Next()}); !errors.Is(err, base.err) {
				t.Fatalf("Add = %v", err)
			}
			if o.Len() != before || o.Bytes() != bytes {
				t.Fatal("something was added although the tree could not be read")
			}
			base.err = nil
		default:
			var batch []feed.Entry
			for range src.IntN(60) {
				e := src.Next()
				batch = append(batch, e)
				now.Add(e)
			}
			log = append(log, batch...)
			if err := o.Add(ctx, batch); err != nil {
				t.Fatal(err)
			}
		}
	}
	snapshots = append(snapshots, kept{o.State(src.Head), now})
	for _, k := range snapshots {
		wantState(t, k.state, k.want, src.Rand)
	}
	bytes := 0
	for _, c := range o.settle().changes {
		bytes += c.bytes()
	}
	if bytes != o.Bytes() {
		t.Fatalf("%d bytes, want %d", o.Bytes(), bytes)
	}
}

func TestOverlay(t *testing.T) {
	for seed := range uint64(40) {
		history(t, seed, 30)
	}
}

func FuzzOverlay(f *testing.F) {
	f.Add(uint64(1), uint8(20))
	f.Add(uint64(299), uint8(60))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint8) { history(t, seed, int(steps)) })
}

// TestWaitingLarge holds many changes against their own sums.
func TestWaitingLarge(t *testing.T) {
	src := sourcetest.New(7, 12_000)
	now := sourcetest.Set{}
	base := newSorted(now.Entries())
	o := newOverlay(base, base.total(), src.Head)
	var early *State
	var then sourcetest.Set
	for i := range 16 {
		var batch []feed.Entry
		for range 1000 {
			e := src.Next()
			now.Add(e)
			batch = append(batch, e)
		}
		if err := o.Add(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
		if i == 8 {
			early, then = o.State(src.Head), maps.Clone(now)
		}
	}
	wantState(t, o.State(src.Head), now, src.Rand)
	wantState(t, early, then, src.Rand)
	w := o.settle()
	var sum digest.Tally
	for i, c := range w.changes {
		if i > 0 && w.changes[i-1].loc() >= c.loc() {
			t.Fatalf("change %d is not in order", i)
		}
		if w.before(c.loc()) != sum {
			t.Fatalf("the sum before change %d is wrong", i)
		}
		sum.Add(&c.effect.delta)
	}
	if w.sum() != sum {
		t.Fatal("the sum of all is wrong")
	}
}

// TestOverlayDeletion shows that a deletion of what the tree never had is not merged.
func TestOverlayDeletion(t *testing.T) {
	ctx := context.Background()
	src := sourcetest.New(1, 10)
	base := newSorted(nil)
	o := newOverlay(base, base.total(), src.Head)
	created := src.Change("https://example.org/a")
	created.Change = resourcesync.Change{Loc: "https://example.org/a", Change: resourcesync.Created}
	deleted := src.Change("https://example.org/a")
	deleted.Change = resourcesync.Change{Loc: "https://example.org/a", Change: resourcesync.Deleted}
	again := src.Change("https://example.org/a")
	again.Change = created.Change
	if err := o.Add(ctx, []feed.Entry{created, deleted}); err != nil {
		t.Fatal(err)
	}
	for e := range o.Changes() {
		t.Fatalf("Changes() yields %+v, want no such change", e)
	}
	if err := o.Add(ctx, []feed.Entry{again}); err != nil {
		t.Fatal(err)
	}
	if e, ok, err := o.State(src.Head).Get(ctx, "https://example.org/a"); !ok || err != nil || e.Cursor != again.Cursor {
		t.Fatalf("Get = %+v, %t, %v", e, ok, err)
	}
	wantTally(t, "created again", o.State(src.Head).total, digest.TallyOf(&again))
}

// TestOverlayWhileRead reads states while changes are added behind them.
func TestOverlayWhileRead(t *testing.T) {
	ctx := context.Background()
	src := sourcetest.New(5, 3000)
	now := sourcetest.Set{}
	for range 2000 {
		now.Add(src.Next())
	}
	base := newSorted(now.Entries())
	o := newOverlay(base, base.total(), src.Head)
	var readers sync.WaitGroup
	defer readers.Wait()
	for range 10 {
		var batch []feed.Entry
		for range 500 {
			e := src.Next()
			now.Add(e)
			batch = append(batch, e)
		}
		if err := o.Add(ctx, batch); err != nil {
			t.Fatal(err)
		}
		s, want := o.State(src.Head), maps.Clone(now)
		readers.Go(func() {
			n := 0
			for e, err := range s.Walk(ctx, Range{}) {
				if w := want[e.Change.Loc]; err != nil || e.Cursor != w.Cursor {
					t.Errorf("%s is of %v, want %v (%v)", e.Change.Loc, e.Cursor, w.Cursor, err)
					return
				}
				n++
			}
			if tally, err := s.Tally(ctx, Prefix("https://example.org/")); err != nil || n != len(want) || tally != s.total {
				t.Errorf("%d resources, want %d; a tally of %d (%v)", n, len(want), tally.Count, err)
			}
		})
	}
}
