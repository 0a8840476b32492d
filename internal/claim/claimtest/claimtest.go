// Package claimtest is the contract of claim.Store as a test suite. The tests of each store run it.
//
// It does not test that a store rejects writes under a lost claim: the suites of the stores with
// such writes do.
package claimtest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/testutil"
)

// Shards is the number of shards that a store under test must have.
const Shards = 64

// A Backend is an implementation of claim.Store.
type Backend struct {
	// New returns a place for claims, which is empty. The backend removes it
	// when the test ends.
	New func(t *testing.T) Place

	// Shared says that several hubs may use one place at the same time. The
	// tests with several hubs need claims that last less than a second.
	Shared bool
}

// A Place is a location where claims are stored.
type Place struct {
	Open    func() claim.Store // opens the store for one more hub
	Restart func()             // ends the place like a crash, and starts it again; the stores must then be opened again. nil: a restart only opens the stores again
}

// Run runs the suite. Every subtest has its own Place.
func Run(t *testing.T, b Backend) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.shared && !b.Shared {
				t.Skip("needs a store that hubs share")
			}
			p := b.New(t)
			test.run(&hub{T: t, Store: p.Open(), ctx: t.Context(), place: p})
		})
	}
}

type test struct {
	name   string
	shared bool // it needs several hubs in one place
	run    func(h *hub)
}

// A hub is a store under test. Its methods fail the test instead of returning an error.
type hub struct {
	*testing.T
	claim.Store
	ctx   context.Context
	place Place
}

