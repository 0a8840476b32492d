package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// Inventory compares an inventory on the store with a plain map, after random histories,
// and with a fault at each call of the store in turn. open is as for Store.
func Inventory(t *testing.T, open func(t *testing.T) Env) {
	steps, seeds := 60, uint64(6)
	if testing.Short() {
		steps = 20 // the content grows with each step, and so does what a check costs
		seeds = 4  // one for each size of pages
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("history %d", seed), func(t *testing.T) {
			t.Parallel()
			History(t, open(t), seed, steps)
		})
	}
	for _, op := range []struct {
		name  string
		pages uint64 // seed of begin: how large the pages are
		do    func(h *history) error
	}{
		{"commit", 2, func(h *history) error { return h.commit(h.hubs[0]) }},
		{"commit of runs", 2, func(h *history) error { return h.commitRuns(h.newest(), 2)(h.hubs[0]) }},
		{"commit anew", 0, func(h *history) error { return h.commitAnew(h.hubs[0]) }},
		{"forget", 2, func(h *history) error { return h.forget(h.hubs[0]) }},
		{"shrink", 2, func(h *history) error {
			h.must(h.unpinAll())
			if err := h.hubs[0].Shrink(h.ctx); err != nil {
				return err
			}
			return h.hubs[0].Sweep(h.ctx)
		}},
		{"reset", 2, func(h *history) error { return h.reset(h.hubs[0]) }},
		{"pin", 2, func(h *history) error { return h.pin(h.hubs[0]) }},
		{"complete", 2, func(h *history) error { return h.hubs[0].SetComplete(h.ctx, h.end(), "") }},
	} {
		t.Run("a fault at each call of "+op.name, func(t *testing.T) {
			t.Parallel()
			eachCall(t, begin(t, open(t), op.pages), op.do)
		})
	}
	for _, op := range meanwhile {
		t.Run("a commit, and meanwhile "+op.name, func(t *testing.T) {
			t.Parallel()
			interleave(t, begin(t, open(t), 2), op.do)
		})
	}
	t.Run("another log", func(t *testing.T) { otherLog(t, open(t)) })
	t.Run("pages that are gone", func(t *testing.T) { gone(t, open(t)) })
}

// part says at which calls of a store test i sets a fault: at first, first+step and so
// on. A short test takes one of 17 calls, a long test one of 5, and with RSHUB_PROVE all.
// The steps are no multiples of 3 or 4, because the tests use those to vary other things.
func part(i int) (first, step int) {
	switch {
	case testing.Short():
		return i % 17, 17
	case os.Getenv("RSHUB_PROVE") == "":
		return i % 5, 5
	}
	return 0, 1
}

// eachCall repeats an operation, and lets each of its store calls fail once, in each
// way. A short test has one fault of each kind, at calls that are evenly apart.
func eachCall(t *testing.T, h *history, op func(h *history) error) {
	repeats := 0
	repeat := func(n int, fault fault) (calls int, met bool) {
		h.publish(1 + h.random.IntN(20))
		h.must(h.commit(h.hubs[1]))
		h.learn()
		h.must(h.unpinAll())
		if repeats%4 > 1 { // an older root lives, or dies
			h.must(h.pin(h.hubs[1]))
		}
		h.publish(1 + h.random.IntN(20))
		h.faulty.keeps(func() { h.must(h.commitAnew(h.hubs[0])) }) // leaves pages that are to be removed
		h.learn()
		if repeats%4 == 3 {
			h.must(h.unpinAll())
		}
		repeats++
		h.publish(1 + h.random.IntN(20))
		h.faulty.set(n, fault)
		err := op(h)
		calls, met = h.faulty.heal()
		if err != nil && (!met || !planned(err)) {
			t.Fatalf("fault %d at call %d: %v", fault, n, err)
		}
		h.check()
		h.must(h.commit(h.hubs[1]))
		h.learn()
		if !met && calls < 2 {
			t.Fatalf("the operation makes only %d calls", calls)
		}
		return calls, met
	}
	if testing.Short() {
		calls, _ := repeat(math.MaxInt, refused)
		for fault := range faults {
			repeat(int(fault)*calls/int(faults), fault)
		}
		h.settle()
		return
	}
	for fault := range faults {
		for n, step := part(int(fault)); ; n += step {
			if _, met := repeat(n, fault); !met {
				break
			}
		}
	}
	h.settle()
}

// planned reports whether an operation may return an error after a planned fault. If the
// answer to the swap of an attempt is lost, the attempt is over.
func planned(err error) bool {
	return errors.Is(err, feed.ErrUnavailable) || errors.Is(err, feed.ErrUnknown) || errors.Is(err, inventory.ErrRaced)
}

