// Package claim divides work among hubs. Work is divided into shards: a hub claims a shard before
// it works on it, renews the claim, and hands shards over when hubs come or go.
//
// A Keeper does that for one hub. A Store holds the claims of all hubs, in Redis or, for a single
// hub, on disk. Each claim has a number that only increases, by which a store refuses writes under
// an older claim (fencing).
//
// The package does not know what the work is: packages callback and internal/inventory/live do.
package claim

import (
	"context"
	"errors"
	"time"
)

// A Store keeps the claims of all hubs that share one change memory, on the
// shards of one kind of work. Methods may be called concurrently. They block
// until the store has answered or ctx is done. A Store does not repeat a call
// that failed. After feed.ErrUnknown the call may have been carried out. Every
// call may be made again.
type Store interface {
	// Name returns this hub's name. No other hub of the store has it or ever
	// had it.
	Name() string

	// ClaimFor returns how long a claim lasts after Acquire or Renew was
	// called.
	ClaimFor() time.Duration

	// Join says that this hub is alive, and returns the names of all hubs that
	// are alive, sorted, with its own. A hub that has not joined for some
	// seconds is not alive any more, so Join is to be called at least once a
	// second. After ErrClock this hub is not alive.
	Join(ctx context.Context) (live []string, err error)

	// Acquire claims those of the shards on which no other hub has a claim, and
	// returns the new claims. A shard that this hub already has gets a new
	// number, which ends the old claim. When Acquire returns an error, it may
	// have claimed more shards than it returns.
	Acquire(ctx context.Context, shards []int) ([]Claim, error)

	// Renew prolongs claims, and returns those that this hub still has. Without
	// an error, the other claims are lost. With an error, the state of the
	// other claims is unknown; they end when their time is over.
	Renew(ctx context.Context, claims []Claim) ([]Claim, error)

	// Release gives claims up. It leaves a shard alone when the claim on it is
	// lost.
	Release(ctx context.Context, claims []Claim) error

	// Leave says that this hub is not alive any more, until it joins again.
	Leave(ctx context.Context) error
}

// The defaults of a store.
const (
	claimFor = 5 * time.Second // how long a claim lasts; it is short so that a dead hub is soon replaced
	liveFor  = 3 * time.Second // how long a hub counts as alive after it joined
)

// A Claim is one hub's right to work on a shard. Number rises with each claim
// on the shard, even when a failover of Redis lost the newest claims. Every
// write under a claim names the claim, and the store refuses the write when
// another hub has claimed the shard since (fencing).
type Claim struct {
	Shard  int
	Number uint64
	Holder string // name of the hub
}

var (
	// ErrLost means that another hub has claimed the shard, or that the claim
	// was released. Nothing was written.
	ErrLost = errors.New("the claim is lost")

	// ErrClock means that this hub's clock differs too much from the store's.
	// Such a hub would drop leases that have not expired.
	ErrClock = errors.New("the clock differs too much")
)
