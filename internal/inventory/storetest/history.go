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

// Inventory compares an inventory on the store with a plain map, after random operations, and with a fault at
// each call of the store in turn. open is as for Store.
func Inventory(t *testing.T, open func(t *testing.T) Env) {
	steps, seeds := 60, uint64(6)
	if testing.Short() {
		steps = 20 // the content grows with each step, and so does the cost of a check
		seeds = 4  // one for each size of pages
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("history %d", seed), func(t *testing.T) {
			t.Parallel()
			History(t, open(t), seed, steps)
		})
	}
	for _, op := range []struct {
		name string
		seed uint64 // determines the size of pages
		do   func(h *history) error
	}{
		{"commit", 2, func(h *history) error { return h.commit(faultyHub) }},
		{"commit of runs", 2, func(h *history) error { return h.runsCommit(h.newest(), 2)(h.writer(faultyHub)) }},
		{"commit anew", 0, func(h *history) error { return h.commitAnew(faultyHub) }},
		{"forget", 2, func(h *history) error { return h.forget(faultyHub) }},
		{"shrink", 2, func(h *history) error {
			h.must(h.unpinAll())
			return shrink(h)(h.writer(faultyHub))
		}},
		{"reset", 2, func(h *history) error { return h.reset(faultyHub) }},
		{"pin", 2, func(h *history) error { return h.pin(h.hubs[faultyHub].inv) }},
		{"complete", 2, func(h *history) error { return h.hubs[faultyHub].inv.SetComplete(h.ctx, h.end(), "") }},
	} {
		t.Run("fault at each call of "+op.name, func(t *testing.T) {
			t.Parallel()
			testEachCall(t, begin(t, open(t), op.seed), op.do)
		})
	}
	for _, op := range concurrent {
		t.Run("commit during "+op.name, func(t *testing.T) {
			t.Parallel()
			testInterleaved(t, begin(t, open(t), 2), op.prepare)
		})
	}
	t.Run("another log", func(t *testing.T) { testAnotherLog(t, open(t)) })
	t.Run("missing pages", func(t *testing.T) { testMissingPages(t, open(t)) })
}

// stride returns the calls at which series i of a test has a fault or a pause: at first, first+step and so on. A
// short test has one of 17 calls, a long test one of 5, and with RSHUB_PROVE all. The steps are no multiples of
// 3 or 4, because the tests use those to vary other things.
func stride(i int) (first, step int) {
	switch {
	case testing.Short():
		return i % 17, 17
	case os.Getenv("RSHUB_PROVE") == "":
		return i % 5, 5
	}
	return 0, 1
}