// History lets two hubs do random operations on an inventory, with faults, and
// compares all roots with plain maps. seed chooses the operations.
func History(t *testing.T, e Env, seed uint64, steps int) {
	h := begin(t, e, seed)
	for range steps {
		hub := h.hubs[h.random.IntN(len(h.hubs))]
		if hub == h.hubs[0] && h.random.IntN(3) == 0 {
			h.faulty.set(h.random.IntN(12), fault(h.random.IntN(int(faults))))
		}
		err := h.step(hub)
		if _, met := h.faulty.heal(); err != nil && (!met || !planned(err)) {
			t.Fatal(err)
		}
		h.check()
	}
	h.settle()
}

const set = "set"

// A history is an inventory and what it should hold.
type history struct {
	*testing.T
	Env
	ctx     context.Context
	random  *rand.Rand
	faulty  *faulty
	hubs    []*inventory.Inventory // the first one's store is faulty
	reader  *inventory.Inventory   // with a cache of its own
	log     []feed.Entry
	start   feed.Cursor
	content map[uint64]content // of the roots that are known, by Root.Upto
	tried   []try              // roots that may have been made since the last check
	pinned  map[uint64]bool    // roots that have to live
	pins    int
}

// A try is a root that a commit may have made.
type try struct {
	cursor feed.Cursor
	content
}

func begin(t *testing.T, e Env, seed uint64) *history {
	h := &history{T: t, Env: e, ctx: t.Context(), random: rand.New(rand.NewPCG(seed, 12)), content: map[uint64]content{0: {}}, pinned: map[uint64]bool{}}
	h.must(h.Log.Make(h.ctx, set, feed.Description{}, 1000))
	state, err := h.Log.State(h.ctx, set)
	h.must(err)
	h.start = state.Head
	h.faulty = newFaulty(e.Store)
	o := inventory.Options{PageBytes: []int{256, 700, 6128, 1500}[seed%4], Cache: inventory.NewCache(20_000)}
	h.hubs = []*inventory.Inventory{inventory.New(h.faulty, set, o), inventory.New(e.Store, set, o)}
	h.reader = inventory.New(e.Store, set, inventory.Options{PageBytes: o.PageBytes, Cache: inventory.NewCache(5_000)})
	return h
}

func (h *history) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// step does one random operation.
func (h *history) step(hub *inventory.Inventory) error {
	switch n := h.random.IntN(100); {
	case n < 25:
		h.publish(1 + h.random.IntN(1+h.random.IntN(300)))
		return nil
	case n < 45:
		return h.commit(hub)
	case n < 60:
		return h.commitRuns(h.newest(), h.random.IntN(5))(hub)
	case n < 65:
		return h.commitAnew(hub)
	case n < 70:
		return h.together()
	case n < 73:
		return h.forget(hub)
	case n < 83:
		return h.pin(hub)
	case n < 88:
		return h.unpinAll()
	case n < 92:
		root := h.newest()
		if root.Upto == 0 {
			return nil
		}
		return hub.List(h.ctx, root.Upto)
	case n < 95:
		return hub.SetComplete(h.ctx, h.end(), "")
	case n < 99:
		return hub.Shrink(h.ctx)
	}
	return h.reset(hub)
}

// publish appends n changes to the log.
func (h *history) publish(n int) {
	changes := make([]resourcesync.Change, n)
	for i := range changes {
		changes[i] = someChange(h.random)
	}
	a, err := h.Log.Append(h.ctx, set, changelog.Publish{Changes: changes})
	h.must(err)
	h.log = append(h.log, feed.NewBatch(set, a[0].After, a[0].Cursor, changes).Entries...)
}

// end is the cursor of the newest entry.
func (h *history) end() feed.Cursor {
	if len(h.log) == 0 {
		return h.start
	}
	return h.log[len(h.log)-1].Cursor
}

func (h *history) newest() inventory.Root {
	_, head, err := h.reader.Load(h.ctx)
	h.must(err)
	return head.Newest()
}

// changes are those that a hub commits on top of a root.
func (h *history) changes(base inventory.Root) inventory.Changes {
	behind, to := h.behind(base)
	return inventory.Changes{Base: base, To: to, Sorted: sorted(behind)}
}

// behind is the log behind a root, or a part of it, and its end.
func (h *history) behind(base inventory.Root) (behind []feed.Entry, to feed.Cursor) {
	behind = h.log[base.Cursor.Position:]
	if len(behind) > 0 && h.random.IntN(3) == 0 {
		behind = behind[:1+h.random.IntN(len(behind))]
	}
	to = base.Cursor
	if len(behind) > 0 {
		to = behind[len(behind)-1].Cursor
	}
	if to.IsZero() {
		to = h.start
	}
	h.tried = append(h.tried, try{to, h.content[base.Upto].with(behind)})
	return behind, to
}

