package storetest

import (
	"errors"
	"sync"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// commitTwice lets two hubs commit to the same root at the same time, because a hub does not know yet that its
// claim was lost. At most one of them succeeds.
func (h *history) commitTwice() {
	base := h.newest()
	commits := []func(*inventory.Writer) error{h.runsCommit(base, h.random.IntN(3)), h.runsCommit(base, h.random.IntN(3))}
	writers := []*inventory.Writer{h.newWriter(h.hubs[faultyHub].inv), h.newWriter(h.hubs[soundHub].inv)}
	h.owner = -1
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, commit := range commits {
		wg.Go(func() { errs[i] = commit(writers[i]) })
	}
	wg.Wait()
	if errs[0] == nil && errs[1] == nil {
		h.Fatal("two commits to the same root have succeeded")
	}
	for i, err := range errs {
		if err != nil && !errors.Is(err, inventory.ErrFenced) && (i == soundHub || !planned(err)) {
			h.Fatalf("commit %d of 2: %v", i+1, err)
		}
	}
}

// concurrent are operations of another hub during a commit. Those of a writer have a higher term.
var concurrent = []struct {
	name    string
	prepare func(h *history, hub *inventory.Inventory) func() error
}{
	{"another commit", func(h *history, hub *inventory.Inventory) func() error {
		changes, w := h.changes(h.newest()), h.newWriter(hub)
		return func() error {
			_, err := w.Commit(h.ctx, changes)
			return err
		}
	}},
	{"a commit of runs", func(h *history, hub *inventory.Inventory) func() error {
		commit, w := h.runsCommit(h.newest(), 2), h.newWriter(hub)
		return func() error { return commit(w) }
	}},
	{"a pin", func(h *history, hub *inventory.Inventory) func() error { return func() error { return h.pin(hub) } }},
	{"a shrink", func(h *history, hub *inventory.Inventory) func() error {
		w := h.newWriter(hub)
		return func() error { return shrink(h)(w) }
	}},
	{"a reset", func(h *history, hub *inventory.Inventory) func() error {
		w := h.newWriter(hub)
		return func() error { return w.Reset(h.ctx, "a test") }
	}},
}

// testInterleaved pauses a commit of runs before each of its calls in turn, or before one in four if the test is
// short. In the meantime another hub works, up to one of its own calls. Then the commit runs to its end, and after
// it the other hub.
func testInterleaved(t *testing.T, h *history, prepare func(h *history, hub *inventory.Inventory) func() error) {
	gates := []*gate{newGate(h.Store), newGate(h.Store)}
	var hubs []*inventory.Inventory
	for _, g := range gates {
		hubs = append(hubs, inventory.New(g, set, inventory.Options{}))
	}
	every := 1
	if testing.Short() {
		every = 4 // no multiple of 3, so that second has each of its cases
	}
	for first, done := 0, false; !done; first += every {
		for second, step := stride(first); ; second += step {
			h.publish(30)
			h.must(h.commit(soundHub))
			h.learn()
			switch second % 3 {
			case 0: // an older root stays
				h.must(h.pin(h.hubs[soundHub].inv))
			case 1: // an older root is dropped
				h.must(h.unpinAll())
			case 2: // there is no root
				h.must(h.reset(soundHub))
			}
			h.publish(20)
			commit, w := h.runsCommit(h.newest(), 2), h.newWriter(hubs[0])
			operation := prepare(h, hubs[1])
			h.owner = -1
			ours := gates[0].start(first, func() error { return commit(w) })
			theirs := gates[1].start(second, operation)
			for _, err := range []error{ours.finish(), theirs.finish()} {
				if err != nil && !errors.Is(err, inventory.ErrFenced) && !errors.Is(err, feed.ErrGone) {
					t.Fatalf("paused at calls %d and %d: %v", first, second, err)
				}
			}
			clear(h.pinned) // a reset may have dropped them
			h.check()
			done = ours.passed
			if done || theirs.passed {
				break
			}
		}
	}
	h.settle()
}

// A gate is a store that pauses an operation before one of its calls.
type gate struct {
	hookedStore
	left   int // calls until the pause
	paused chan struct{}
	resume chan struct{}
}

func newGate(s inventory.Store) *gate {
	g := &gate{}
	g.hookedStore = hookedStore{s, func(do func() error) error {
		g.pass()
		return do()
	}, func(n int) int { return n }}
	return g
}

// An operation is paused at a gate, or has passed it.
type operation struct {
	gate   *gate
	passed bool // whether it has ended before the call
	result chan error
	err    error
}

// start starts an operation, and returns when it pauses before call n, counted from 0, or has ended.
func (g *gate) start(n int, do func() error) *operation {
	g.left, g.paused, g.resume = n, make(chan struct{}), make(chan struct{})
	o := &operation{gate: g, result: make(chan error, 1)}
	go func() { o.result <- do() }()
	select {
	case <-g.paused:
	case o.err = <-o.result:
		o.passed = true
	}
	return o
}

// finish resumes the operation, waits for its end, and returns its error.
func (o *operation) finish() error {
	if !o.passed {
		close(o.gate.resume)
		o.err = <-o.result
	}
	return o.err
}

func (g *gate) pass() {
	if g.left--; g.left == -1 {
		close(g.paused)
		<-g.resume
	}
}
