// Package callback delivers changes to WebSub subscribers, and makes, renews and ends their
// subscriptions as they and operators request. It knows no HTTP: package callback/websub makes the
// calls, and serves the requests.
//
// A subscription is a position in the log of a set. It has no queue: a delivery reads what follows the
// position, a retry reads it again, and so does the next hub after a crash. Subscriptions are divided
// into shards, and the hub that holds the claim on a shard works on it.
//
// One goroutine at a time owns a subscription (a sub) and executes everything that happens to it. A
// sub that waits is idle: it has a timer and is in a pool of its topic. A publish, a timer or a request
// puts it in the ready queue, which hands it to a worker when the limits on calls allow that. The
// worker executes commands (package subscription calls them requests), then delivers, until nothing is
// left or its slice of time is over. Its changes go to the writer of the shard.
//
// Locks are acquired in this order: topic.mu, shard.mu, then one of Engine.mu, readyQueue.mu, counts.mu
// and writer.mu. None is held during a call, a commit or a read of the log.
//
// The package carries no compatibility promise.
package callback

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/claim"
)

// An Engine delivers to the subscriptions in the shards that this hub has claimed, and executes the
// requests in their inboxes.
type Engine struct {
	// Immutable.
	registry  subscription.Registry
	log       Log
	follower  Follower
	opts      Options
	callbacks outlet.Outlet // of formats that have no outlet
	metrics   *metrics
	claims    *claim.Keeper
	queue     *readyQueue
	counts    *counts
	permits   chan *permit // hands a permit to a worker without one
	ctx       context.Context
	cancel    context.CancelFunc
	working   context.Context // canceled when the claims should be released
	stop      context.CancelFunc
	released  chan struct{}  // closed when the claims are released
	wg        sync.WaitGroup // goroutines other than those that Run starts

	mu       sync.Mutex
	shards   map[int]*shard
	topics   map[string]*topic
	lastLate time.Time // when warnLate last logged
}

// New returns an Engine, which does nothing until Run is called. Each Engine needs a
// prometheus.Registerer of its own in its options.
//
// The registry has the subscriptions, and the claims decide in which of its shards this hub works. A
// subscription receives what the follower reads, by the outlet of its format, or else by callbacks.
func New(registry subscription.Registry, claims claim.Store, log Log, follower Follower, callbacks outlet.Outlet, o Options) *Engine {
	o.setDefaults()
	e := &Engine{
		registry: registry, log: log, follower: follower, callbacks: callbacks, opts: o, metrics: newMetrics(o.Metrics),
		queue: newReadyQueue(o.InFlight), permits: make(chan *permit), released: make(chan struct{}),
		shards: map[int]*shard{}, topics: map[string]*topic{},
	}
	e.counts = &counts{numbers: map[countKey]int{}, missing: map[string]int{}, logMissing: func(key string) {
		o.Logger.Error("callbacks: subscriptions wait for the missing key of their secrets", "key", key)
	}}
	e.claims = claim.NewKeeper(claims, claimWorker{e}, subscription.Shards, o.Clock, o.Logger.With("work", "callbacks"))
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.working, e.stop = context.WithCancel(e.ctx)
	if o.Metrics != nil {
		o.Metrics.MustRegister(gauges{e})
	}
	return e
}

// releaseTime bounds the time to release all claims. Other events end the wait earlier: the context of
// Shutdown, and the end of claims that cannot be renewed.
const releaseTime = time.Hour

// Run claims shards and works on them until ctx is canceled or Shutdown is called. It returns after all
// goroutines of the Engine have stopped. If ctx is canceled, calls in flight are canceled, and another
// hub repeats them. Run must not be called again.
func (e *Engine) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { every(e.ctx, inboxEvery, e.checkInboxes) })
	wg.Go(func() { every(e.ctx, rightsEvery, e.checkRights) })
	wg.Go(func() { every(e.ctx, time.Second, e.saveSkipped) })
	wg.Go(func() {
		defer close(e.released)
		e.claims.Run(e.working, releaseTime)
	})
	select {
	case <-ctx.Done():
		e.Shutdown(ctx)
	case <-e.released:
	}
	e.cancel()
	wg.Wait()
	e.wg.Wait()
}

// Shutdown hands the work over to other hubs: it starts no more calls, waits for those in flight,
// stores their results and releases the claims. Calls that are in flight when ctx is canceled are
// canceled. Run returns soon after Shutdown. Run must have been called before.
func (e *Engine) Shutdown(ctx context.Context) {
	e.queue.stop()
	e.stop()
	select {
	case <-e.released:
		return
	case <-ctx.Done():
	}
	for _, sh := range e.allShards() {
		sh.end()
	}
	<-e.released
}

// every calls f at an interval until ctx is canceled.
func every(ctx context.Context, interval time.Duration, f func(context.Context)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// shard returns a shard that this hub has, or nil.
func (e *Engine) shard(number int) *shard {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.shards[number]
}

// allShards returns the shards that this hub has.
func (e *Engine) allShards() []*shard {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.shards))
}

// warnLate logs that claims ended before they were renewed, at most once a minute: usually all claims
// end together.
func (e *Engine) warnLate() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := time.Now(); now.Sub(e.lastLate) >= time.Minute {
		e.lastLate = now
		e.opts.Logger.Warn("callbacks: claims not renewed in time; work on their shards stops")
	}
}

// dispatch hands subs of the ready queue to workers as long as permits are available.
func (e *Engine) dispatch() {
	for p := e.queue.pop(); p != nil; p = e.queue.pop() {
		select {
		case e.permits <- p:
		default:
			e.wg.Go(func() { e.work(p) })
		}
	}
}

// lingerTime is how long a worker waits for another permit. The stack of a new goroutine would have to
// grow for each call.
const lingerTime = time.Second

// work works on subs until there is no permit for lingerTime.
func (e *Engine) work(p *permit) {
	linger := time.NewTimer(lingerTime)
	defer linger.Stop()
	for {
		for p != nil {
			p.sub.work()
			e.queue.release(p)
			p = e.queue.pop()
			e.dispatch()
		}
		linger.Reset(lingerTime)
		select {
		case p = <-e.permits:
		case <-linger.C:
			return
		case <-e.ctx.Done():
			return
		}
	}
}
