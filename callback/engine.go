// Package callback is the delivery engine: it delivers changes to destinations
// that are called, and makes, renews and ends their subscriptions as the requests
// about them say.
//
// A subscription is a cursor in a set's log and a wake-up. There is no queue per
// subscription: what follows the cursor is what is to be delivered, a retry leaves
// the cursor where it is, and recovery after a crash is reading the cursor again.
// Subscriptions are divided into shards, and one hub at a time works on a shard: the
// hub that has the claim on it.
//
// The engine knows
//   - a registry (package subscription), which keeps the subscriptions and the
//     inboxes of requests about them,
//   - claims (package claim), which say what shards this hub works on,
//   - a follower, which yields what is new in a set,
//   - the log, which still has what is older,
//   - an outlet and a verifier (package outlet), which call the callbacks.
//
// It knows no HTTP: package websub is its outlet, its verifier, and the server that
// sends it requests.
package callback

import (
	"context"
	"sync"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/outbound/meter"
)

// An Engine delivers to the subscriptions of those shards that this hub has a
// claim on, and carries out the requests in their inboxes.
//
// It needs one goroutine for each request in flight, which lingers for a second, and
// one for each set that has subscriptions. A subscription that waits needs none.
//
// One mutex, mu, guards nearly all state, also that of shards, subs, errands, topics
// and hosts. A function whose name ends in Locked needs mu held. The one exception,
// shard.commitLocked, says which mutex it needs. Nobody holds mu
// while a request, a Commit or a read of the log blocks: each of them copies what it
// needs before, and brings back its result after.
type Engine struct {
	// Set by New, never changed.
	registry subscription.Registry
	log      Log
	follower Follower
	opts     Options
	outlet   outlet.Outlet
	verifier outlet.Verifier
	metrics  *metrics
	meter    *meter.Meter
	claims   *claim.Keeper
	cutter   *cutter

	// How goroutines wake and end each other. Set by New, never changed.
	hands    chan job        // takes a job to a goroutine that lingers; without one the sender starts a new goroutine
	ringer   nudge           // wakes ringLoop: the first task of the schedule may have changed
	saver    nudge           // wakes saveLoop: there is something to save
	ctx      context.Context // all goroutines end with it
	cancel   context.CancelFunc
	working  context.Context // the claims are given up when it ends
	stop     context.CancelFunc
	released chan struct{}  // closed when the claims are given up
	wg       sync.WaitGroup // all goroutines but those that Run starts at once

	mu sync.Mutex

	// Guarded by mu.
	shards   map[int]*shard
	topics   map[string]*topic
	filters  filters
	fresh    map[string]int // errands that are to make a subscription, by set
	makers   tally          // subscriptions, by who made them
	slots    *slots
	schedule schedule
	failing  int            // subs whose last attempt failed
	stale    int            // subs whose secrets are to be encrypted anew
	locked   map[string]int // subs whose secrets need a key that is missing, by its ID
	draining bool           // no task gets a slot any more
}

// New returns an Engine, which does nothing until Run. It registers its metrics,
// so each Engine needs a prometheus.Registerer of its own.
//
// The registry has the subscriptions, and the claims say on which of its shards this
// hub works. A subscription gets what the follower yields; one that is behind gets
// what the log has. Deliveries leave by the outlet.
func New(registry subscription.Registry, claims claim.Store, log Log, follower Follower, outlet outlet.Outlet, verifier outlet.Verifier, o Options) *Engine {
	o.defaults()
	e := &Engine{
		registry: registry, log: log, follower: follower, outlet: outlet, verifier: verifier, opts: o,
		metrics: newMetrics(o.Metrics), meter: o.Meter, cutter: newCutter(log, o.MaxChanges, o.MaxBytes),
		hands: make(chan job), ringer: make(nudge, 1), saver: make(nudge, 1),
		shards: map[int]*shard{}, topics: map[string]*topic{}, filters: filters{}, fresh: map[string]int{}, locked: map[string]int{},
		slots: newSlots(o.InFlight, o.PerHost),
	}
	e.claims = claim.NewKeeper(claims, worker{e}, subscription.Shards, o.Clock, o.Logger.With("work", "callbacks"))
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.working, e.stop = context.WithCancel(e.ctx)
	e.released = make(chan struct{})
	if o.Metrics != nil {
		o.Metrics.MustRegister(newGauges(e))
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
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.shards[r.ID().Shard()]; s != nil {
		s.sent++ // the request need not wait until the inboxes are looked at
		s.newest = max(s.newest, s.after+1)
		s.fetchLocked()
	}
	return nil
}
