package inventory

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
	"github.com/rshub/rshub/resourcesync"
)

// treeOf returns the tree of a set, and its writer.
func treeOf(t *testing.T, set sourcetest.Set, at feed.Cursor, o Options) (*Writer, *Tree) {
	t.Helper()
	w := New(&hookedStore{Store: NewMemory()}, "set", o).Writer(1)
	root, err := w.Commit(t.Context(), Changes{To: at, Sorted: pointers(set.Entries())})
	if err != nil {
		t.Fatal(err)
	}
	return w, w.Tree(root)
}

func add(t *testing.T, o *Overlay, entries ...feed.Entry) {
	t.Helper()
	if err := o.Add(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
}

// A model is what a state must hold, and the tallies of all entries before each.
type model struct {
	entries []feed.Entry
	sums    []digest.Tally
}

func newModel(set sourcetest.Set) *model {
	m := &model{entries: set.Entries(), sums: make([]digest.Tally, 1)}
	for i := range m.entries {
		sum, one := m.sums[i], digest.TallyOf(&m.entries[i])
		sum.Add(&one)
		m.sums = append(m.sums, sum)
	}
	return m
}

// index returns the number of entries before a loc.
func (m *model) index(loc string) int {
	i, _ := slices.BinarySearchFunc(m.entries, loc, func(e feed.Entry, loc string) int {
		if e.Change.Loc < loc {
			return -1
		}
		return 1
	})
	return i
}

// in returns the entries in a range, and their tally.
func (m *model) in(r Range) ([]feed.Entry, digest.Tally) {
	from, to := m.index(r.From), len(m.entries)
	if r.To != "" {
		to = max(from, m.index(r.To))
	}
	sum := m.sums[to]
	sum.Sub(&m.sums[from])
	return m.entries[from:to], sum
}

// wantState checks the results of all methods of a state.
func wantState(t *testing.T, s *State, want sourcetest.Set, r *sourcetest.Source) {
	t.Helper()
	m := newModel(want)
	ranges := []Range{{}, Prefix("https://example.org/pep-00"), {From: "https://example.org/pep-0020/"}, {To: "https://example.org/3"}, {"y", "x"}, {"x", "y"}}
	if n := len(m.entries); n > 1 {
		for range 4 {
			a, b := r.IntN(n), r.IntN(n)
			ranges = append(ranges, Range{m.entries[min(a, b)].Change.Loc, m.entries[max(a, b)].Change.Loc + "0"})
		}
	}
	for _, in := range ranges {
		rest, sum := m.in(in)
		if got, err := s.Tally(t.Context(), in); err != nil || got != sum {
			t.Fatalf("Tally(%.100q) = %+v, %v, want %+v", in, got, err, sum)
		}
		for e, err := range s.Walk(t.Context(), in) {
			if err != nil || len(rest) == 0 || !reflect.DeepEqual(*e, rest[0]) {
				t.Fatalf("Walk(%.100q) yields %+v, %v before %d resources", in, e, err, len(rest))
			}
			rest = rest[1:]
		}
		if len(rest) > 0 {
			t.Fatalf("Walk(%.100q) ended before %d resources", in, len(rest))
		}
	}
	some := []string{"a", "z"} // they do not exist
	for _, e := range m.entries {
		if r.IntN(10) == 0 {
			some = append(some, e.Change.Loc)
		}
	}
	slices.Sort(some)
	found := 0
	err := s.Find(t.Context(), some, func(i int, e *feed.Entry) {
		if found++; !reflect.DeepEqual(*e, want[some[i]]) {
			t.Fatalf("Find(%.100q) = %+v, want %+v", some[i], e, want[some[i]])
		}
	})
	if err != nil || found != len(some)-2 {
		t.Fatalf("Find() = %d of %d, %v", found, len(some)-2, err)
	}
	for range 10 {
		loc := r.Loc()
		if e, ok, err := s.Get(t.Context(), loc); err != nil || ok != (want[loc].Position > 0) || !reflect.DeepEqual(e, want[loc]) {
			t.Fatalf("Get(%.100q) = %+v, %t, %v, want %+v", loc, e, ok, err, want[loc])
		}
	}
	wantSplit(t, s, Range{}, m)
	wantSplit(t, s, ranges[len(ranges)-1], m)
}

// wantSplit checks that the parts of a range are together the range, about equal and exactly tallied.
func wantSplit(t *testing.T, s *State, in Range, want *model) {
	t.Helper()
	_, all := want.in(in)
	for _, n := range []int{4, 64, 256} {
		parts, err := s.Split(t.Context(), in, n)
		if err != nil {
			t.Fatal(err)
		}
		if least := min(2, max(1, all.Count)); len(parts) > n || uint64(len(parts)) < least || all.Count < 2 && len(parts) > 1 {
			t.Fatalf("Split(%d resources, %d) = %d parts", all.Count, n, len(parts))
		}
		from := in.From
		for i, p := range parts {
			if p.From != from || p.To != "" && p.From >= p.To {
				t.Fatalf("part %d is %.100q, want it to follow %.100q", i, p.Range, from)
			}
			if most := (all.Count + uint64(n) - 1) / uint64(n); all.Count <= splitByWalk && p.Tally.Count > most {
				t.Fatalf("part %d of %d resources has %d, want at most %d", i, all.Count, p.Tally.Count, most)
			}
			if _, sum := want.in(p.Range); p.Tally != sum {
				t.Fatalf("part %d has tally %+v, want %+v", i, p.Tally, sum)
			}
			from = p.To
		}
		if from != in.To {
			t.Fatalf("last part ends at %.100q, want %.100q", from, in.To)
		}
	}
}

// wantTree checks the methods of a state, and the further ones of its tree.
func wantTree(t *testing.T, tree *Tree, want sourcetest.Set, r *sourcetest.Source) {
	t.Helper()
	wantState(t, tree.State(), want, r)
	entries := want.Entries()
	for _, n := range []int{0, r.IntN(len(entries) + 1), len(entries)} {
		loc, ok, err := tree.Nth(t.Context(), uint64(n))
		if err != nil || ok != (n < len(entries)) || ok && loc != entries[n].Change.Loc {
			t.Fatalf("Nth(%d) = %.100q, %v, %v", n, loc, ok, err)
		}
	}
	after := r.Uint64N(r.Head.Position + 1)
	entries = slices.DeleteFunc(entries, func(e feed.Entry) bool { return e.Position <= after })
	for e, err := range tree.Newer(t.Context(), after) {
		if err != nil || len(entries) == 0 || e.Change.Loc != entries[0].Change.Loc {
			t.Fatalf("Newer(%d) yields %+v, %v before %d resources", after, e, err, len(entries))
		}
		entries = entries[1:]
	}
	if len(entries) > 0 {
		t.Fatalf("Newer(%d) ended before %d resources", after, len(entries))
	}
}

// history runs a random history of a tree and an overlay against a plain map.
func history(t *testing.T, seed uint64, steps int) {
	src := sourcetest.New(seed, 20+int(seed%300))
	now := sourcetest.Set{}
	for range src.IntN(200) {
		now.Add(src.Next())
	}
	older := maps.Clone(now) // of the tree
	w, tree := treeOf(t, now, src.Head, Options{PageBytes: []int{256, 700, 6128, 1500}[seed%4], Cache: NewCache(2_000)})
	store := w.store.(*hookedStore)
	o := NewOverlay(tree)
	type kept struct {
		state *State
		want  sourcetest.Set
	}
	var snapshots []kept
	var log []feed.Entry // behind the tree
	for range steps {
		switch src.IntN(8) {
		case 0: // a snapshot
			snapshots = append(snapshots, kept{o.State(src.Head), maps.Clone(now)})
		case 1: // a newer root, which may be older than the head
			if len(log) == 0 {
				continue
			}
			upto := src.IntN(len(log)) + 1
			var b Backlog
			b.Add(log[:upto])
			changes := b.Entries()
			if upto == len(log) {
				changes = o.Changes()
			}
			for _, e := range log[:upto] {
				older.Add(e)
			}
			if _, err := w.Pin(t.Context(), 0, "me", 1e12); err != nil { // the snapshots read it
				t.Fatal(err)
			}
			root, err := w.Commit(t.Context(), Changes{Base: tree.root, To: log[upto-1].Cursor, Sorted: changes})
			if err != nil {
				t.Fatal(err)
			}
			tree = w.Tree(root)
			wantTree(t, tree, older, src)
			if len(snapshots) >= MaxRoots-1 { // roots are dropped from now on
				for _, k := range snapshots {
					wantState(t, k.state, k.want, src)
				}
				snapshots = nil
			}
			o = NewOverlay(tree)
			if add(t, o, log[:upto]...); o.Len() != 0 {
				t.Fatalf("%d changes wait behind a root that has them", o.Len())
			}
			add(t, o, log[upto:]...)
			log = log[upto:]
		case 2: // the same changes again
			if len(log) > 0 {
				i := src.IntN(len(log))
				add(t, o, log[i:i+1+src.IntN(len(log)-i)]...)
			}
		case 3: // the tree cannot be read at first
			failed := errors.New("no connection")
			store.before = func(string, []Page) error { return failed }
			e, before, bytes := src.Next(), o.Len(), o.Bytes()
			err := o.Add(t.Context(), []feed.Entry{e})
			if err != nil && (!errors.Is(err, failed) || o.Len() != before || o.Bytes() != bytes) {
				t.Fatalf("Add() = %v, Len() = %d, want %v, %d", err, o.Len(), failed, before)
			}
			store.before = nil
			now.Add(e)
			log = append(log, e)
			add(t, o, e)
		default:
			var batch []feed.Entry
			for range src.IntN(60) {
				batch = append(batch, src.Next())
				now.Add(batch[len(batch)-1])
			}
			log = append(log, batch...)
			add(t, o, batch...)
		}
	}
	for _, k := range append(snapshots, kept{o.State(src.Head), now}) {
		wantState(t, k.state, k.want, src)
	}
	bytes := 0
	for _, c := range o.settle().changes {
		bytes += c.bytes()
	}
	if bytes != o.Bytes() {
		t.Fatalf("Bytes() = %d, want %d", o.Bytes(), bytes)
	}
}

func TestOverlay(t *testing.T) {
	for seed := range uint64(16) {
		history(t, seed, 30)
	}
}

func FuzzOverlay(f *testing.F) {
	f.Add(uint64(1), uint8(20))
	f.Add(uint64(299), uint8(60))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint8) { history(t, seed, int(steps)) })
}

