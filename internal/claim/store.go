// Package claim divides work among hubs. Work is divided into shards: a hub claims a shard before
// it works on it, renews the claim, and hands shards over when hubs join or leave.
//
// A Keeper does that for one hub. A Store holds the claims of all hubs, in Redis or, for a single
// hub, on disk. Each claim has a number that only increases, by which a store rejects writes under
// an older claim (fencing).
//
// The package does not know the work itself: packages callback and internal/inventory/writer do.
package claim

import (
	"context"
	"errors"
	"time"
)

// A Store holds the claims of all hubs that share one change memory, on the shards of one kind of
// work. It is safe for concurrent use. Methods block until the store has responded or ctx is done.
// A Store does not retry failed calls. After feed.ErrUnknown the call may have taken effect. Every
// call may be repeated.
type Store interface {
	// Name returns the name of this hub. It is unique among all present and past hubs of the store.
	Name() string

	// ClaimFor returns the lifetime of a claim after a call of Acquire or Renew.
	ClaimFor() time.Duration

	// Join announces that this hub is alive, and returns the sorted names of all live hubs,
	// including its own. A hub that has not joined for some seconds is no longer alive, so Join
	// must be called at least once per second. After ErrClock this hub is not alive.
	Join(ctx context.Context) (live []string, err error)

	// Acquire claims the shards that no other hub has claimed, and returns the new claims.
	// A shard that this hub already has gets a new number, which ends the old claim. If Acquire
	// returns an error, it may have claimed more shards than it returns.
	Acquire(ctx context.Context, shards []int) ([]Claim, error)

	// Renew extends claims, and returns those that this hub still has. If the error is nil, the
	// other claims are lost. Otherwise their state is unknown; they end when they expire.
	Renew(ctx context.Context, claims []Claim) ([]Claim, error)

	// Release releases claims. It does not change a shard if the claim on it is lost.
	Release(ctx context.Context, claims []Claim) error

	// Leave announces that this hub is no longer alive, until it joins again.
	Leave(ctx context.Context) error
}

// Defaults of a Store.
const (
	claimFor = 5 * time.Second // lifetime of a claim; short, so that a dead hub is soon replaced
	liveFor  = 3 * time.Second // time for which a hub counts as alive after it joined
)

// A Claim is the exclusive right of a hub to work on a shard. Number increases with each claim on
// the shard, even if a failover of Redis lost the newest claims. Every write under a claim names
// the claim, and the store rejects the write if another hub has claimed the shard since then
// (fencing).
type Claim struct {
	Shard  int
	Number uint64
	Holder string // name of the hub
}

var (
	// ErrLost means that another hub has claimed the shard, or that the claim was released. Nothing
	// was written.
	ErrLost = errors.New("claim lost")

	// ErrClock means that the clocks of this hub and of the store differ too much. Such a hub would
	// end leases that have not expired.
	ErrClock = errors.New("clocks differ too much")
)
