package storetest

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// Inventory compares an inventory on the store with a plain map, after random operations, with a fault at each call of
// the store in turn, and while another hub works. open is as for Store.
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
	for _, op := range operations {
		t.Run("fault at each call of "+op.name, func(t *testing.T) {
			t.Parallel()
			testEachCall(t, begin(t, open(t), op.seed), op.prepare)
		})
		if op.during {
			t.Run("commit during "+op.name, func(t *testing.T) {
				t.Parallel()
				testInterleaved(t, begin(t, open(t), 2), op.prepare, strings.HasPrefix(op.name, "commit"))
			})
		}
	}
	t.Run("another log", func(t *testing.T) { testAnotherLog(t, open(t)) })
	t.Run("missing pages", func(t *testing.T) { testMissingPages(t, open(t)) })
}

// operations are what a hub does, and how often in a random history, in percent. Each method prepares an operation.
var operations = []struct {
	name    string
	seed    uint64 // determines the size of pages
	weight  int
	during  bool // whether it is tested during a commit
	prepare func(h *history, b *hub) (do func() error)
}{
	{"commit", 2, 20, true, (*history).commit},
	{"commit of runs", 2, 20, true, (*history).commitRuns},
	{"commit from scratch", 0, 5, false, (*history).commitAnew},
	{"forget", 2, 3, false, (*history).forget},
	{"pin", 2, 15, true, (*history).pin},
	{"list", 2, 4, false, (*history).list},
	{"complete", 2, 3, false, (*history).complete},
	{"shrink", 2, 4, true, (*history).shrink},
	{"reset", 2, 1, true, (*history).reset},
}

// stride returns the calls at which series i of a test has a fault or a pause: at first, first+step and so on. A
// short test has one of 17 calls, a long test one of 5, and with RSHUB_PROVE all. A step is never a
// multiple of 3, because testInterleaved uses that to vary other things.
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
func testEachCall(t *testing.T, h *history, prepare func(*history, *hub) func() error) {
	repeat := func(n int, fault fault) (calls int, met bool) {
		h.publish(1 + h.random.IntN(20))
		h.do(h.commit(h.sound))
		h.unpinAll()
		h.do(h.pin(h.sound)) // an older root stays
		h.publish(1 + h.random.IntN(20))
		h.do(h.commitAnew(h.faulty))
		if h.random.IntN(2) == 0 { // it can be dropped
			h.unpinAll()
		}
		h.publish(1 + h.random.IntN(20))
		operation := prepare(h, h.faulty)
		h.store.arm(n, fault)
		err := operation()
		calls, met = h.store.disarm()
		if err != nil && (!met || !planned(err)) {
			t.Fatalf("fault %d at call %d: %v", fault, n, err)
		}
		h.check()
		h.do(h.commit(h.sound))
		if !met && calls < 1 {
			t.Fatalf("calls of the operation: got %d, want at least 1", calls)
		}
		return calls, met
	}
	defer h.settle()
	if testing.Short() {
		calls, _ := repeat(math.MaxInt, refused)
		for fault := range faults {
			repeat(int(fault)*calls/int(faults), fault)
		}
		return
	}
	for fault := range faults {
		for n, step := stride(int(fault)); ; n += step {
			if _, met := repeat(n, fault); !met {
				break
			}
		}
	}
}

// planned reports whether an operation may return an error after a planned fault.
func planned(err error) bool {
	return errors.Is(err, feed.ErrUnavailable) || errors.Is(err, feed.ErrUnknown)
}