// commitRuns returns a function that commits the log after a root, as some runs
// and the rest.
func (h *history) commitRuns(base inventory.Root, runs int) func(hub *inventory.Inventory) error {
	behind, to := h.behind(base)
	pieces := make([]int, runs)
	for i := range pieces {
		pieces[i] = h.random.IntN(len(behind) + 1)
	}
	slices.Sort(pieces)
	return func(hub *inventory.Inventory) error {
		runs, err := hub.NewRuns(h.ctx, base)
		from := 0
		for _, upto := range pieces {
			if err == nil {
				err = runs.Add(h.ctx, sorted(behind[from:upto]), nil)
			}
			from = upto
		}
		if err == nil {
			_, err = hub.Commit(h.ctx, inventory.Changes{Base: base, To: to, Runs: runs, Sorted: sorted(behind[from:])})
		}
		return err
	}
}

func (h *history) commit(hub *inventory.Inventory) error {
	_, err := hub.Commit(h.ctx, h.changes(h.newest()))
	return err
}

func (h *history) commitAnew(hub *inventory.Inventory) error {
	h.tried = append(h.tried, try{h.end(), content{}.with(h.log)})
	_, err := hub.Commit(h.ctx, inventory.Changes{Base: h.newest(), Anew: true, To: h.end(), Sorted: sorted(h.log), Incomplete: "a test"})
	return err
}

// forget goes back to a cursor, as if the log had lost what is behind it.
func (h *history) forget(hub *inventory.Inventory) error {
	base, to := h.newest(), h.start
	if base.Cursor.Position > 0 {
		if n := h.random.Uint64N(base.Cursor.Position); n > 0 {
			to = h.log[n-1].Cursor
		}
	}
	h.tried = append(h.tried, try{to, h.content[base.Upto].without(to.Position)})
	_, err := hub.Forget(h.ctx, base, to, "a test")
	return err
}

func (h *history) pin(hub *inventory.Inventory) error {
	h.pins++
	root, err := hub.Pin(h.ctx, 0, fmt.Sprint("reader ", h.pins), time.Hour)
	if err == nil && root.Upto > 0 {
		h.pinned[root.Upto] = true
	}
	return err
}

// unpinAll removes all pins, even unknown ones.
func (h *history) unpinAll() error {
	_, head, err := h.reader.Load(h.ctx)
	h.must(err)
	for _, k := range head.Roots {
		for _, p := range k.Pins {
			h.must(h.hubs[1].Unpin(h.ctx, k.Upto, p.Holder))
		}
	}
	clear(h.pinned)
	return nil
}

func (h *history) reset(hub *inventory.Inventory) error {
	err := hub.Reset(h.ctx, "a test")
	if _, head, lerr := h.reader.Load(h.ctx); lerr == nil && len(head.Roots) == 0 {
		clear(h.pinned)
	}
	return err
}

// learn notes what the kept roots should hold.
func (h *history) learn() *inventory.Head {
	h.Helper()
	_, head, err := h.reader.Load(h.ctx)
	h.must(err)
	lives := map[uint64]content{0: {}}
	for _, k := range head.Roots {
		want, known := h.content[k.Upto]
		if !known {
			i := slices.IndexFunc(h.tried, func(t try) bool { return t.cursor == k.Cursor })
			if i < 0 {
				h.Fatalf("nobody has made root %d at %v", k.Upto, k.Cursor)
			}
			want = h.tried[i].content
		}
		lives[k.Upto] = want
	}
	h.content, h.tried = lives, nil
	return head
}

// check compares all kept roots with what they should hold, and looks for pages that are
// missing or in no root.
func (h *history) check() {
	h.Helper()
	head := h.learn()
	if len(head.Roots) > inventory.MaxRoots {
		h.Fatalf("%d roots live", len(head.Roots))
	}
	for _, k := range head.Roots {
		if err := h.content[k.Upto].check(h.ctx, h.reader.Tree(k.Root), h.random); err != nil {
			h.Fatalf("root %d at %v: %v", k.Upto, k.Cursor, err)
		}
	}
	h.alive(head)
	h.must(h.reader.Check(h.ctx))
}

// alive checks that pinned roots are kept, unless there are too many.
func (h *history) alive(head *inventory.Head) {
	h.Helper()
	for upto := range h.pinned {
		if slices.ContainsFunc(head.Roots, func(k inventory.Kept) bool { return k.Upto == upto }) {
			continue
		}
		if len(head.Roots) < inventory.MaxRoots {
			h.Fatalf("root %d was pinned and lives no more", upto)
		}
		delete(h.pinned, upto)
	}
}

