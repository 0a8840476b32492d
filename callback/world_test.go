package callback_test

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/subscription/registrytest"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/outbound/meter"
	"github.com/rshub/rshub/internal/testutil/memorytest"
	"github.com/rshub/rshub/internal/testutil/metricstest"
	"github.com/rshub/rshub/internal/testutil/pipetest"
)

const base = "https://hub.example.org"

func TestMain(m *testing.M) { memorytest.Main(m) }

// Times that callers can rely on.
const (
	saveEvery    = 100 * time.Millisecond // progress is stored within this time of a delivery
	firstRetry   = time.Second            // wait after the first failure
	lastRetry    = 5 * time.Minute        // longest wait that the engine chooses
	longestWait  = time.Hour              // longest wait that a callback may ask for
	handOverTime = 800 * time.Millisecond // time that calls in flight have when a shard is handed over
	skipEvery    = time.Minute            // progress over what a filter skipped is stored within this time
	rightsEvery  = time.Second            // interval of the checks of rights
	unsureFor    = 2 * time.Minute        // time that an unknown token has to become known
	unsureRetry  = 5 * time.Second        // interval of the checks in that time
)

// Makers of subscriptions.
var (
	alice    = subscription.ByToken("alice")
	bob      = subscription.ByToken("bob")
	stranger = subscription.ByAddress(netip.MustParseAddr("192.0.2.66"))
)

// long skips a long test with -short. Shorter tests show the same faults, or similar ones.
func long(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test")
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A world is a hub whose log and registry are on disk, an engine, and receivers of its callbacks. They
// have a network of their own, so time may be fake.
type world struct {
	t        testing.TB
	opts     callback.Options // of the engine; a change has effect from the next start
	log      *disklog.Log
	hub      *hub.Hub
	registry registrytest.Disk
	store    *faultyStore // registry and claims of the engine
	engine   *callback.Engine
	kill     context.CancelFunc   // cancels the context of Run
	ran      chan struct{}        // closed when Run has returned
	metrics  *prometheus.Registry // metrics of the engine
	net      *pipetest.Network
	client   *outbound.Client
	clock    atomic.Int64 // how far the clock of claims is ahead of fake time
	names    sync.Map     // addresses of names of the network, each a netip.Addr

	inventory bool // whether the hub keeps inventories; has effect from the next start
}

// inWorld runs a test in fake time, in a world of its own. Claims last an hour: with short ones, most of
// a test in which minutes pass would be renewals of 256 claims.
func inWorld(t *testing.T, o callback.Options, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, o, time.Hour)) })
}

// runInWorld runs a subtest in a world of its own.
func runInWorld(t *testing.T, name string, o callback.Options, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inWorld(t, o, test) })
}

// inWorldOfClaims is inWorld for tests of claims, which last as long as for a hub on disk.
func inWorldOfClaims(t *testing.T, o callback.Options, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, o, 0)) })
}

// newWorld returns a world in which claims last claimFor, or as long as for a hub on disk if it is 0.
func newWorld(t testing.TB, o callback.Options, claimFor time.Duration) *world {
	t.Helper()
	w := &world{t: t, opts: o, log: memorytest.Open(t), net: &pipetest.Network{}}
	w.hub = hub.New(w.log, hub.Options{Base: base})
	t.Cleanup(w.hub.Close)
	w.registry = registrytest.OpenDisk(t, w.log.Bucket("callback"))
	w.store = &faultyStore{Disk: w.registry, claimFor: claimFor}
	w.start()
	t.Cleanup(func() { w.crash(); w.net.Close() })
	return w
}

// start runs an engine, which claims all shards.
func (w *world) start() {
	w.t.Helper()
	w.startWith(w.hub)
}

// startWith runs an engine that follows f.
func (w *world) startWith(f callback.Follower) {
	w.t.Helper()
	w.client = outbound.New(outbound.Options{Dial: w.net.Dial, Resolve: func(_ context.Context, name string) (netip.Addr, error) {
		addr, _ := w.names.Load(name)
		known, _ := addr.(netip.Addr)
		return known, nil
	}})
	w.metrics = prometheus.NewRegistry()
	o := w.opts
	o.Metrics, o.Meter = w.metrics, meter.New(w.metrics)
	o.Clock = func() time.Duration { return time.Duration(w.clock.Load()) }
	caller := websub.NewCaller(w.client, base, websub.CallerOptions{Inventories: w})
	e, ran := callback.New(w.store, w.store, w.log, f, caller, o), make(chan struct{})
	ctx, kill := context.WithCancel(context.Background())
	w.engine, w.kill, w.ran = e, kill, ran
	go func() {
		defer close(ran)
		e.Run(ctx)
	}()
	w.settle()
}

