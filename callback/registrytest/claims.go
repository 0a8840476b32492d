package registrytest

import (
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/callback"
)

// inTime skips the test if what was claimed before may have ended by now.
func (h *hub) inTime(before time.Time) {
	h.Helper()
	if time.Since(before) >= h.ClaimFor() {
		h.Skip("the machine is too slow for so short claims")
	}
}

// fenced fails the test unless a claim is good for nothing.
func (h *hub) fenced(c callback.Claim) {
	h.Helper()
	r := inShard("fenced", c.Shard, 1)[0]
	h.wants(callback.ErrClaimLost, h.Commit(h.ctx, c, callback.Changes{Put: []callback.Record{r}, Done: []uint64{1}}))
	_, err := h.Find(h.ctx, r.ID())
	h.wants(callback.ErrNoSubscription, err)
	if _, held := h.held(c); held {
		h.Errorf("claim %v is renewed", c)
	}
	h.ok(h.Release(h.ctx, []callback.Claim{c}))
}

var claimTests = []test{
	{"numbers", false, func(h *hub) {
		var all []int
		for s := range callback.Shards {
			all = append(all, s)
		}
		claims, err := h.Acquire(h.ctx, all)
		h.ok(err)
		held, err := h.Renew(h.ctx, claims)
		h.ok(err)
		for s, c := range claims {
			if c.Shard != s || c.Number == 0 || held[s] != (callback.Renewed{Claim: c}) {
				h.Errorf("claim %d is %v, renewed %v", s, c, held[s])
			}
		}
		none, err := h.Acquire(h.ctx, nil)
		if err != nil || len(none) != 0 {
			h.Errorf("of no shards: %v, %v", none, err)
		}
		// Whoever asks again has one claim, the newer.
		again := h.claim(5)
		if again.Number <= claims[5].Number {
			h.Errorf("%v does not rise above %v", again, claims[5])
		}
		h.fenced(claims[5])
		if _, held := h.held(again); !held {
			h.Error("the newer claim is not held")
		}
		for range 2 {
			h.ok(h.Release(h.ctx, []callback.Claim{again}))
		}
		h.fenced(again)
		h.fenced(callback.Claim{Shard: 5})
		h.fenced(callback.Claim{Shard: 5, Number: again.Number + 1})
		third := h.claim(5)
		if third.Number <= again.Number {
			h.Errorf("%v does not rise above %v", third, again)
		}
		h.ok(h.Commit(h.ctx, third, callback.Changes{}))
		h.restart()
		h.fenced(third)
		if fourth := h.claim(5); fourth.Number <= third.Number {
			h.Errorf("%v does not rise above %v", fourth, third)
		}
	}},
	{"alone", false, func(h *hub) {
		for range 2 {
			live, err := h.Join(h.ctx)
			if err != nil || !slices.Equal(live, []string{h.Name()}) {
				h.Errorf("live are %v, %v; this is %s", live, err, h.Name())
			}
		}
		for range 2 {
			h.ok(h.Leave(h.ctx))
		}
		if h.ClaimFor() <= 0 {
			h.Errorf("claims last %v", h.ClaimFor())
		}
	}},
	{"one at a time", true, func(h *hub) {
		b, before := h.other(), time.Now()
		c := h.claim(1)
		claims, err := b.Acquire(b.ctx, []int{1, 2})
		h.ok(err)
		h.inTime(before)
		if len(claims) != 1 || claims[0].Shard != 2 {
			h.Errorf("the other hub claims %v", claims)
		}
		// With the right number the wrong hub is refused too.
		b.fenced(c)
		h.ok(h.Commit(h.ctx, c, callback.Changes{}))
		h.ok(h.Release(h.ctx, []callback.Claim{c}))
		h.fenced(c)
		claims, err = b.Acquire(b.ctx, []int{1})
		h.ok(err)
		if len(claims) != 1 || claims[0].Number <= c.Number {
			h.Errorf("behind %v comes %v", c, claims)
		}
		h.fenced(c)
		if _, held := b.held(claims[0]); !held {
			h.Error("the release of an old claim ended the new one")
		}
	}},
	{"they end", true, func(h *hub) {
		b := h.other()
		kept, before := h.claim(1), time.Now()
		lost := h.claim(2)
		r := inShard("set", 1, 1)
		taken := callback.Claim{}
		for renewed := before; taken.Number == 0; {
			if time.Since(renewed) > h.ClaimFor()/4 {
				renewed = time.Now()
				if _, held := h.held(kept); !held {
					h.Fatal("a claim that was renewed is lost")
				}
			}
			claims, err := b.Acquire(b.ctx, []int{1, 2})
			h.ok(err)
			for _, c := range claims {
				if c.Shard == 1 {
					h.inTime(renewed)
					h.Fatal("a claim that was renewed is taken")
				}
				taken = c
			}
		}
		if d := time.Since(before); d < h.ClaimFor() {
			h.Errorf("the claim was taken after %v", d)
		}
		h.fenced(lost)
		if taken.Number <= lost.Number {
			h.Errorf("%v does not rise above %v", taken, lost)
		}
		h.ok(b.Commit(b.ctx, taken, callback.Changes{}))
		h.ok(h.Commit(h.ctx, kept, callback.Changes{Put: r}))
		b.has(1, r...)
	}},
	// A claim that ended is still good for who had it as long as nobody took it.
	{"they are renewed late", true, func(h *hub) {
		b := h.other()
		claims := []callback.Claim{h.claim(1)}
		marker, err := b.Acquire(b.ctx, []int{2})
		h.ok(err)
		h.until("a claim that came later has ended", func() bool {
			claims, err := h.Acquire(h.ctx, []int{2})
			h.ok(err)
			return len(claims) == 1 && claims[0].Number > marker[0].Number
		})
		before := time.Now()
		held, err := h.Renew(h.ctx, claims)
		if err != nil || len(held) != 1 {
			h.Fatalf("renewed is %v, %v", held, err)
		}
		got, err := b.Acquire(b.ctx, []int{1})
		h.ok(err)
		if h.inTime(before); len(got) != 0 {
			h.Errorf("the other hub got %v", got)
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
			h.Errorf("%d of %d shards are claimed %d times", len(owner), shards, taken)
		}
	}},
	{"live", true, func(h *hub) {
		b, c := h.other(), h.other()
		join := func(h *hub) []string {
			h.Helper()
			live, err := h.Join(h.ctx)
			h.ok(err)
			if !slices.IsSorted(live) || !slices.Contains(live, h.Name()) {
				h.Fatalf("live are %v without %s, or not in order", live, h.Name())
			}
			return live
		}
		before := time.Now()
		join(h)
		join(b)
		if n := len(join(c)); n != 3 && time.Since(before) < h.ClaimFor()/2 {
			h.Errorf("%d hubs live", n)
		}
		h.ok(c.Leave(h.ctx))
		if slices.Contains(join(b), c.Name()) {
			h.Error("who left is there")
		}
		h.until("who does not join dies", func() bool {
			live := join(b)
			return !slices.Contains(live, h.Name())
		})
		if !slices.Contains(join(h), b.Name()) {
			h.Error("who joined all the time died, or who came back is alone")
		}
	}},
}