func (h *hub) ok(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// other returns another hub in the same place.
func (h *hub) other() *hub {
	o := *h
	o.Store = h.place.Open()
	return &o
}

// restart crashes the place. Afterwards h is another hub.
func (h *hub) restart() {
	if h.place.Restart != nil {
		h.place.Restart()
	}
	h.Store = h.place.Open()
}

// Acquire claims a shard. It waits while another hub has a claim. An incomplete claim fails the
// test.
func Acquire(t testing.TB, s claim.Store, shard int) (c claim.Claim) {
	t.Helper()
	testutil.Until(t, "the shard is free", func() bool {
		claims, err := s.Acquire(t.Context(), []int{shard})
		if err != nil {
			t.Fatal(err)
		}
		if len(claims) == 1 {
			c = claims[0]
		}
		return len(claims) == 1
	})
	if c.Shard != shard || c.Number == 0 || c.Holder != s.Name() {
		t.Fatalf("claim on shard %d = %v", shard, c)
	}
	return c
}

func (h *hub) claim(shard int) claim.Claim {
	h.Helper()
	return Acquire(h, h.Store, shard)
}

// held reports whether a claim can still be renewed.
func (h *hub) held(c claim.Claim) bool {
	h.Helper()
	held, err := h.Renew(h.ctx, []claim.Claim{c})
	h.ok(err)
	if len(held) == 0 {
		return false
	}
	if len(held) != 1 || held[0] != c {
		h.Fatalf("Renew(%v) = %v", c, held)
	}
	return true
}

// inTime skips the test if a claim that was made before the given time may have expired.
func (h *hub) inTime(before time.Time) {
	h.Helper()
	if time.Since(before) >= h.ClaimFor() {
		h.Skip("the machine is too slow for so short claims")
	}
}

// lost fails the test unless a claim is lost: it cannot be renewed, and releasing it has no effect.
func (h *hub) lost(c claim.Claim) {
	h.Helper()
	if h.held(c) {
		h.Errorf("Renew of lost claim %v succeeded", c)
	}
	h.ok(h.Release(h.ctx, []claim.Claim{c}))
}

var tests = []test{
	{"numbers", false, func(h *hub) {
		var all []int
		for s := range Shards {
			all = append(all, s)
		}
		claims, err := h.Acquire(h.ctx, all)
		h.ok(err)
		held, err := h.Renew(h.ctx, claims)
		h.ok(err)
		for s, c := range claims {
			if c.Shard != s || c.Number == 0 || held[s] != c {
				h.Errorf("shard %d: got claim %v, renewed %v", s, c, held[s])
			}
		}
		none, err := h.Acquire(h.ctx, nil)
		if err != nil || len(none) != 0 {
			h.Errorf("Acquire of no shards = %v, %v", none, err)
		}
		// A hub that claims a shard again has only the newer claim.
		again := h.claim(5)
		if again.Number <= claims[5].Number {
			h.Errorf("got %v after %v, want higher number", again, claims[5])
		}
		h.lost(claims[5])
		if !h.held(again) {
			h.Error("newer claim is not held")
		}
		for range 2 {
			h.ok(h.Release(h.ctx, []claim.Claim{again}))
		}
		h.lost(again)
		h.lost(claim.Claim{Shard: 5, Holder: h.Name()})
		h.lost(claim.Claim{Shard: 5, Number: again.Number + 1, Holder: h.Name()})
		third := h.claim(5)
		if third.Number <= again.Number {
			h.Errorf("got %v after %v, want higher number", third, again)
		}
		h.restart()
		if fourth := h.claim(5); fourth.Number <= third.Number {
			h.Errorf("got %v after %v, want higher number", fourth, third)
		}
		h.lost(third)
	}},
	{"alone", false, func(h *hub) {
		for range 2 {
			live, err := h.Join(h.ctx)
			if err != nil || !slices.Equal(live, []string{h.Name()}) {
				h.Errorf("Join() = %v, %v, want it to contain %s", live, err, h.Name())
			}
		}
		for range 2 {
			h.ok(h.Leave(h.ctx))
		}
		if h.ClaimFor() <= 0 {
			h.Errorf("ClaimFor() = %v", h.ClaimFor())
		}
	}},
	{"one at a time", true, func(h *hub) {
		b, before := h.other(), time.Now()
		c := h.claim(1)
		claims, err := b.Acquire(b.ctx, []int{1, 2})
		h.ok(err)
		h.inTime(before)
		if len(claims) != 1 || claims[0].Shard != 2 {
			h.Errorf("the other hub acquired %v", claims)
		}
		// The right number is useless in the hands of another hub.
		wrong := c
		wrong.Holder = b.Name()
		b.lost(wrong)
		if !h.held(c) {
			h.Error("claim is lost, want held")
		}
		h.ok(h.Release(h.ctx, []claim.Claim{c}))
		h.lost(c)
		claims, err = b.Acquire(b.ctx, []int{1})
		h.ok(err)
		if len(claims) != 1 || claims[0].Number <= c.Number {
			h.Errorf("after %v: Acquire() = %v", c, claims)
		}
		h.lost(c)
		if !b.held(claims[0]) {
			h.Error("release of an old claim ended the new one")
		}
	}},
	{"they end", true, func(h *hub) {
		b := h.other()
		kept, before := h.claim(1), time.Now()
		lost := h.claim(2)
		taken := claim.Claim{}
		for renewed := before; taken.Number == 0; {
			if time.Since(renewed) > h.ClaimFor()/4 {
				renewed = time.Now()
				if !h.held(kept) {
					h.Fatal("renewed claim is lost")
				}
			}
			claims, err := b.Acquire(b.ctx, []int{1, 2})
			h.ok(err)
			for _, c := range claims {
				if c.Shard == 1 {
					h.inTime(renewed)
					h.Fatal("renewed claim was acquired by the other hub")
				}
				taken = c
			}
		}
		if d := time.Since(before); d < h.ClaimFor() {
			h.Errorf("claim was acquired after %v", d)
		}
		h.lost(lost)
		if taken.Number <= lost.Number {
			h.Errorf("got %v after %v, want higher number", taken, lost)
		}
		if !b.held(taken) || !h.held(kept) {
			h.Error("held claim is lost")
		}
	}},
	// A claim whose time is over can still be renewed while no other hub has taken
	// the shard.
	{"they are renewed late", true, func(h *hub) {
		b := h.other()
		claims := []claim.Claim{h.claim(1)}
		marker, err := b.Acquire(b.ctx, []int{2})
		h.ok(err)
		testutil.Until(h, "a claim that came later has ended", func() bool {
			claims, err := h.Acquire(h.ctx, []int{2})
			h.ok(err)
			return len(claims) == 1 && claims[0].Number > marker[0].Number
		})
		before := time.Now()
		held, err := h.Renew(h.ctx, claims)
		if err != nil || len(held) != 1 {
			h.Fatalf("Renew() = %v, %v", held, err)
		}
		got, err := b.Acquire(b.ctx, []int{1})
		h.ok(err)
		if h.inTime(before); len(got) != 0 {
			h.Errorf("the other hub acquired %v", got)
		}
	}},
	{"rivals", true, func(h *hub) {
		const hubs, shards = 4, 32
		var all []int
		for s := range shards {
			all = append(all, s)
		}
		var mu sync.Mutex
		owner := make(map[int]int)
		taken := 0
		before := time.Now()
		var running sync.WaitGroup
		for i := range hubs {
			b := h.other()
			running.Go(func() {
				claims, err := b.Acquire(b.ctx, all)
				if err != nil {
					h.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, c := range claims {
					taken++
					owner[c.Shard] = i
				}
			})
		}
		running.Wait()
		if h.inTime(before); taken != shards || len(owner) != shards {
			h.Errorf("%d of %d shards claimed, %d claims", len(owner), shards, taken)
		}
	}},
	{"live", true, func(h *hub) {
		b, c := h.other(), h.other()
		join := func(h *hub) []string {
			h.Helper()
			live, err := h.Join(h.ctx)
			h.ok(err)
			if !slices.IsSorted(live) || !slices.Contains(live, h.Name()) {
				h.Fatalf("Join() = %v, want it sorted and with %s", live, h.Name())
			}
			return live
		}
		before := time.Now()
		join(h)
		join(b)
		if n := len(join(c)); n != 3 && time.Since(before) < h.ClaimFor()/2 {
			h.Errorf("got %d live hubs", n)
		}
		h.ok(c.Leave(h.ctx))
		if slices.Contains(join(b), c.Name()) {
			h.Error("Join() contains a hub that left")
		}
		testutil.Until(h, "who does not join dies", func() bool {
			live := join(b)
			return !slices.Contains(live, h.Name())
		})
		testutil.Until(h, "who came back is not alone", func() bool {
			join(b) // it may have been away for too long, on a busy machine
			return slices.Contains(join(h), b.Name())
		})
	}},
}