// testInterleaved pauses a commit of runs before each of its calls in turn, or before one in four if the test is
// short. In the meantime another hub works, up to one of its own calls. Then the commit runs to its end, and after
// it the other hub. If both commit to the same root, only one may succeed.
func testInterleaved(t *testing.T, h *history, prepare func(*history, *hub) func() error, both bool) {
	one, two := newFaultyStore(h.Store), newFaultyStore(h.Store)
	v, other := inventory.New(one, set, inventory.Options{}), inventory.New(two, set, inventory.Options{})
	every := 1
	if testing.Short() {
		every = 4 // no multiple of 3, so that second has each of its cases
	}
	for first, done := 0, false; !done; first += every {
		for second, step := stride(first); ; second += step {
			h.publish(30)
			h.do(h.commit(h.sound))
			switch second % 3 {
			case 0: // an older root stays
				h.do(h.pin(h.sound))
			case 1: // an older root is dropped
				h.unpinAll()
			case 2: // there is no root
				h.do(h.reset(h.sound))
			}
			h.publish(20)
			commit, operation := h.commitRuns(&hub{inv: v}), prepare(h, &hub{inv: other})
			ended, finish := one.start(first, commit)
			otherEnded, otherFinish := two.start(second, operation)
			errs := []error{finish(), otherFinish()}
			if both && errs[0] == nil && errs[1] == nil {
				t.Fatalf("paused at calls %d and %d: two commits to the same root have succeeded", first, second)
			}
			for _, err := range errs {
				if err != nil && !errors.Is(err, inventory.ErrFenced) && !errors.Is(err, feed.ErrGone) {
					t.Fatalf("paused at calls %d and %d: %v", first, second, err)
				}
			}
			clear(h.pinned) // a reset may have dropped them
			h.check()
			if done = ended; done || otherEnded {
				break
			}
		}
	}
	h.settle()
}

// History lets two hubs do random operations on an inventory, with faults, and compares all roots with plain
// maps. seed determines the operations.
func History(t *testing.T, e Env, seed uint64, steps int) {
	h := begin(t, e, seed)
	for range steps {
		hub, n := []*hub{h.sound, h.faulty}[h.random.IntN(2)], h.random.IntN(100)
		operation := func() error {
			h.publish(1 + h.random.IntN(1+h.random.IntN(300)))
			return nil
		}
		if n >= 95 {
			h.unpinAll()
		}
		for _, op := range operations {
			if n -= op.weight; n < 0 && n >= -op.weight {
				operation = op.prepare(h, hub)
			}
		}
		if hub == h.faulty && h.random.IntN(3) == 0 {
			h.store.arm(h.random.IntN(12), fault(h.random.IntN(int(faults))))
		}
		err := operation()
		if _, met := h.store.disarm(); err != nil && (!met || !planned(err)) {
			t.Fatal(err)
		}
		h.check()
	}
	h.settle()
}

// testAnotherLog commits changes that the log does not hold.
func testAnotherLog(t *testing.T, e Env) {
	h := begin(t, e, 2)
	w := h.claim(h.sound)
	h.publish(100)
	h.do(h.commit(h.sound))
	h.check()
	changes := inventory.Changes{Base: h.newest()}
	h.publish(50)
	fails := func(what string, got, want error) {
		t.Helper()
		if !errors.Is(got, want) {
			t.Errorf("%s: got error %v, want %v", what, got, want)
		}
	}
	commit := func() error {
		changes.Sorted = sorted(h.log)
		_, err := w.Commit(h.ctx, changes)
		return err
	}
	changes.To = h.end()
	changes.To.Micros++
	fails("commit up to a lost cursor", commit(), inventory.ErrLog)
	fails("complete as of a lost cursor", w.SetComplete(h.ctx, changes.To, ""), inventory.ErrLog)
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
	h.do(h.commit(h.sound))
	old := h.newest()
	h.check()
	h.do(h.commitAnew(h.sound))
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
		all := numbers(t, e.Store, set, root.Begin) // all are of the root
		lost := all[h.random.IntN(len(all))]
		RemovePages(t, e.Store, set, lost)
		if err := walk(root); !errors.Is(err, inventory.ErrDamaged) {
			t.Errorf("walk without page %d: got error %v, want %v", lost, err, inventory.ErrDamaged)
		}
		if err := h.reader.Check(h.ctx); !errors.Is(err, inventory.ErrDamaged) {
			t.Errorf("check without page %d: got error %v, want %v", lost, err, inventory.ErrDamaged)
		}
		h.do(h.reset(h.sound))
		h.do(h.commitAnew(h.sound))
		h.check()
		root = h.newest()
	}
	h.must(h.Log.Delete(h.ctx, set))
	if err := walk(root); !errors.Is(err, feed.ErrGone) {
		t.Errorf("walk of a deleted set: got error %v, want %v", err, feed.ErrGone)
	}
}
