package registrytest

import (
	"context"
	"maps"
	"slices"

	"github.com/rshub/rshub/callback/subscription"
)

var listTests = []test{
	{"pages", false, func(h *hub) {
		want := make(map[string][]subscription.Record)
		for set, n := range map[string]int{"a": 700, "b": 40, "c*[?\\": 1} {
			for i := range n {
				want[set] = append(want[set], record(set, i))
			}
			slices.SortFunc(want[set], func(a, b subscription.Record) int { return compare(a.ID(), b.ID()) })
		}
		h.put(slices.Concat(slices.Collect(maps.Values(want))...)...)
		for set, want := range want {
			for _, limit := range []int{1, 7, 40, 350, 1000} {
				if limit == 1 && len(want) > 50 {
					continue // it would take long
				}
				var got []subscription.Record
				for after := (subscription.ID{}); ; {
					page, more, err := h.List(h.ctx, set, after, limit)
					h.ok(err)
					got = append(got, page...)
					if more != (len(got) < len(want)) || len(page) > limit || more && len(page) != limit {
						h.Fatalf("set %q by %d: %d records, more is %t behind %d of %d", set, limit, len(page), more, len(got), len(want))
					}
					if !more {
						break
					}
					after = page[len(page)-1].ID()
				}
				h.same(got, want)
			}
		}
		page, more, err := h.List(h.ctx, "none", subscription.ID{}, 10)
		if err != nil || more || len(page) > 0 {
			h.Errorf("of no set: %d, %t, %v", len(page), more, err)
		}
	}},
	{"while records come and go", false, func(h *hub) {
		var stay, move []subscription.Record
		for i := range 300 {
			if r := record("set", i); i%2 == 0 {
				stay = append(stay, r)
			} else {
				move = append(move, r)
			}
		}
		slices.SortFunc(stay, func(a, b subscription.Record) int { return compare(a.ID(), b.ID()) })
		h.put(stay...)
		ctx, stop := context.WithCancel(h.ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				for _, r := range move {
					claims, err := h.Acquire(h.ctx, []int{r.ID().Shard()})
					if err == nil && len(claims) == 1 {
						err = h.Commit(h.ctx, claims[0], subscription.Changes{Put: []subscription.Record{r}})
					}
					if err == nil && r.Failed > 0 && len(claims) == 1 {
						err = h.Commit(h.ctx, claims[0], subscription.Changes{Delete: []subscription.ID{r.ID()}})
					}
					if err != nil || len(claims) != 1 {
						h.Errorf("%d claims, %v", len(claims), err)
						return
					}
					if ctx.Err() != nil {
						return
					}
				}
			}
		}()
		defer func() { stop(); <-ended }()
		for round := range 3 {
			seen := make(map[subscription.ID]bool)
			for after := (subscription.ID{}); ; {
				page, more, err := h.List(h.ctx, "set", after, 20)
				h.ok(err)
				for i := range page {
					if id := page[i].ID(); compare(id, after) <= 0 {
						h.Fatalf("%v comes behind %v", id, after)
					} else {
						after, seen[id] = id, true
					}
				}
				if !more {
					break
				}
			}
			for i := range stay {
				if !seen[stay[i].ID()] {
					h.Fatalf("in round %d subscription %v is skipped", round, stay[i].ID())
				}
			}
		}
	}},
}