// testEachCall repeats an operation, with a fault of each kind at each of its calls of the store. A short test
// has one fault of each kind, at calls with equal distances.
func testEachCall(t *testing.T, h *history, op func(h *history) error) {
	repeats := 0
	repeat := func(n int, fault fault) (calls int, met bool) {
		h.publish(1 + h.random.IntN(20))
		h.must(h.commit(soundHub))
		h.learn()
		h.must(h.unpinAll())
		if repeats%4 > 1 { // an older root stays
			h.must(h.pin(h.hubs[soundHub].inv))
		}
		h.publish(1 + h.random.IntN(20))
		h.faulty.withoutRemovals(func() { h.must(h.commitAnew(faultyHub)) }) // leaves pages to be removed
		h.learn()
		if repeats%4 == 3 {
			h.must(h.unpinAll())
		}
		repeats++
		h.publish(1 + h.random.IntN(20))
		h.faulty.arm(n, fault)
		err := op(h)
		calls, met = h.faulty.disarm()
		if err != nil && (!met || !planned(err)) {
			t.Fatalf("fault %d at call %d: %v", fault, n, err)
		}
		h.check()
		h.must(h.commit(soundHub))
		h.learn()
		if !met && calls < 1 {
			t.Fatalf("calls of the operation: got %d, want at least 1", calls)
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
		for n, step := stride(int(fault)); ; n += step {
			if _, met := repeat(n, fault); !met {
				break
			}
		}
	}
	h.settle()
}

// planned reports whether an operation may return an error after a planned fault.
func planned(err error) bool {
	return errors.Is(err, feed.ErrUnavailable) || errors.Is(err, feed.ErrUnknown)
}

// History lets two hubs do random operations on an inventory, with faults, and compares all roots with plain
// maps. seed determines the operations.
func History(t *testing.T, e Env, seed uint64, steps int) {
	h := begin(t, e, seed)
	for range steps {
		hub := h.random.IntN(len(h.hubs))
		if hub == faultyHub && h.random.IntN(3) == 0 {
			h.faulty.arm(h.random.IntN(12), fault(h.random.IntN(int(faults))))
		}
		err := h.step(hub)
		if _, met := h.faulty.disarm(); err != nil && (!met || !planned(err)) {
			t.Fatal(err)
		}
		h.check()
	}
	h.settle()
}

const set = "set"

// A history is an inventory and its expected content.
type history struct {
	*testing.T
	Env
	ctx      context.Context
	random   *rand.Rand
	faulty   *faulty
	hubs     [2]hub
	owner    int // index of the hub with the writer
	term     uint64
	reader   *inventory.Inventory // with its own cache
	log      []feed.Entry
	start    feed.Cursor
	content  map[uint64]content // of the known roots, by Root.Upto
	possible []possibleRoot     // roots that may have been committed since the last check
	pinned   map[uint64]bool    // roots that must stay
	pins     int
}

// A hub is a hub of a history.
type hub struct {
	inv    *inventory.Inventory
	writer *inventory.Writer // nil if the hub never had the claim
}

// The hubs of a history.
const (
	faultyHub = iota // its store may be faulty
	soundHub
)

// A possibleRoot is a root that a commit may have made.
type possibleRoot struct {
	cursor feed.Cursor
	content
}

func begin(t *testing.T, e Env, seed uint64) *history {
	h := &history{T: t, Env: e, ctx: t.Context(), random: rand.New(rand.NewPCG(seed, 12)), owner: -1, content: map[uint64]content{0: {}}, pinned: map[uint64]bool{}}
	h.must(h.Log.Make(h.ctx, set, feed.Description{}, 1000))
	state, err := h.Log.State(h.ctx, set)
	h.must(err)
	h.start = state.Head
	h.faulty = newFaulty(e.Store)
	o := inventory.Options{PageBytes: []int{256, 700, 6128, 1500}[seed%4], Cache: inventory.NewCache(20_000)}
	h.hubs[faultyHub].inv = inventory.New(h.faulty, set, o)
	h.hubs[soundHub].inv = inventory.New(e.Store, set, o)
	h.reader = inventory.New(e.Store, set, inventory.Options{PageBytes: o.PageBytes, Cache: inventory.NewCache(5_000)})
	return h
}

// writer gives a hub the claim, unless it has it, and returns its writer.
func (h *history) writer(hub int) *inventory.Writer {
	if h.owner != hub {
		h.owner = hub
		h.hubs[hub].writer = h.newWriter(h.hubs[hub].inv)
	}
	return h.hubs[hub].writer
}

// newWriter returns a writer with the next term.
func (h *history) newWriter(v *inventory.Inventory) *inventory.Writer {
	h.term++
	return v.Writer(h.term)
}

func (h *history) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// step does a random operation at a hub.
func (h *history) step(hub int) error {
	inv := h.hubs[hub].inv
	switch n := h.random.IntN(100); {
	case n < 25:
		h.publish(1 + h.random.IntN(1+h.random.IntN(300)))
		return nil
	case n < 45:
		return h.commit(hub)
	case n < 60:
		return h.runsCommit(h.newest(), h.random.IntN(5))(h.writer(hub))
	case n < 65:
		return h.commitAnew(hub)
	case n < 70:
		h.commitTwice()
		return nil
	case n < 73:
		return h.forget(hub)
	case n < 83:
		return h.pin(inv)
	case n < 88:
		return h.unpinAll()
	case n < 92:
		root := h.newest()
		if root.Upto == 0 {
			return nil
		}
		return h.writer(hub).List(h.ctx, root.Upto)
	case n < 95:
		return inv.SetComplete(h.ctx, h.end(), "")
	case n < 99:
		return h.writer(hub).Shrink(h.ctx)
	}
	return h.reset(hub)
}

// publish appends n changes to the log.
func (h *history) publish(n int) {
	changes := make([]resourcesync.Change, n)
	for i := range changes {
		changes[i] = randomChange(h.random)
	}
	a, err := h.Log.Append(h.ctx, set, changelog.Publish{Changes: changes})
	h.must(err)
	h.log = append(h.log, feed.NewBatch(set, a[0].After, a[0].Cursor, changes).Entries...)
}

// end returns the cursor of the newest entry.
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

// changes returns changes to commit to a root.
func (h *history) changes(base inventory.Root) inventory.Changes {
	entries, to := h.entriesAfter(base)
	return inventory.Changes{Base: base, To: to, Sorted: sorted(entries)}
}

// entriesAfter returns entries of the log after a root, sometimes not all, and the cursor after them.
func (h *history) entriesAfter(base inventory.Root) (entries []feed.Entry, to feed.Cursor) {
	entries = h.log[base.Cursor.Position:]
	if len(entries) > 0 && h.random.IntN(3) == 0 {
		entries = entries[:1+h.random.IntN(len(entries))]
	}
	to = base.Cursor
	if len(entries) > 0 {
		to = entries[len(entries)-1].Cursor
	}
	if to.IsZero() {
		to = h.start
	}
	h.expect(to, h.content[base.Upto].with(entries))
	return entries, to
}

// expect records a root that may be committed from now on.
func (h *history) expect(cursor feed.Cursor, c content) {
	h.possible = append(h.possible, possibleRoot{cursor, c})
}

// runsCommit returns a function that commits the log after a root, as n runs and the rest.
func (h *history) runsCommit(base inventory.Root, n int) func(w *inventory.Writer) error {
	entries, to := h.entriesAfter(base)
	ends := make([]int, n)
	for i := range ends {
		ends[i] = h.random.IntN(len(entries) + 1)
	}
	slices.Sort(ends)
	return func(w *inventory.Writer) error {
		runs, err := w.NewRuns(h.ctx, base)
		from := 0
		for _, to := range ends {
			if err == nil {
				err = runs.Add(h.ctx, sorted(entries[from:to]), nil)
			}
			from = to
		}
		if err == nil {
			_, err = w.Commit(h.ctx, inventory.Changes{Base: base, To: to, Runs: runs, Sorted: sorted(entries[from:])})
		}
		return err
	}
}

func (h *history) commit(hub int) error {
	_, err := h.writer(hub).Commit(h.ctx, h.changes(h.newest()))
	return err
}

func (h *history) commitAnew(hub int) error {
	h.expect(h.end(), content{}.with(h.log))
	_, err := h.writer(hub).Commit(h.ctx, inventory.Changes{Base: h.newest(), Anew: true, To: h.end(), Sorted: sorted(h.log), Incomplete: "a test"})
	return err
}

// forget reverts to an older cursor, as if the log had lost its newest entries.
func (h *history) forget(hub int) error {
	base, to := h.newest(), h.start
	if base.Cursor.Position > 0 {
		if n := h.random.Uint64N(base.Cursor.Position); n > 0 {
			to = h.log[n-1].Cursor
		}
	}
	h.expect(to, h.content[base.Upto].without(to.Position))
	_, err := h.writer(hub).Forget(h.ctx, base, to, "a test")
	return err
}

func (h *history) pin(v *inventory.Inventory) error {
	h.pins++
	root, err := v.Pin(h.ctx, 0, fmt.Sprint("reader ", h.pins), time.Hour)
	if err == nil && root.Upto > 0 {
		h.pinned[root.Upto] = true
	}
	return err
}

// unpinAll removes all pins.
func (h *history) unpinAll() error {
	_, head, err := h.reader.Load(h.ctx)
	h.must(err)
	for _, k := range head.Roots {
		for _, p := range k.Pins {
			h.must(h.hubs[soundHub].inv.Unpin(h.ctx, k.Upto, p.Holder))
		}
	}
	clear(h.pinned)
	return nil
}

// shrink returns a function that drops roots and removes pages.
func shrink(h *history) func(w *inventory.Writer) error {
	return func(w *inventory.Writer) error { return errors.Join(w.Shrink(h.ctx), w.Sweep(h.ctx)) }
}

func (h *history) reset(hub int) error {
	err := h.writer(hub).Reset(h.ctx, "a test")
	if _, head, lerr := h.reader.Load(h.ctx); lerr == nil && len(head.Roots) == 0 {
		clear(h.pinned)
	}
	return err
}

// learn determines the expected content of the roots.
func (h *history) learn() *inventory.Head {
	h.Helper()
	_, head, err := h.reader.Load(h.ctx)
	h.must(err)
	all := map[uint64]content{0: {}}
	for _, k := range head.Roots {
		want, known := h.content[k.Upto]
		if !known {
			i := slices.IndexFunc(h.possible, func(r possibleRoot) bool { return r.cursor == k.Cursor })
			if i < 0 {
				h.Fatalf("unexpected root %d at %v", k.Upto, k.Cursor)
			}
			want = h.possible[i].content
		}
		all[k.Upto] = want
	}
	h.content, h.possible = all, nil
	return head
}

// check compares all roots with their expected content, and verifies their pages.
func (h *history) check() {
	h.Helper()
	head := h.learn()
	if len(head.Roots) > inventory.MaxRoots {
		h.Fatalf("roots: got %d, want at most %d", len(head.Roots), inventory.MaxRoots)
	}
	for _, k := range head.Roots {
		if err := h.content[k.Upto].check(h.ctx, h.reader.Tree(k.Root), h.random); err != nil {
			h.Fatalf("root %d at %v: %v", k.Upto, k.Cursor, err)
		}
	}
	h.checkPinned(head)
	h.must(h.reader.Check(h.ctx))
}

// checkPinned checks that no pinned root was dropped, unless there were too many.
func (h *history) checkPinned(head *inventory.Head) {
	h.Helper()
	for upto := range h.pinned {
		if slices.ContainsFunc(head.Roots, func(k inventory.Kept) bool { return k.Upto == upto }) {
			continue
		}
		if len(head.Roots) < inventory.MaxRoots {
			h.Fatalf("root %d was dropped although it was pinned", upto)
		}
		delete(h.pinned, upto)
	}
}

// settle removes what is not needed. Then the store has the pages of the newest root and of the roots of
// Resource Lists, and no others.
func (h *history) settle() {
	h.Helper()
	h.must(h.unpinAll())
	h.must(h.commit(soundHub))
	h.must(shrink(h)(h.writer(soundHub)))
	h.check()
	rec, head, err := h.reader.Load(h.ctx)
	h.must(err)
	if len(head.Roots) > 3 || head.Garbage != 0 {
		h.Fatalf("settled inventory: got %d roots and garbage %d, want at most 3 and 0", len(head.Roots), head.Garbage)
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
		h.Fatalf("pages of %d roots: got %d, want %d to %d", len(head.Roots), pages, least, most)
	}
}

// testAnotherLog commits changes that the log does not hold.
func testAnotherLog(t *testing.T, e Env) {
	h := begin(t, e, 2)
	h.publish(100)
	h.must(h.commit(soundHub))
	h.check()
	w, base := h.writer(soundHub), h.newest()
	h.publish(50)
	fails := func(what string, got, want error) {
		t.Helper()
		if !errors.Is(got, want) {
			t.Errorf("%s: got error %v, want %v", what, got, want)
		}
	}
	lost := h.end()
	lost.Micros++
	changes := inventory.Changes{Base: base, To: lost, Sorted: sorted(h.log)}
	commit := func() error {
		_, err := w.Commit(h.ctx, changes)
		return err
	}
	fails("commit up to a lost cursor", commit(), inventory.ErrLog)
	fails("complete as of a lost cursor", w.SetComplete(h.ctx, lost, ""), inventory.ErrLog)
	h.check()
	changes.To = h.end()
	h.must(h.Log.Delete(h.ctx, set))
	fails("commit to a deleted set", commit(), feed.ErrNoSet)
	h.must(h.Log.Make(h.ctx, set, feed.Description{}, 1000))
	fails("commit to a root of the earlier set", commit(), inventory.ErrLog)
	changes.Base = inventory.Root{}
	fails("commit of changes of the earlier set", commit(), inventory.ErrLog)
	if _, head, err := w.Load(h.ctx); err != nil || len(head.Roots) > 0 {
		t.Errorf("recreated set: got %v, %v, want no roots", head, err)
	}
	h.must(w.Check(h.ctx))
}

// testMissingPages reads a tree whose pages were removed, and a tree that lost a page.
func testMissingPages(t *testing.T, e Env) {
	h := begin(t, e, 0)
	h.publish(300)
	h.must(h.commit(soundHub))
	old := h.newest()
	h.check()
	h.must(h.commitAnew(soundHub))
	h.check()
	walk := func(root inventory.Root) (err error) {
		for _, err = range inventory.New(e.Store, set, inventory.Options{}).Tree(root).Walk(h.ctx, inventory.Range{}) {
		}
		return err
	}
	if err := walk(old); !errors.Is(err, feed.ErrGone) {
		t.Errorf("walk of a dropped root: got error %v, want %v", err, feed.ErrGone)
	}
	if _, err := h.reader.Pin(h.ctx, old.Upto, "late", time.Hour); !errors.Is(err, feed.ErrGone) {
		t.Errorf("pin of a dropped root: got error %v, want %v", err, feed.ErrGone)
	}
	root := h.newest()
	for range 3 {
		var numbers []uint64
		for n, err := range e.Store.Numbers(h.ctx, set, root.Begin) { // all are of the root
			h.must(err)
			numbers = append(numbers, n)
		}
		lost := numbers[h.random.IntN(len(numbers))]
		RemovePages(t, e.Store, set, lost)
		if err := walk(root); !errors.Is(err, inventory.ErrDamaged) {
			t.Errorf("walk without page %d: got error %v, want %v", lost, err, inventory.ErrDamaged)
		}
		if err := h.reader.Check(h.ctx); !errors.Is(err, inventory.ErrDamaged) {
			t.Errorf("check without page %d: got error %v, want %v", lost, err, inventory.ErrDamaged)
		}
		h.must(h.reset(soundHub))
		h.must(h.commitAnew(soundHub))
		h.check()
		root = h.newest()
	}
	h.must(h.Log.Delete(h.ctx, set))
	if err := walk(root); !errors.Is(err, feed.ErrGone) {
		t.Errorf("walk of a deleted set: got error %v, want %v", err, feed.ErrGone)
	}
}

// RemovePages removes pages of a set, to damage its inventory.
func RemovePages(t testing.TB, s inventory.Store, set string, numbers ...uint64) {
	t.Helper()
	r, err := s.Load(t.Context(), set)
	if err == nil {
		err = s.Remove(t.Context(), set, r.Log.Begin, r.Term, numbers)
	}
	if err != nil {
		t.Fatal(err)
	}
}
