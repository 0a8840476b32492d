package claim

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Map is a durable map from keys to bytes. It is safe for concurrent use.
type Map interface {
	// Get returns the value of a key, or nil if there is none.
	Get(ctx context.Context, key string) ([]byte, error)

	// Apply sets keys to values in one atomic step, which is durable when Apply returns nil. grows
	// means that the map becomes larger; a full Map may refuse that.
	Apply(ctx context.Context, writes map[string][]byte, grows bool) error
}

// A Local is the Store of a hub that does not share its work. It acquires every shard that is
// requested, and its claims last until they are released. The only durable value, under the key
// "started", is the lowest claim number of the newest process. It makes numbers increase across
// restarts.
type Local struct {
	shards []localShard
}

var _ Store = (*Local)(nil)

// A localShard is the claim on one shard.
type localShard struct {
	claim atomic.Uint64 // number of the claim, zero if the shard is free; writes need mu

	// mu is held while the claim changes. It is also held while data is written under the claim, so
	// that the claim cannot end before the write.
	mu   sync.Mutex
	last uint64 // number of the newest claim
}

// OpenLocal opens a Store for the shards 0 to shards-1 in a Map. No other code may write the key
// "started" of the Map.
func OpenLocal(ctx context.Context, keep Map, shards int) (*Local, error) {
	started, err := keep.Get(ctx, "started")
	now := uint64(time.Now().UnixMicro())
	if len(started) == 8 {
		// Exceed all numbers of the last process, which cannot claim a shard a million times,
		// but hardly run ahead of the clock: after a restore, the numbers of the copy must be
		// higher than those that were used since.
		now = max(now, binary.BigEndian.Uint64(started)+1<<20)
	}
	if err == nil {
		err = keep.Apply(ctx, map[string][]byte{"started": binary.BigEndian.AppendUint64(nil, now)}, false)
	}
	if err != nil {
		return nil, fmt.Errorf("open claims: %w", err)
	}
	l := &Local{shards: make([]localShard, shards)}
	for i := range l.shards {
		l.shards[i].last = now
	}
	return l, nil
}

// Name returns the name of the only hub.
func (l *Local) Name() string { return "hub" }

// ClaimFor returns the time within which a claim has to be renewed. The claims of a Local do not
// expire.
func (l *Local) ClaimFor() time.Duration { return claimFor }

// Join returns the only hub.
func (l *Local) Join(ctx context.Context) ([]string, error) { return []string{l.Name()}, ctx.Err() }

// Leave does nothing.
func (l *Local) Leave(ctx context.Context) error { return ctx.Err() }

// Acquire claims all of the shards.
func (l *Local) Acquire(ctx context.Context, shards []int) ([]Claim, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("claim shards: %w", err)
	}
	claims := make([]Claim, 0, len(shards))
	for _, shard := range shards {
		s := &l.shards[shard]
		s.mu.Lock()
		s.last = max(s.last+1, uint64(time.Now().UnixMicro()))
		s.claim.Store(s.last)
		claims = append(claims, Claim{shard, s.last, l.Name()})
		s.mu.Unlock()
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
		if l.shards[c.Shard].holds(c) {
			held = append(held, c)
		}
	}
	return held, nil
}

// holds reports whether a claim is valid. It does not lock mu, because a slow disk must not delay a
// renewal.
func (s *localShard) holds(c Claim) bool { return s.claim.Load() == c.Number && c.Number != 0 }

// Release releases claims.
func (l *Local) Release(ctx context.Context, claims []Claim) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("release claims: %w", err)
	}
	for _, c := range claims {
		s := &l.shards[c.Shard]
		s.mu.Lock()
		s.claim.CompareAndSwap(c.Number, 0)
		s.mu.Unlock()
	}
	return nil
}

// Under calls do while a claim is held, and returns its error. If the claim is not held, Under
// returns ErrLost without calling do. While do runs, the claim cannot change, and no other call
// runs under it.
func (l *Local) Under(c Claim, do func() error) error {
	s := &l.shards[c.Shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.holds(c) {
		return ErrLost
	}
	return do()
}