// Keeps reports whether the hub keeps inventories.
func (w *world) Keeps(context.Context, string) bool { return w.inventory }

// crash stops the engine. Nothing is stored.
func (w *world) crash() {
	was := w.store.down.Swap(true)
	w.kill()
	<-w.ran
	w.client.Close()
	w.store.down.Store(was)
}

// recover crashes the engine and starts another one.
func (w *world) recover() {
	w.t.Helper()
	w.crash()
	w.start()
}

// shutdown stops the engine in good order, and returns the time that this took.
func (w *world) shutdown() time.Duration {
	start := time.Now()
	w.engine.Shutdown(context.Background())
	<-w.ran
	w.client.Close()
	return time.Since(start)
}

// restart shuts the engine down and starts another one.
func (w *world) restart() {
	w.t.Helper()
	w.shutdown()
	w.start()
}

// settle waits until nothing more happens at the current time.
func (w *world) settle() { synctest.Wait() }

// pass lets time pass, and settles.
func (w *world) pass(d time.Duration) {
	time.Sleep(d) // fake time
	w.settle()
}

// lose makes the hub lose the shards for which lost returns true, and claim all others. In a world of
// claims, that takes less than a second.
func (w *world) lose(lost func(shard int) bool) { w.store.lost.Store(&lost) }

// metric returns the value of a metric of callbacks.
func (w *world) metric(name string) int {
	w.t.Helper()
	v, ok := metricstest.Values(w.t, w.metrics)["rshub_callback_"+name]
	if !ok {
		w.t.Fatalf("no metric rshub_callback_%s", name)
	}
	return int(v)
}

// wantMetrics fails the test unless metrics have these values, to the millisecond.
func (w *world) wantMetrics(want map[string]float64) {
	w.t.Helper()
	all := metricstest.Values(w.t, w.metrics)
	for name, v := range want {
		if got, ok := all[name]; !ok || math.Abs(got-v) > 1e-3 {
			w.t.Errorf("%s = %v (exists: %t), want %v", name, got, ok, v)
		}
	}
}

// makeSet makes the set demo, with lists of 10 entries.
func (w *world) makeSet() {
	w.t.Helper()
	ok(w.t, w.log.Make(w.t.Context(), "demo", feed.Description{}, 10))
}

func (w *world) deleteSet() {
	w.t.Helper()
	ok(w.t, w.hub.Delete(w.t.Context(), "demo"))
}

// publish publishes n changes to the set demo, settles, and returns the cursor of the last one.
func (w *world) publish(name string, n int) feed.Cursor {
	w.t.Helper()
	a, err := w.hub.Publish(w.t.Context(), "demo", changelog.Publish{Changes: memorytest.Changes(name, n)})
	ok(w.t, err)
	w.settle()
	return a.Cursor
}

// trim removes old lists until about count entries are left, and returns the position of the floor.
func (w *world) trim(count uint64) (floor uint64) {
	w.t.Helper()
	if n, err := w.log.Trim(w.t.Context(), "demo", changelog.Retention{Count: count}); err != nil || n == 0 {
		w.t.Fatalf("Trim(%d) = %d, %v; want something removed", count, n, err)
	}
	state, err := w.log.State(w.t.Context(), "demo")
	ok(w.t, err)
	return state.Floor.Position
}

func (w *world) head() feed.Cursor {
	w.t.Helper()
	state, err := w.log.State(w.t.Context(), "demo")
	if err != nil && !errors.Is(err, feed.ErrNoSet) {
		w.t.Fatal(err)
	}
	return state.Head
}

// send sends a request. By default, alice subscribes to the set demo for ten days, from its first entry.
func (w *world) send(r subscription.Request) subscription.ID {
	w.t.Helper()
	r.Mode = cmp.Or(r.Mode, subscription.Subscribe)
	r.Set = cmp.Or(r.Set, "demo")
	r.Lease = cmp.Or(r.Lease, 10*24*time.Hour)
	if !r.Mode.ByOperator() {
		r.By = cmp.Or(r.By, alice)
	}
	r.At = time.Now()
	ok(w.t, w.engine.Send(w.t.Context(), r))
	return r.ID()
}

