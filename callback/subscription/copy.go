package subscription

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/claim"
)

// How much Copy handles at once.
const (
	copiedRecords  = 500
	copiedRequests = 100
)

// Copy makes the registry to have what from has: the records, and the requests that
// wait. It removes what else is in to, so a copy that was interrupted can be made again. It
// returns how many subscriptions there are. It blocks until all is copied, ctx ends, or
// something fails. No hub may work on from or to. claims are the claims on the shards of to.
func Copy(ctx context.Context, from, to Registry, claims claim.Store) (subscriptions int, err error) {
	for shard := range Shards {
		n, err := copyShard(ctx, from, to, claims, shard)
		if err != nil {
			return subscriptions, fmt.Errorf("copy subscriptions of shard %d: %w", shard, err)
		}
		subscriptions += n
	}
	return subscriptions, nil
}

func copyShard(ctx context.Context, from, to Registry, claims claim.Store, shard int) (n int, err error) {
	records, requests, err := contents(ctx, from, shard)
	if err != nil {
		return 0, err
	}
	old, waiting, err := contents(ctx, to, shard)
	if err != nil || len(records)+len(requests)+len(old)+len(waiting) == 0 {
		return 0, err
	}
	c, err := claimToCopy(ctx, claims, shard)
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
	return n, claims.Release(ctx, []claim.Claim{c})
}

// claimToCopy claims a shard. If a copy that was killed still has a claim, it
// waits until that claim has ended.
func claimToCopy(ctx context.Context, to claim.Store, shard int) (claim.Claim, error) {
	for end := time.Now().Add(2 * to.ClaimFor()); ; {
		claims, err := to.Acquire(ctx, []int{shard})
		if err != nil {
			return claim.Claim{}, err
		}
		if len(claims) == 1 {
			return claims[0], nil
		}
		if time.Now().After(end) || !backoff.Wait(ctx, to.ClaimFor()/20) {
			return claim.Claim{}, errors.Join(ctx.Err(), errors.New("claim is held by another process, perhaps another rshub copy"))
		}
	}
}

// contents returns all records of a shard, and all requests in its inbox. It fails if one
// of them cannot be read.
func contents(ctx context.Context, r Registry, shard int) (records []Record, requests []Request, err error) {
	for record, err := range r.Load(ctx, shard) {
		if err != nil {
			return nil, nil, err
		}
		records = append(records, record)
	}
	for after := uint64(0); ; after = requests[len(requests)-1].Number {
		some, err := r.Inbox(ctx, shard, after, copiedRequests)
		if err != nil || len(some) == 0 {
			return records, requests, err
		}
		for i := range some {
			if some[i].Mode == "" {
				return nil, nil, fmt.Errorf("%w: request %d in the inbox of shard %d", changelog.ErrCorrupt, some[i].Number, shard)
			}
		}
		requests = append(requests, some...)
	}
}
