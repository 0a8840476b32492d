package callback

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/changelog"
)

// At once, by Copy.
const (
	copiedShards  = 8
	copiedRecords = 500
)

// Copy makes a registry hold what another one does: its records, and the
// requests that wait. What else was there is removed, so it may be done again.
// It returns how many subscriptions there are.
//
// Hubs may work on the one that is copied: then of a subscription is there what it
// was at one moment, and a request may be there that was carried out meanwhile,
// which does no harm. Nobody may work on the copy.
func Copy(ctx context.Context, from, to Registry) (subscriptions int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, n atomic.Int64
	var wg sync.WaitGroup
	for range copiedShards {
		wg.Go(func() {
			for shard := int(next.Add(1)) - 1; shard < Shards && ctx.Err() == nil; shard = int(next.Add(1)) - 1 {
				some, err := copyShard(ctx, from, to, shard)
				if err != nil {
					cancel(fmt.Errorf("copy the subscriptions of shard %d: %w", shard, err))
				}
				n.Add(int64(some))
			}
		})
	}
	wg.Wait()
	return int(n.Load()), context.Cause(ctx)
}

// copyShard reads the requests first: what they are carried out to meanwhile is
// in the records then.
func copyShard(ctx context.Context, from, to Registry, shard int) (n int, err error) {
	requests, err := allRequests(ctx, from, shard)
	if err != nil {
		return 0, err
	}
	records, err := allRecords(ctx, from, shard)
	if err != nil {
		return 0, err
	}
	old, err := allRecords(ctx, to, shard)
	if err != nil {
		return 0, err
	}
	waiting, err := allRequests(ctx, to, shard)
	if err != nil || len(records)+len(requests)+len(old)+len(waiting) == 0 {
		return 0, err
	}
	c, err := claimToCopy(ctx, to, shard)
	if err != nil {
		return 0, err
	}
	var empty Changes
	for i := range old {
		empty.Delete = append(empty.Delete, old[i].ID())
	}
	for i := range waiting {
		empty.Done = append(empty.Done, waiting[i].Number)
	}
	if err := to.Commit(ctx, c, empty); err != nil {
		return 0, err
	}
	for n < len(records) {
		some := records[n:min(n+copiedRecords, len(records))]
		if err := to.Commit(ctx, c, Changes{Put: some}); err != nil {
			return n, err
		}
		n += len(some)
	}
	for _, r := range requests {
		if err := to.Send(ctx, r); err != nil {
			return n, err
		}
	}
	return n, to.Release(ctx, []Claim{c})
}

// claimToCopy claims a shard, if need be when the claim of a copy that was killed
// has ended.
func claimToCopy(ctx context.Context, to Registry, shard int) (Claim, error) {
	for end := time.Now().Add(2 * to.ClaimFor()); ; {
		claims, err := to.Acquire(ctx, []int{shard})
		if err != nil {
			return Claim{}, err
		}
		if len(claims) == 1 {
			return claims[0], nil
		}
		if time.Now().After(end) || !pause(ctx, to.ClaimFor()/20) {
			return Claim{}, errors.Join(ctx.Err(), errors.New("something else works on it, perhaps another rshub copy"))
		}
	}
}

func allRecords(ctx context.Context, r Registry, shard int) (all []Record, err error) {
	for record, err := range r.Load(ctx, shard) {
		if err != nil {
			return nil, err
		}
		all = append(all, record)
	}
	return all, nil
}

func allRequests(ctx context.Context, r Registry, shard int) (all []Request, err error) {
	for after := uint64(0); ; after = all[len(all)-1].Number {
		some, err := r.Inbox(ctx, shard, after, inboxPage)
		if err != nil || len(some) == 0 {
			return all, err
		}
		for i := range some {
			if some[i].Mode == "" {
				return nil, fmt.Errorf("%w: request %d in the inbox of shard %d", changelog.ErrCorrupt, some[i].Number, shard)
			}
		}
		all = append(all, some...)
	}
}