// settle lets the inventory come to rest. Then the store has the pages of the newest
// root, and of those of the Resource List, and no others.
func (h *history) settle() {
	h.Helper()
	h.must(h.unpinAll())
	h.must(h.commit(h.hubs[1]))
	h.must(h.hubs[1].Shrink(h.ctx))
	h.must(h.hubs[1].Sweep(h.ctx))
	h.check()
	rec, head, err := h.reader.Load(h.ctx)
	h.must(err)
	if rec.Attempt != 0 || head.Garbage != 0 {
		h.Fatalf("an inventory at rest has the head %s", rec.Head)
	}
	if len(head.Roots) > 3 {
		h.Fatalf("%d roots live without a pin", len(head.Roots))
	}
	pages := uint64(0)
	for _, err := range h.Store.Numbers(h.ctx, set, rec.Log.Begin) {
		h.must(err)
		pages++
	}
	most := uint64(0)
	for _, k := range head.Roots {
		most += k.Pages
	}
	if least := head.Newest().Pages; pages < least || pages > most {
		h.Fatalf("the store has %d pages, want %d to %d for %d roots", pages, least, most, len(head.Roots))
	}
}

// otherLog tries commits of changes that the log does not hold.
func otherLog(t *testing.T, e Env) {
	h := begin(t, e, 2)
	hub := h.hubs[1]
	h.publish(100)
	h.must(h.commit(hub))
	h.check()
	base := h.newest()
	h.publish(50)
	lost := h.end()
	lost.Micros++
	changes := inventory.Changes{Base: base, To: lost, Sorted: sorted(h.log)}
	if _, err := hub.Commit(h.ctx, changes); !errors.Is(err, inventory.ErrLog) {
		t.Errorf("a commit up to a cursor that the log does not hold: %v", err)
	}
	if err := hub.SetComplete(h.ctx, lost, ""); !errors.Is(err, inventory.ErrLog) {
		t.Errorf("complete as of a cursor that the log does not hold: %v", err)
	}
	h.check()
	changes.To = h.end()
	h.must(h.Log.Delete(h.ctx, set))
	if _, err := hub.Commit(h.ctx, changes); !errors.Is(err, feed.ErrNoSet) {
		t.Errorf("a commit to a set that was deleted: %v", err)
	}
	h.must(h.Log.Make(h.ctx, set, feed.Description{}, 1000))
	if _, err := hub.Commit(h.ctx, changes); !errors.Is(err, inventory.ErrLog) {
		t.Errorf("a commit on top of a root of the set before: %v", err)
	}
	changes.Base = inventory.Root{}
	if _, err := hub.Commit(h.ctx, changes); !errors.Is(err, inventory.ErrLog) {
		t.Errorf("a commit of changes of the set before: %v", err)
	}
	if _, head, err := hub.Load(h.ctx); err != nil || len(head.Roots) > 0 {
		t.Errorf("the set made anew has roots: %v, %v", head, err)
	}
	h.must(hub.Check(h.ctx))
}

// gone reads a tree whose pages were removed, and a tree that lost a page.
func gone(t *testing.T, e Env) {
	h := begin(t, e, 0)
	h.publish(300)
	h.must(h.commit(h.hubs[1]))
	old := h.newest()
	h.check()
	h.must(h.commitAnew(h.hubs[1]))
	h.check()
	walk := func(root inventory.Root) (err error) {
		for _, err = range inventory.New(e.Store, set, inventory.Options{}).Tree(root).Walk(h.ctx, inventory.Range{}) {
		}
		return err
	}
	if err := walk(old); !errors.Is(err, feed.ErrGone) {
		t.Errorf("reading a root that lives no more: %v", err)
	}
	if _, err := h.hubs[1].Pin(h.ctx, old.Upto, "late", time.Hour); !errors.Is(err, feed.ErrGone) {
		t.Errorf("pinning a root that lives no more: %v", err)
	}
	root := h.newest()
	for range 3 {
		var numbers []uint64
		for n, err := range e.Store.Numbers(h.ctx, set, root.Begin) { // all are of the root
			h.must(err)
			numbers = append(numbers, n)
		}
		lost := numbers[h.random.IntN(len(numbers))]
		h.must(e.Store.Remove(h.ctx, set, root.Begin, []uint64{lost}))
		if err := walk(root); !errors.Is(err, inventory.ErrDamaged) {
			t.Errorf("reading a root of which page %d was lost: %v", lost, err)
		}
		if err := h.reader.Check(h.ctx); !errors.Is(err, inventory.ErrDamaged) {
			t.Errorf("checking an inventory of which page %d was lost: %v", lost, err)
		}
		h.must(h.reset(h.hubs[1]))
		h.must(h.commitAnew(h.hubs[1]))
		h.check()
		root = h.newest()
	}
	h.must(h.Log.Delete(h.ctx, set))
	if err := walk(root); !errors.Is(err, feed.ErrGone) {
		t.Errorf("reading a set that was deleted: %v", err)
	}
}
