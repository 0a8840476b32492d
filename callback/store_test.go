package callback_test

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/subscription/registrytest"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/claim"
)

// A faultyStore is a registry, and the store of its claims, with faults. The zero value has none.
type faultyStore struct {
	registrytest.Disk
	claimFor time.Duration // how long claims last; zero means as long as those of Disk

	down      atomic.Bool                           // nothing succeeds
	joinHangs atomic.Bool                           // Join gets no response
	lost      atomic.Pointer[func(shard int) bool]  // shards that another hub has, or nil
	commit    atomic.Pointer[commitFunc]            // replaces Commit, or nil
	load      atomic.Pointer[func(int) recordsFunc] // replaces Load, or nil
}

// A commitFunc commits changes to a shard; commit is what does that without a fault.
type commitFunc func(ctx context.Context, shard int, changes subscription.Changes, commit func() error) error

// A recordsFunc yields the records of a shard.
type recordsFunc = iter.Seq2[subscription.Record, error]

// noCommits is a store that cannot be written.
func noCommits(context.Context, int, subscription.Changes, func() error) error {
	return feed.ErrUnavailable
}

// noRecords is a store that is full: it takes progress, but no records.
func noRecords(_ context.Context, _ int, changes subscription.Changes, commit func() error) error {
	if len(changes.Put) > 0 {
		return feed.ErrFull
	}
	return commit()
}

// damaged is a store that cannot be read.
func damaged(int) recordsFunc {
	return func(yield func(subscription.Record, error) bool) {
		yield(subscription.Record{}, fmt.Errorf("%w: a bad block", changelog.ErrCorrupt))
	}
}

// onCommit replaces Commit, or restores it if f is nil.
func (s *faultyStore) onCommit(f commitFunc) {
	if f == nil {
		s.commit.Store(nil)
		return
	}
	s.commit.Store(&f)
}

// onLoad replaces Load, or restores it if f is nil.
func (s *faultyStore) onLoad(f func(shard int) recordsFunc) {
	if f == nil {
		s.load.Store(nil)
		return
	}
	s.load.Store(&f)
}

// err returns the error of a store that is down.
func (s *faultyStore) err() error {
	if s.down.Load() {
		return fmt.Errorf("%w: no answer", feed.ErrUnavailable)
	}
	return nil
}

func (s *faultyStore) isLost(shard int) bool {
	lost := s.lost.Load()
	return lost != nil && (*lost)(shard)
}

func (s *faultyStore) ClaimFor() time.Duration { return cmp.Or(s.claimFor, s.Disk.ClaimFor()) }

func (s *faultyStore) Send(ctx context.Context, r subscription.Request) error {
	if err := s.err(); err != nil {
		return err
	}
	return s.Disk.Send(ctx, r)
}

func (s *faultyStore) Join(ctx context.Context) ([]string, error) {
	if s.joinHangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.Disk.Join(ctx)
}

func (s *faultyStore) Acquire(ctx context.Context, shards []int) ([]claim.Claim, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.Disk.Acquire(ctx, slices.DeleteFunc(slices.Clone(shards), s.isLost))
}

func (s *faultyStore) Renew(ctx context.Context, claims []claim.Claim) ([]claim.Claim, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.Disk.Renew(ctx, slices.DeleteFunc(slices.Clone(claims), func(c claim.Claim) bool { return s.isLost(c.Shard) }))
}

func (s *faultyStore) Release(ctx context.Context, claims []claim.Claim) error {
	if err := s.err(); err != nil {
		return err
	}
	return s.Disk.Release(ctx, claims)
}

func (s *faultyStore) Leave(ctx context.Context) error {
	if err := s.err(); err != nil {
		return err
	}
	return s.Disk.Leave(ctx)
}

func (s *faultyStore) Load(ctx context.Context, shard int) recordsFunc {
	if load := s.load.Load(); load != nil {
		return (*load)(shard)
	}
	if err := s.err(); err != nil {
		return func(yield func(subscription.Record, error) bool) { yield(subscription.Record{}, err) }
	}
	return s.Disk.Load(ctx, shard)
}

func (s *faultyStore) Newest(ctx context.Context, shards []int) ([]uint64, error) {
	if err := s.err(); err != nil {
		return make([]uint64, len(shards)), err
	}
	return s.Disk.Newest(ctx, shards)
}

func (s *faultyStore) Inbox(ctx context.Context, shard int, after uint64, limit int) ([]subscription.Request, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.Disk.Inbox(ctx, shard, after, limit)
}

func (s *faultyStore) Commit(ctx context.Context, c claim.Claim, changes subscription.Changes) error {
	if err := s.err(); err != nil {
		return err
	}
	commit := func() error { return s.Disk.Commit(ctx, c, changes) }
	if f := s.commit.Load(); f != nil {
		return (*f)(ctx, c.Shard, changes, commit)
	}
	return commit()
}
