package registrytest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/testutil"
)

// request returns request n about a record, with a value in each field.
func request(r *subscription.Record, n int) subscription.Request {
	return subscription.Request{
		Mode: subscription.Subscribe, Set: r.Set, Form: r.Form, Callback: r.Callback, Terms: r.Terms, By: r.By, Key: r.Key, Anyone: r.Anyone, Token: r.Token, VerifyToken: "verify-me", Until: r.Until, Lease: time.Duration(n),
		Start: feed.Cursor{Position: uint64(n), Micros: 7}, Move: true, Diverged: true, At: at.Add(time.Duration(n) * time.Second),
	}
}

// full is how many requests an inbox holds.
const full = 10_000

var inboxTests = []test{
	{"newest of a call that fails", false, func(h *hub) {
		ctx, cancel := context.WithCancel(h.ctx)
		cancel()
		numbers, err := h.Newest(ctx, []int{3, 1, 2})
		if err == nil || len(numbers) != 3 {
			h.Errorf("of three shards the newest are %v (%v)", numbers, err)
		}
	}},
	{"order", false, func(h *hub) {
		r := inShard("set", 9, 2)
		c := h.claim(9)
		if newest := h.newest(c.Shard); newest != 0 {
			h.Errorf("the newest request is %d", newest)
		}
		var want []subscription.Request
		for i := range 25 {
			q := request(&r[i%2], i)
			h.ok(h.Send(h.ctx, q))
			want = append(want, q)
		}
		h.ok(h.Send(h.ctx, request(&inShard("set", 10, 1)[0], 0)))
		check := func() {
			h.Helper()
			for _, limit := range []int{1, 7, 100} {
				got := h.inbox(9, limit)
				if len(got) != len(want) {
					h.Fatalf("%d requests, want %d", len(got), len(want))
				}
				for i := range got {
					want[i].Number = got[i].Number
				}
				h.same(got, want)
			}
			newest := h.newest(c.Shard)
			if len(want) > 0 && newest != want[len(want)-1].Number || len(want) == 0 && newest != 0 {
				h.Errorf("of %d requests the newest is %d", len(want), newest)
			}
		}
		check()
		h.restart()
		c = h.claim(9)
		check()
		done := []uint64{want[0].Number, want[3].Number, want[24].Number}
		for range 2 {
			h.ok(h.Commit(h.ctx, c, subscription.Changes{Done: append(done, 1, 1<<62)}))
		}
		last := want[24].Number
		want = slices.Delete(slices.Delete(slices.Delete(want, 24, 25), 3, 4), 0, 1)
		check()
		h.ok(h.Commit(h.ctx, c, subscription.Changes{Done: numbers(want)}))
		want = nil
		check()
		h.restart()
		c = h.claim(9)
		check()
		h.ok(h.Send(h.ctx, request(&r[0], 1)))
		if got := h.inbox(9, 10); len(got) != 1 || got[0].Number <= last {
			h.Errorf("behind %d comes %v", last, got)
		}
		if got := h.inbox(10, 10); len(got) != 1 {
			h.Errorf("another shard's inbox has %v", got)
		}
	}},

	// Many senders send at the same time, and meanwhile the inbox is read. The
	// reader sees each request once, and the requests of one sender in its
	// order. Then the inbox is full.
	{"full", false, func(h *hub) {
		if testing.Short() {
			h.Skip("10,000 requests")
		}
		const senders = 100
		r := inShard("set", 9, 1)[0]
		var sending sync.WaitGroup
		var failed atomic.Bool
		for s := range senders {
			sending.Go(func() {
				for i := range full / senders {
					if err := h.Send(h.ctx, request(&r, s*full/senders+i)); err != nil {
						h.Errorf("request %d of %d: %v", i, s, err)
						failed.Store(true)
						return
					}
				}
			})
		}
		seen := make(map[time.Duration]bool)
		var next [senders]time.Duration
		var after uint64
		testutil.Until(h, "all requests are there", func() bool {
			some, err := h.Inbox(h.ctx, 9, after, 100)
			h.ok(err)
			for _, q := range some {
				sender := q.Lease / (full / senders)
				if q.Number <= after || seen[q.Lease] || q.Lease%(full/senders) != next[sender] {
					h.Fatalf("request %d of sender %d has number %d behind %d, seen %t", q.Lease%(full/senders), sender, q.Number, after, seen[q.Lease])
				}
				seen[q.Lease], after = true, q.Number
				next[sender]++
			}
			return len(seen) == full || failed.Load()
		})
		sending.Wait()
		h.wants(subscription.ErrBusy, h.Send(h.ctx, request(&r, 1)))
		h.ok(h.Send(h.ctx, request(&inShard("set", 8, 1)[0], 1)))
		remove := request(&r, 1)
		remove.Mode = subscription.Remove // by an operator
		h.ok(h.Send(h.ctx, remove))
		h.restart()
		h.wants(subscription.ErrBusy, h.Send(h.ctx, request(&r, 1)))
		all := h.inbox(9, 1000)
		if len(all) != full+1 {
			h.Errorf("%d requests, want %d", len(all), full+1)
		}
		h.ok(h.Commit(h.ctx, h.claim(9), subscription.Changes{Done: numbers(all[1:])}))
		h.ok(h.Send(h.ctx, request(&r, 1)))
		if n := len(h.inbox(9, 1000)); n != 2 {
			h.Errorf("%d requests, want 2", n)
		}
	}},

	// A request leaves the inbox in the same step in which its outcome is kept.
	{"atomic", false, func(h *hub) {
		const rounds = 200
		r := inShard("set", 9, 1)[0]
		c := h.claim(9)
		var running sync.WaitGroup
		defer running.Wait()
		running.Go(func() {
			for i := range rounds {
				err := h.Send(h.ctx, request(&r, i))
				var some []subscription.Request
				if err == nil {
					some, err = h.Inbox(h.ctx, 9, 0, 1)
				}
				if err == nil && len(some) != 1 {
					err = fmt.Errorf("%d requests", len(some))
				}
				if err == nil {
					put := r
					put.Token = fmt.Sprint(i)
					put.Cursor.Position = uint64(i)
					err = h.Commit(h.ctx, c, subscription.Changes{Put: []subscription.Record{put}, Done: numbers(some)})
				}
				if err == nil && i%100 == 50 {
					_, err = h.Renew(h.ctx, []claim.Claim{c})
				}
				if err != nil {
					h.Error(err)
					return
				}
			}
		})
		testutil.Until(h, "all is done", func() bool {
			some, err := h.Inbox(h.ctx, 9, 0, 1)
			h.ok(err)
			found, err := h.Find(h.ctx, r.ID())
			if err != nil && len(some) == 0 {
				return false // the first request is not there yet
			}
			if err == nil && found.Token != fmt.Sprint(found.Cursor.Position) {
				h.Fatalf("subscription %s has the progress of %d", found.Token, found.Cursor.Position)
			}
			if err == nil && len(some) == 1 && found.Cursor.Position+1 < some[0].Start.Position {
				h.Fatalf("request %d is next, and the record is of request %d", some[0].Start.Position, found.Cursor.Position)
			}
			return err == nil && found.Cursor.Position == rounds-1 || h.Failed()
		})
	}},
}
