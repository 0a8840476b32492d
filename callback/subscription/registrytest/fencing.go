package registrytest

import (
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/claim"
)

// fenced fails the test unless a registry refuses to write under a claim.
func (h *hub) fenced(c claim.Claim) {
	h.Helper()
	r := inShard("fenced", c.Shard, 1)[0]
	h.wants(claim.ErrLost, h.Commit(h.ctx, c, subscription.Changes{Put: []subscription.Record{r}, Done: []uint64{1}}))
	_, err := h.Find(h.ctx, r.ID())
	h.wants(subscription.ErrNoSubscription, err)
}

var fencingTests = []test{
	{"old claims", false, func(h *hub) {
		first := h.claim(5)
		again := h.claim(5) // only the newer claim counts
		h.fenced(first)
		h.ok(h.Commit(h.ctx, again, subscription.Changes{}))
		h.ok(h.Release(h.ctx, []claim.Claim{again}))
		h.fenced(again)
		h.fenced(claim.Claim{Shard: 5, Holder: h.Name()})
		h.fenced(claim.Claim{Shard: 5, Number: again.Number + 1, Holder: h.Name()})
		third := h.claim(5)
		h.ok(h.Commit(h.ctx, third, subscription.Changes{}))
		h.restart()
		h.claim(5)
		h.fenced(third)
	}},
	{"of another hub", true, func(h *hub) {
		b, c := h.other(), h.claim(1)
		wrong := c
		wrong.Holder = b.Name()
		b.fenced(wrong) // although the number is right
		h.ok(h.Commit(h.ctx, c, subscription.Changes{}))
		h.ok(h.Release(h.ctx, []claim.Claim{c}))
		h.fenced(c)
		b.claim(1)
		h.fenced(c)
	}},
	{"that ended", true, func(h *hub) {
		b := h.other()
		kept, before := h.claim(1), time.Now()
		lost := h.claim(2)
		for taken := false; !taken; {
			if _, err := h.Renew(h.ctx, []claim.Claim{kept}); err != nil {
				h.Fatal(err)
			}
			claims, err := b.Acquire(b.ctx, []int{2})
			h.ok(err)
			taken = len(claims) == 1
		}
		if d := time.Since(before); d < h.ClaimFor() {
			h.Errorf("the claim was taken after %v", d)
		}
		h.fenced(lost)
		r := inShard("set", 1, 1)
		h.ok(h.Commit(h.ctx, kept, subscription.Changes{Put: r}))
		b.has(1, r...)
	}},
}
