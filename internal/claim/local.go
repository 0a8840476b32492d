package claim

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Keep is a durable map from keys to bytes. Methods may be called
// concurrently.
type Keep interface {
	// Get returns the value of a key, or nil when there is none.
	Get(ctx context.Context, key string) ([]byte, error)

	// Apply sets keys to values in one atomic step, which is durable when Apply
	// returns nil. grows says that the map gets larger; a full Keep may refuse
	// that.
	Apply(ctx context.Context, writes map[string][]byte, grows bool) error
}

// A Local is the Store of a hub that shares its work with no other hub. It gets
// every shard that it asks for, and its claims last until they are released.
// Only one thing is durable, under the key "started": the lowest claim number
// of the newest process. It makes numbers rise over a restart.
type Local struct {
	shards []localShard
}

var _ Store = (*Local)(nil)

// A localShard is the claim on one shard.
type localShard struct {
	claim atomic.Uint64 // the claim's number, 0 when the shard is free; written while change is held, read at any time

	// change is held while the claim changes. It is also held while a write
	// under the claim is on its way to the disk, so that the claim cannot end
	// before the write.
	change sync.Mutex
	last   uint64 // the newest claim's number
}

// OpenLocal opens the Store in a Keep, for the shards 0 to shards-1. Nothing
// else may write the key "started" there.
func OpenLocal(ctx context.Context, keep Keep, shards int) (*Local, error) {
	started, err := keep.Get(ctx, "started")
	now := uint64(time.Now().UnixMicro())
	if len(started) == 8 {
		// Higher than all numbers of the last process, which cannot claim a shard a million
		// times, but hardly ahead of the clock: after a restore, the numbers of the copy must
		// be higher than those that were used since.
		now = max(now, binary.BigEndian.Uint64(started)+1<<20)
	}
	if err == nil {
		err = keep.Apply(ctx, map[string][]byte{"started": binary.BigEndian.AppendUint64(nil, now)}, false)
	}
	if err != nil {
		return nil, fmt.Errorf("open the claims: %w", err)
	}
	l := &Local{shards: make([]localShard, shards)}
	for i := range l.shards {
		l.shards[i].last = now
	}
	return l, nil
}

// Name returns the name of the only hub.
func (l *Local) Name() string { return "hub" }

// ClaimFor returns within which time a claim has to be renewed. The claims of a
// Local do not end after this time.
func (l *Local) ClaimFor() time.Duration { return claimFor }

// Join returns the only hub.
func (l *Local) Join(ctx context.Context) ([]string, error) { return []string{l.Name()}, ctx.Err() }

// Leave does nothing.
func (l *Local) Leave(ctx context.Context) error { return ctx.Err() }

// Acquire claims shards. It gets all of them.
func (l *Local) Acquire(ctx context.Context, shards []int) ([]Claim, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("claim shards: %w", err)
	}
	claims := make([]Claim, 0, len(shards))
	for _, shard := range shards {
		s := &l.shards[shard]
		s.change.Lock()
		s.last = max(s.last+1, uint64(time.Now().UnixMicro()))
		s.claim.Store(s.last)
		claims = append(claims, Claim{shard, s.last, l.Name()})
		s.change.Unlock()
	}
	return claims, nil
}

// Renew returns the claims that were not released.
func (l *Local) Renew(ctx context.Context, claims []Claim) ([]Claim, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("renew claims: %w", err)
	}
	held := make([]Claim, 0, len(claims))
	for _, c := range claims {
		if l.shards[c.Shard].has(c) {
			held = append(held, c)
		}
	}
	return held, nil
}

// has reports whether a claim holds. It does not lock change, because a slow
// disk must not delay a renewal.
func (s *localShard) has(c Claim) bool { return s.claim.Load() == c.Number && c.Number != 0 }

// Release gives claims up.
func (l *Local) Release(ctx context.Context, claims []Claim) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("release claims: %w", err)
	}
	for _, c := range claims {
		s := &l.shards[c.Shard]
		s.change.Lock()
		s.claim.CompareAndSwap(c.Number, 0)
		s.change.Unlock()
	}
	return nil
}

// Under calls do while a claim holds, and returns the error of do. If the claim
// does not hold, Under returns ErrLost and does not call do. While do runs, the
// claim cannot change, and nothing else is done under it.
func (l *Local) Under(c Claim, do func() error) error {
	s := &l.shards[c.Shard]
	s.change.Lock()
	defer s.change.Unlock()
	if !s.has(c) {
		return ErrLost
	}
	return do()
}