// TestOverlayLarge reads states of many changes, while more are added.
func TestOverlayLarge(t *testing.T) {
	src := sourcetest.New(7, 12_000)
	now := sourcetest.Set{}
	for range 2_000 {
		now.Add(src.Next())
	}
	_, tree := treeOf(t, now, src.Head, Options{})
	o := NewOverlay(tree)
	for range 3 {
		s, want, random := o.State(src.Head), maps.Clone(now), sourcetest.New(src.Uint64(), 12_000)
		var adding sync.WaitGroup
		adding.Go(func() {
			for range 5 {
				var batch []feed.Entry
				for range 1_000 {
					batch = append(batch, src.Next())
					now.Add(batch[len(batch)-1])
				}
				if err := o.Add(t.Context(), batch); err != nil {
					t.Error(err)
				}
			}
		})
		wantState(t, s, want, random)
		adding.Wait()
	}
	w := o.settle()
	var sum digest.Tally
	for i, c := range w.changes {
		if i > 0 && w.changes[i-1].loc() >= c.loc() || w.before(c.loc()) != sum {
			t.Fatalf("change %d is out of order, or the sum before it is wrong", i)
		}
		sum.Add(&c.effect.delta)
	}
	if w.sum() != sum {
		t.Fatal("sum() is not the sum of all changes")
	}
}

