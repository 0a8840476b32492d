// Package callback is the delivery engine: it delivers changes to destinations that are called, and
// makes, renews and ends their subscriptions as requests ask. It knows no HTTP: package websub is
// its outlet, and the server that sends it requests.
//
// A subscription is a cursor in a set's log and a wake-up. It has no queue: what follows the cursor
// is what is to be delivered, a retry leaves the cursor where it is, and recovery after a crash is
// reading from the cursor again. Subscriptions are divided into shards, and the hub that holds the
// claim on a shard works on it.
//
// The engine uses a registry (package subscription) for subscriptions and the inboxes of requests,
// claims (package internal/claim), a follower for what is new in a set, the log for where it starts
// and ends, and an outlet (package outlet).
//
// The path of a delivery: Engine.publish wakes the subscriptions of a set (topic.go), and each
// waits for a slot (slots.go). Then delivery.do cuts what comes next (cut.go) and passes it to the
// outlet (deliver.go). delivery.settle advances the cursor, and shard.save commits it a moment
// later (shard.go). The package carries no compatibility promise.
package callback

import (
	"context"
	"sync"
	"time"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/claim"
)

// An Engine delivers to the subscriptions of those shards that this hub has a
// claim on, and carries out the requests in their inboxes.
//
// It needs one goroutine for each request in flight, which lingers for a second, and
// one for each set that has subscriptions. A subscription that waits needs none.
//
// One mutex guards nearly all that changes: see state.
type Engine struct {
	// Set by New, never changed.
	registry  subscription.Registry
	log       Log
	follower  Follower
	opts      Options
	callbacks outlet.Outlet // of all formats that have none of their own
	metrics   *metrics
	claims    *claim.Keeper

	// How goroutines wake and end each other. Set by New, never changed.
	turns    chan *waiter    // takes a turn to a goroutine that lingers; without one the sender starts a new goroutine
	timers   backoff.Wakeup  // wakes runTimers: the first timer of the schedule may have changed
	saves    backoff.Wakeup  // wakes saveLoop: there is something to save
	ctx      context.Context // all goroutines end with it
	cancel   context.CancelFunc
	working  context.Context // the claims are given up when it ends
	stop     context.CancelFunc
	released chan struct{}  // closed when the claims are given up
	wg       sync.WaitGroup // all goroutines but those that Run starts at once

	mu    sync.Mutex
	state state // guarded by mu: see lock
}

// New returns an Engine, which does nothing until Run. It registers its metrics,
// so each Engine needs a prometheus.Registerer of its own.
//
// The registry has the subscriptions, and the claims say on which of its shards this
// hub works. A subscription gets what the follower has, by the outlet of its format, or by
// callbacks.
func New(registry subscription.Registry, claims claim.Store, log Log, follower Follower, callbacks outlet.Outlet, o Options) *Engine {
	o.defaults()
	e := &Engine{
		registry: registry, log: log, follower: follower, callbacks: callbacks, opts: o,
		metrics: newMetrics(o.Metrics),
		turns:   make(chan *waiter), timers: backoff.NewWakeup(), saves: backoff.NewWakeup(), released: make(chan struct{}),
	}
	e.state = state{
		engine: e, shards: map[int]*shard{}, topics: map[string]*topic{},
		slots: newSlots(o.InFlight, hostSlots), counts: counts{}, missing: map[string]int{},
	}
	e.claims = claim.NewKeeper(claims, worker{e}, subscription.Shards, o.Clock, o.Logger.With("work", "callbacks"))
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.working, e.stop = context.WithCancel(e.ctx)
	if o.Metrics != nil {
		o.Metrics.MustRegister(gauges{e})
	}
	return e
}

// Send adds a request to its shard's inbox. The request is durable when nil is
// returned, and whichever hub has the shard carries it out soon. Errors are those of
// Registry.Send.
func (e *Engine) Send(ctx context.Context, r subscription.Request) error {
	if err := e.registry.Send(ctx, r); err != nil {
		return err
	}
	st := e.lock()
	defer st.unlock()
	if s := st.shards[r.ID().Shard()]; s != nil {
		s.sent++ // the request need not wait until the inboxes are looked at
		s.newest = max(s.newest, s.after+1)
		st.fetch(s)
	}
	return nil
}

// leaveTime bounds how long the claims may take to be given up. It is long, because
// other things end the wait: Shutdown has the caller's deadline, and claims that cannot
// be renewed end by themselves.
const leaveTime = time.Hour

// Run gains claims and works on their shards, until ctx is done or Shutdown is called.
// It owns every goroutine of the Engine and waits for them. When ctx ends without
// Shutdown, the requests under way are cancelled, and another hub sends them again. Run
// may be called once.
func (e *Engine) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { e.runTimers(e.ctx) })
	wg.Go(func() { e.saveLoop(e.ctx) })
	wg.Go(func() { every(e.ctx, inboxEvery, e.lookIntoInboxes) })
	wg.Go(func() { every(e.ctx, rightsEvery, e.lookAtRights) })
	wg.Go(func() {
		defer close(e.released)
		e.claims.Run(e.working, leaveTime)
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

// Shutdown hands the work over to other hubs. It starts no more requests and waits for
// those that are under way; when ctx is done it cancels them. It saves their results, and
// gives the claims up. When Shutdown returns, that is done, and Run returns soon. Run
// must have been called.
func (e *Engine) Shutdown(ctx context.Context) {
	st := e.lock()
	st.draining = true
	st.unlock()
	e.stop()
	select {
	case <-e.released:
		return
	case <-ctx.Done():
	}
	st = e.lock()
	for _, s := range st.shards {
		s.cancel()
	}
	st.unlock()
	<-e.released
}

// every calls do again and again, until ctx is done.
func every(ctx context.Context, d time.Duration, do func(context.Context)) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			do(ctx)
		case <-ctx.Done():
			return
		}
	}
}
