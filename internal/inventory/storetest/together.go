package storetest

import (
	"errors"
	"sync"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// together lets two hubs commit at once. At most one of them succeeds.
func (h *history) together() error {
	base := h.newest()
	commits := []func(*inventory.Inventory) error{h.commitRuns(base, h.random.IntN(3)), h.commitRuns(base, h.random.IntN(3))}
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i := range commits {
		wg.Go(func() { errs[i] = commits[i](h.hubs[i]) })
	}
	wg.Wait()
	if errs[0] == nil && errs[1] == nil {
		h.Fatal("two commits on top of the same root both succeeded")
	}
	for i, err := range errs {
		if err != nil && !errors.Is(err, inventory.ErrRaced) && (i == 1 || !planned(err)) {
			h.Fatalf("one of two commits: %v", err)
		}
	}
	return nil
}

// meanwhile is what another hub does to an inventory while one commits.
var meanwhile = []struct {
	name string
	do   func(h *history, hub *inventory.Inventory) func() error
}{
	{"another", func(h *history, hub *inventory.Inventory) func() error {
		changes := h.changes(h.newest())
		return func() error {
			_, err := hub.Commit(h.ctx, changes)
			return err
		}
	}},
	{"another, of runs", func(h *history, hub *inventory.Inventory) func() error {
		commit := h.commitRuns(h.newest(), 2)
		return func() error { return commit(hub) }
	}},
	{"a pin", func(h *history, hub *inventory.Inventory) func() error { return func() error { return h.pin(hub) } }},
	{"a shrinking", func(h *history, hub *inventory.Inventory) func() error {
		return func() error { return errors.Join(hub.Shrink(h.ctx), hub.Sweep(h.ctx)) }
	}},
	{"a reset", func(h *history, hub *inventory.Inventory) func() error {
		return func() error { return hub.Reset(h.ctx, "a test") }
	}},
}

// interleave stops a commit of runs before each of its calls in turn, or before one in four
// if the test is short. Then another hub works until one of its own calls. Then the commit
// runs to its end, and after it the other hub.
func interleave(t *testing.T, h *history, other func(h *history, hub *inventory.Inventory) func() error) {
	gates := []*gate{newGate(h.Store), newGate(h.Store)}
	var hubs []*inventory.Inventory
	for _, g := range gates {
		hubs = append(hubs, inventory.New(g, set, inventory.Options{}))
	}
	stride := 1
	if testing.Short() {
		stride = 4 // no multiple of 3, so second takes each of its cases
	}
	for first, over := 0, false; !over; first += stride {
		for second, step := part(first); ; second += step {
			h.publish(30)
			h.must(h.commit(h.hubs[1]))
			h.learn()
			switch second % 3 {
			case 0: // an older root lives
				h.must(h.pin(h.hubs[1]))
			case 1: // one has to die
				h.must(h.unpinAll())
			case 2: // there is none
				h.must(h.reset(h.hubs[1]))
			}
			h.publish(20)
			ours, do := h.commitRuns(h.newest(), 2), other(h, hubs[1])
			commit := gates[0].run(first, func() error { return ours(hubs[0]) })
			act := gates[1].run(second, do)
			errs := []error{commit.finish(), act.finish()}
			for _, err := range errs {
				if err != nil && !errors.Is(err, inventory.ErrRaced) && !errors.Is(err, feed.ErrGone) {
					t.Fatalf("stopped at calls %d and %d: %v", first, second, err)
				}
			}
			clear(h.pinned) // a reset may have dropped them
			h.check()
			over = commit.passed
			if over || act.passed {
				break
			}
		}
	}
	h.settle()
}

// A gate is a store that stops a run before one of its calls.
type gate struct {
	hooked
	left    int
	stopped chan struct{}
	resume  chan struct{}
}

func newGate(s inventory.Store) *gate {
	g := &gate{}
	g.hooked = hooked{s, func(do func() error) error {
		g.pass()
		return do()
	}, func(n int) int { return n }}
	return g
}

// A gated is a run that is stopped at a gate, or has passed it.
type gated struct {
	gate   *gate
	passed bool // it was over before it came to the call
	result chan error
	err    error
}

// run starts do, and stops it before its call number n+1, or at its end.
func (g *gate) run(n int, do func() error) *gated {
	g.left, g.stopped, g.resume = n, make(chan struct{}), make(chan struct{})
	r := &gated{gate: g, result: make(chan error, 1)}
	go func() { r.result <- do() }()
	select {
	case <-g.stopped:
	case r.err = <-r.result:
		r.passed = true
	}
	return r
}

// finish lets a run go on, and returns its error.
func (r *gated) finish() error {
	if !r.passed {
		close(r.gate.resume)
		r.err = <-r.result
	}
	return r.err
}

func (g *gate) pass() {
	if g.left--; g.left == -1 {
		close(g.stopped)
		<-g.resume
	}
}