// TestOverlayDeletion deletes a resource that the tree never had, and creates it again.
func TestOverlayDeletion(t *testing.T) {
	_, tree := treeOf(t, nil, feed.Cursor{}, Options{})
	o := NewOverlay(tree)
	change := func(position uint64, kind resourcesync.ChangeType) feed.Entry {
		return feed.Entry{Cursor: feed.Cursor{Position: position, Micros: 1}, Change: resourcesync.Change{Loc: "urn:a", Change: kind}}
	}
	add(t, o, change(1, resourcesync.Created), change(2, resourcesync.Deleted))
	for e := range o.Changes() {
		t.Fatalf("Changes() yields %+v, want nothing", e)
	}
	again := change(3, resourcesync.Created)
	add(t, o, again)
	wantState(t, o.State(again.Cursor), sourcetest.Set{"urn:a": again}, sourcetest.New(1, 10))
}

// TestSplitLopsided splits states without changes, with all changes in one place, with nothing but
// changes, and with most resources deleted.
func TestSplitLopsided(t *testing.T) {
	for _, tt := range []struct{ base, changes, deletions int }{
		{2_000, 0, 0}, {2_000, 1_800, 0}, {10, 2_000, 10}, {4_000, 0, 3_900}, {4_000, 0, 2_200},
	} {
		src := sourcetest.New(1, 10)
		now := sourcetest.Set{}
		for i := range tt.base {
			now.Add(src.Existing(fmt.Sprintf("https://example.org/b/%06d", i)))
		}
		_, tree := treeOf(t, now, src.Head, Options{})
		var log []feed.Entry
		for i := range tt.changes {
			log = append(log, src.Existing(fmt.Sprintf("https://example.org/b/000100/%06d", i)))
		}
		for i := range tt.deletions {
			e := src.Existing(fmt.Sprintf("https://example.org/b/%06d", i))
			e.Change.Change = resourcesync.Deleted
			log = append(log, e)
		}
		for _, e := range log {
			now.Add(e)
		}
		o := NewOverlay(tree)
		add(t, o, log...)
		s := o.State(src.Head)
		wantSplit(t, s, Range{}, newModel(now))

		// However lopsided, each split comes closer.
		for _, n := range []int{64, 256} {
			most, in := s.total.Count, Range{}
			for rounds := 0; most > 64; rounds++ {
				parts, err := s.Split(t.Context(), in, n)
				if err != nil || rounds > 5 {
					t.Fatalf("%+v: %d resources are left after %d rounds (%v)", tt, most, rounds, err)
				}
				most = 0
				for _, p := range parts {
					if p.Tally.Count >= most {
						most, in = p.Tally.Count, p.Range
					}
				}
			}
		}
	}
}

// TestStateOfTree reads trees of several sizes, and states with changes behind them.
func TestStateOfTree(t *testing.T) {
	for _, n := range []int{0, 1, 50, 1_500, 6_000} {
		now := sourcetest.Set{}
		for _, e := range sourcetest.PEPs(n) {
			now.Add(e)
		}
		src := sourcetest.New(uint64(n), 1)
		src.Head = feed.Cursor{Position: 100_000, Micros: 1_790_000_000_000_000}
		_, tree := treeOf(t, now, src.Head, Options{})
		wantTree(t, tree, now, src)
		parts, err := tree.State().Split(t.Context(), Range{}, 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			if most := uint64(n/64 + 200); p.Tally.Count > most { // 200: a part begins where a page does
				t.Errorf("a part of %d resources has %d, want at most %d", n, p.Tally.Count, most)
			}
		}
		o := NewOverlay(tree)
		for range n / 10 {
			e := src.Change(sourcetest.PEP(src.IntN(n + n/10)))
			now.Add(e)
			add(t, o, e)
		}
		wantState(t, o.State(src.Head), now, src)
	}
}
