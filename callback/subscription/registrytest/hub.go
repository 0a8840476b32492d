package registrytest

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/claim/claimtest"
)

// A hub is a registry under test. Its steps fail the test instead of returning
// an error.
type hub struct {
	*testing.T
	Hub
	ctx   context.Context
	store Store
}

func (h *hub) ok(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// wants fails the test unless err is want.
func (h *hub) wants(want, err error) {
	h.Helper()
	if !errors.Is(err, want) {
		h.Fatalf("error is %v, want %v", err, want)
	}
}

// other returns another hub with the same store.
func (h *hub) other() *hub {
	o := *h
	o.Hub = h.store.Open()
	return &o
}

// restart crashes the store. From then on, h is another hub.
func (h *hub) restart() {
	if h.store.Restart != nil {
		h.store.Restart()
	}
	h.Hub = h.store.Open()
}

func (h *hub) claim(shard int) claim.Claim {
	h.Helper()
	return claimtest.Acquire(h, h.Hub, shard)
}

// newest returns the number of the newest request in a shard's inbox.
func (h *hub) newest(shard int) uint64 {
	h.Helper()
	numbers, err := h.Newest(h.ctx, []int{shard})
	h.ok(err)
	if len(numbers) != 1 {
		h.Fatalf("of one shard the newest are %v", numbers)
	}
	return numbers[0]
}

// put commits records to their shards.
func (h *hub) put(records ...subscription.Record) {
	h.Helper()
	shards := make(map[int][]subscription.Record)
	for _, r := range records {
		s := r.ID().Shard()
		shards[s] = append(shards[s], r)
	}
	claims, err := h.Acquire(h.ctx, slices.Collect(maps.Keys(shards)))
	h.ok(err)
	if len(claims) != len(shards) {
		h.Fatalf("%d of %d shards are claimed", len(claims), len(shards))
	}
	for _, c := range claims {
		h.ok(h.Commit(h.ctx, c, subscription.Changes{Put: shards[c.Shard]}))
	}
	h.ok(h.Release(h.ctx, claims))
}

// load returns the records of a shard.
func (h *hub) load(shard int) map[subscription.ID]subscription.Record {
	h.Helper()
	all := make(map[subscription.ID]subscription.Record)
	for r, err := range h.Load(h.ctx, shard) {
		h.ok(err)
		if _, twice := all[r.ID()]; twice {
			h.Errorf("subscription %v is there twice", r.ID())
		}
		all[r.ID()] = r
	}
	return all
}

// has fails the test unless a shard has exactly the records.
func (h *hub) has(shard int, want ...subscription.Record) {
	h.Helper()
	all := h.load(shard)
	if len(all) != len(want) {
		h.Errorf("shard %d has %d records, want %d", shard, len(all), len(want))
	}
	for _, w := range want {
		h.same(all[w.ID()], w)
		found, err := h.Find(h.ctx, w.ID())
		h.ok(err)
		h.same(found, w)
	}
}

func (h *hub) same(got, want any) {
	h.Helper()
	if !reflect.DeepEqual(got, want) {
		h.Errorf("is\n%+v, want\n%+v", got, want)
	}
}

// inbox returns all requests in a shard's inbox. It reads limit of them at a
// time.
func (h *hub) inbox(shard, limit int) (all []subscription.Request) {
	h.Helper()
	for after := uint64(0); ; {
		some, err := h.Inbox(h.ctx, shard, after, limit)
		h.ok(err)
		if len(some) > limit {
			h.Fatalf("%d requests, the limit is %d", len(some), limit)
		}
		for _, r := range some {
			if r.Number <= after {
				h.Fatalf("request %d comes behind %d", r.Number, after)
			}
			after = r.Number
		}
		if len(some) == 0 {
			return all
		}
		all = append(all, some...)
	}
}

func numbers(requests []subscription.Request) (all []uint64) {
	for _, r := range requests {
		all = append(all, r.Number)
	}
	return all
}