// request sends a request for a receiver, and settles.
func (w *world) request(c *receiver, r subscription.Request) subscription.ID {
	w.t.Helper()
	r.Callback = c.url
	id := w.send(r)
	w.settle()
	return id
}

// do is request for requests that have nothing but a mode.
func (w *world) do(mode subscription.Mode, c *receiver) subscription.ID {
	w.t.Helper()
	return w.request(c, subscription.Request{Mode: mode})
}

// subscribe subscribes a receiver that confirms it, from the head.
func (w *world) subscribe(c *receiver) subscription.ID {
	w.t.Helper()
	id := w.request(c, subscription.Request{Start: w.head()})
	if !w.exists(id) {
		w.t.Fatalf("%s has no subscription", c.url)
	}
	return id
}

// subscriber returns a receiver with a subscription from the head.
func (w *world) subscriber() (*receiver, subscription.ID) {
	w.t.Helper()
	c := w.receiver("a.example")
	return c, w.subscribe(c)
}

// secret returns terms with a secret.
func secret(s string) subscription.Terms { return subscription.Terms{Secret: s} }

// prefix returns terms with a filter, which matches the changes that are published with a name.
func prefix(name string) subscription.Terms {
	return subscription.Terms{Filter: feed.Filter{Prefix: "https://example.org/" + name}}
}

// record returns the record of a subscription in the registry.
func (w *world) record(id subscription.ID) subscription.Record {
	w.t.Helper()
	r, err := w.registry.Find(w.t.Context(), id)
	ok(w.t, err)
	return r
}

// exists reports whether the registry has a subscription.
func (w *world) exists(id subscription.ID) bool {
	_, err := w.registry.Find(w.t.Context(), id)
	return !errors.Is(err, subscription.ErrNoSubscription)
}

// put stores a record, as another hub might. The engine has to be stopped.
func (w *world) put(r subscription.Record) {
	w.t.Helper()
	claims := w.takeClaim(r.ID())
	ok(w.t, w.registry.Commit(w.t.Context(), claims[0], subscription.Changes{Put: []subscription.Record{r}}))
	ok(w.t, w.registry.Release(w.t.Context(), claims))
}

// wantEmptyInbox fails the test if the shard of a subscription has requests.
func (w *world) wantEmptyInbox(id subscription.ID) {
	w.t.Helper()
	if left, err := w.registry.Inbox(w.t.Context(), id.Shard(), 0, 10); err != nil || len(left) != 0 {
		w.t.Errorf("inbox has %v, %v; want nothing", left, err)
	}
}

// wantNothingLeft fails the test if the engine has data about subscriptions or requests.
func (w *world) wantNothingLeft() {
	w.t.Helper()
	if n := w.engine.Remains(); n != 0 {
		w.t.Errorf("the engine has %d topics, hosts and counts, want none", n)
	}
}

// takeClaim takes the claim on the shard of a subscription, as another hub.
func (w *world) takeClaim(id subscription.ID) []claim.Claim {
	w.t.Helper()
	claims, err := w.registry.Acquire(w.t.Context(), []int{id.Shard()})
	ok(w.t, err)
	return claims
}

// wantGone fails the test if a subscription still exists.
func (w *world) wantGone(id subscription.ID) {
	w.t.Helper()
	if w.exists(id) {
		w.t.Error("the subscription still exists")
	}
}

// wantStored fails the test unless the registry has a cursor of a subscription.
func (w *world) wantStored(id subscription.ID, want feed.Cursor) {
	w.t.Helper()
	if got := w.record(id).Cursor; got != want {
		w.t.Errorf("stored cursor = %v, want %v", got, want)
	}
}

// wantMetric fails the test unless a metric of callbacks has a value.
func (w *world) wantMetric(name string, want int) {
	w.t.Helper()
	if got := w.metric(name); got != want {
		w.t.Errorf("%s = %d, want %d", name, got, want)
	}
}

// wantShutdown shuts the engine down, and fails the test if that takes longer than most.
func (w *world) wantShutdown(most time.Duration) {
	w.t.Helper()
	if d := w.shutdown(); d > most {
		w.t.Errorf("shutdown took %v, want at most %v", d, most)
	}
}
