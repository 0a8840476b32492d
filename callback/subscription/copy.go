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

// Most records and requests that Copy handles at once.
const (
	copyRecords  = 500
	copyRequests = 100
)

// Copy replaces the records and requests of to by copies of the ones in from, and returns the number of
// subscriptions. An interrupted copy can be started again. It blocks until all is copied, ctx is canceled
// or an operation fails. No hub may use either registry. claims are the claims on the shards of to.
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
	records, requests, err := readShard(ctx, from, shard)
	if err != nil {
		return 0, err
	}
	oldRecords, oldRequests, err := readShard(ctx, to, shard)
	if err != nil || len(records)+len(requests)+len(oldRecords)+len(oldRequests) == 0 {
		return 0, err
	}
	c, err := acquireShard(ctx, claims, shard)
	if err != nil {
		return 0, err
	}
	var removal Changes
	for i := range oldRecords {
		removal.Delete = append(removal.Delete, oldRecords[i].ID())
	}
	for i := range oldRequests {
		removal.Done = append(removal.Done, oldRequests[i].Number)
	}
	if err := to.Commit(ctx, c, removal); err != nil {
		return 0, err
	}
	for n < len(records) {
		some := records[n:min(n+copyRecords, len(records))]
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

// acquireShard claims a shard. If a copy that was killed still has a claim, it waits until that expires.
func acquireShard(ctx context.Context, claims claim.Store, shard int) (claim.Claim, error) {
	for end := time.Now().Add(2 * claims.ClaimFor()); ; {
		acquired, err := claims.Acquire(ctx, []int{shard})
		if err != nil {
			return claim.Claim{}, err
		}
		if len(acquired) == 1 {
			return acquired[0], nil
		}
		if time.Now().After(end) || !backoff.Wait(ctx, claims.ClaimFor()/20) {
			return claim.Claim{}, errors.Join(ctx.Err(), errors.New("claim is held by another process, perhaps another rshub copy"))
		}
	}
}

// readShard returns all records and requests of a shard. It fails if one cannot be decoded.
func readShard(ctx context.Context, r Registry, shard int) (records []Record, requests []Request, err error) {
	for record, err := range r.Load(ctx, shard) {
		if err != nil {
			return nil, nil, err
		}
		records = append(records, record)
	}
	for after := uint64(0); ; after = requests[len(requests)-1].Number {
		some, err := r.Inbox(ctx, shard, after, copyRequests)
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
