package callback_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/subscription/registrytest"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/testutil/memorytest"
	"github.com/rshub/rshub/internal/testutil/metricstest"
	"github.com/rshub/rshub/internal/testutil/pipetest"
	"github.com/rshub/rshub/resourcesync"
)

const base = "https://hub.example.org"

func TestMain(m *testing.M) { memorytest.Main(m) }

// Times that callers can rely on.
const (
	saveEvery    = 100 * time.Millisecond // progress is saved within this time of a delivery
	firstRetry   = time.Second            // wait after the first failure
	lastRetry    = 5 * time.Minute        // longest wait that the engine chooses
	longestWait  = time.Hour              // longest wait that a callback may ask for
	handOverTime = 800 * time.Millisecond // time that requests in flight have when a shard is handed over
	skipEvery    = time.Minute            // progress over what a filter left out is saved within this time
	rightsEvery  = time.Second            // interval of the checks of rights
	unsureFor    = 2 * time.Minute        // time that an unknown token has to become known
	unsureRetry  = 5 * time.Second        // interval of the checks during this time
)

// An engine is what the tests of this package test.
type engine interface {
	websub.Requests
	Run(ctx context.Context)
	Shutdown(ctx context.Context)
	Following() map[string]callback.Following

	// Of export_test.go.
	Remains() int
	Cursor(id subscription.ID) feed.Cursor
}

// newEngine returns the engine under test.
func newEngine(r subscription.Registry, c claim.Store, l callback.Log, f callback.Follower, to outlet.Outlet, o callback.Options) engine {
	return callback.New(r, c, l, f, to, o)
}

// long skips a test with -short: one that takes long with the race detector, and does
// what shorter tests do, only more often or for longer.
func long(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test")
	}
}

// A world is a hub with a memory and a registry on disk, an engine, and callbacks. The
// callbacks have a network of their own, so that time may be fake.
type world struct {
	t        testing.TB
	log      *disklog.Log
	hub      *hub.Hub
	registry registrytest.Disk
	store    *outage // the registry that the engine has
	engine   engine
	kill     context.CancelFunc  // ends the context of Run
	ran      chan struct{}       // closed when Run has returned
	metrics  prometheus.Gatherer // metrics of the engine
	logger   *slog.Logger        // logger of the engine
	net      *pipetest.Network
	client   *outbound.Client
	clock    atomic.Int64 // of claims, besides the fake time
	names    sync.Map     // names of the network that are an address, as a netip.Addr

	inventory bool // the hub keeps inventories; set before start
}

func newWorld(t testing.TB, o callback.Options) *world {
	t.Helper()
	return newWorldWithClaims(t, o, 0)
}

// newLongWorld is newWorld for tests in which minutes pass, unless they are about claims: theirs
// last an hour. Otherwise most of the test would be renewals of 256 claims twice a second.
func newLongWorld(t testing.TB, o callback.Options) *world {
	t.Helper()
	return newWorldWithClaims(t, o, time.Hour)
}

// newWorldWithClaims is newWorld with claims that last claimFor, or as long as those of a hub on
// disk if claimFor is zero.
func newWorldWithClaims(t testing.TB, o callback.Options, claimFor time.Duration) *world {
	t.Helper()
	w := &world{t: t, log: memorytest.Open(t), net: &pipetest.Network{}}
	w.hub = hub.New(w.log, hub.Options{Base: base})
	t.Cleanup(w.hub.Close)
	w.registry = registrytest.OpenDisk(t, w.log.Bucket("callback"))
	w.store = &outage{Disk: w.registry, claimFor: claimFor}
	w.start(o)
	t.Cleanup(func() { w.crash(); w.net.Close() })
	return w
}

// inWorld runs a test in fake time, in a world of its own.
func inWorld(t *testing.T, o callback.Options, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, o)) })
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start begins to run an engine, which claims every shard.
func (w *world) start(o callback.Options) {
	w.t.Helper()
	w.client = outbound.New(outbound.Options{Dial: w.net.Dial, Resolve: func(_ context.Context, name string) (netip.Addr, error) {
		addr, _ := w.names.Load(name)
		known, _ := addr.(netip.Addr)
		return known, nil
	}})
	w.run(w.hub, o)
}

// run begins to run an engine with a follower, which calls callbacks with the client.
func (w *world) run(f callback.Follower, o callback.Options) {
	w.t.Helper()
	o.Clock = func() time.Duration { return time.Duration(w.clock.Load()) }
	if w.logger = o.Logger; w.logger == nil {
		w.logger = slog.New(slog.DiscardHandler)
	}
	registry, ok := o.Metrics.(*prometheus.Registry)
	if !ok {
		registry = prometheus.NewRegistry()
		o.Metrics = registry
	}
	w.metrics = registry
	e, ran := newEngine(w.store, w.store, w.log, f, websub.NewCaller(w.client, base, websub.CallerOptions{Inventories: w}), o), make(chan struct{})
	ctx, kill := context.WithCancel(context.Background())
	w.engine, w.kill, w.ran = e, kill, ran
	go func() {
		defer close(ran)
		e.Run(ctx)
	}()
	w.settled()
}

// gauge returns the value of a metric of callbacks.
func (w *world) gauge(name string) int {
	w.t.Helper()
	v, ok := metricstest.Values(w.t, w.metrics)["rshub_callback_"+name]
	if !ok {
		w.t.Fatalf("there is no metric rshub_callback_%s", name)
	}
	return int(v)
}

// Keeps says that the hub keeps inventories, or that it does not.
func (w *world) Keeps(context.Context, string) bool { return w.inventory }

// crash stops the engine without saving anything.
func (w *world) crash() {
	was := w.store.down.Swap(true)
	w.kill()
	<-w.ran
	w.client.Close()
	w.store.down.Store(was)
}

// lose makes the hub lose the shards for which lost returns true, and claim all others. With short
// claims, that takes less than a second.
func (w *world) lose(lost func(shard int) bool) { w.store.lost.Store(&lost) }

// shutdown stops the engine in good order.
func (w *world) shutdown() {
	w.engine.Shutdown(context.Background())
	<-w.ran
	w.client.Close()
}

func (w *world) send(r subscription.Request) subscription.ID {
	w.t.Helper()
	if r.Lease == 0 {
		r.Lease = 10 * 24 * time.Hour
	}
	if r.Set == "" {
		r.Set = "demo"
	}
	if r.By == "" {
		r.By = subscription.ByToken("alice")
	}
	r.At = time.Now()
	ok(w.t, w.engine.Send(w.t.Context(), r))
	return r.ID()
}

func (w *world) publish(name string, n int) changelog.Appended {
	w.t.Helper()
	a, err := w.hub.Publish(w.t.Context(), "demo", changelog.Publish{Changes: memorytest.Changes(name, n)})
	ok(w.t, err)
	return a
}

func (w *world) head() feed.Cursor {
	w.t.Helper()
	st, err := w.log.State(w.t.Context(), "demo")
	if err != nil && !errors.Is(err, feed.ErrNoSet) {
		w.t.Fatal(err)
	}
	return st.Head
}

// saved returns what the registry has of a subscription.
func (w *world) saved(id subscription.ID) subscription.Record {
	w.t.Helper()
	r, err := w.registry.Find(w.t.Context(), id)
	ok(w.t, err)
	return r
}

// noRequests fails the test if requests for a subscription wait.
func (w *world) noRequests(id subscription.ID) {
	w.t.Helper()
	if left, err := w.registry.Inbox(w.t.Context(), id.Shard(), 0, 10); err != nil || len(left) != 0 {
		w.t.Errorf("in the inbox are %v (%v)", left, err)
	}
}

func (w *world) gone(id subscription.ID) bool {
	_, err := w.registry.Find(w.t.Context(), id)
	return errors.Is(err, subscription.ErrNoSubscription)
}

// subscribe makes a subscription of a callback that agrees, from the head on.
func (w *world) subscribe(c *callee) subscription.ID {
	w.t.Helper()
	id := w.sent(subscription.Request{Mode: subscription.Subscribe, Callback: c.url, Start: w.head()})
	if w.gone(id) {
		w.t.Fatal("the subscription was not made")
	}
	return id
}

// published publishes, and waits until all that follows from it has happened.
func (w *world) published(name string, n int) {
	w.t.Helper()
	w.publish(name, n)
	w.settled()
}

// sent sends a request, and waits until all that follows from it has happened.
func (w *world) sent(r subscription.Request) subscription.ID {
	w.t.Helper()
	id := w.send(r)
	w.settled()
	return id
}

// pass lets time pass, and waits until all that follows from it has happened.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	w.settled()
}

// subscribed makes a callback that agrees, and a subscription of it from the head on.
func (w *world) subscribed() (*callee, subscription.ID) {
	w.t.Helper()
	c := w.listen("a.example")
	return c, w.subscribe(c)
}

// settled waits until nothing more happens without time passing.
func (w *world) settled() { synctest.Wait() }

// A callee is a callback: it agrees to what is verified, and notes what is
// delivered.
type callee struct {
	t   testing.TB
	url string

	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request) // to a delivery; nil: 204
	agree  func(w http.ResponseWriter, r *http.Request) // to a verification; nil: the challenge
	asked  []*http.Request                              // GETs
	tries  []*delivered                                 // POSTs
	took   []*delivered                                 // POSTs that were answered with a success
}

// delivered is one POST.
type delivered struct {
	at     time.Time
	header http.Header
	uri    string
	body   []byte
	doc    *resourcesync.Document
}

// listen makes a callback at a host of the network.
func (w *world) listen(host string) *callee {
	c := &callee{t: w.t, url: "http://" + host + "/cb"}
	w.net.Serve(host+":80", c)
	return c
}

func (c *callee) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c.mu.Lock()
	answer, agree := c.answer, c.agree
	if r.Method == http.MethodGet {
		c.asked = append(c.asked, r)
		c.mu.Unlock()
		if agree == nil {
			_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge"))
			return
		}
		agree(w, r)
		return
	}
	doc, err := resourcesync.ReadXML(bytes.NewReader(body), resourcesync.Limits{})
	if err != nil {
		c.t.Errorf("the body of a delivery: %v", err)
	}
	d := &delivered{at: time.Now(), header: r.Header, uri: r.RequestURI, body: body, doc: doc}
	c.tries = append(c.tries, d)
	c.mu.Unlock()
	status := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	if answer == nil {
		status.WriteHeader(http.StatusNoContent)
	} else {
		answer(status, r)
	}
	if status.status/100 == 2 && r.Context().Err() == nil {
		c.mu.Lock()
		c.took = append(c.took, d)
		c.mu.Unlock()
	}
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// says sets how deliveries are answered from now on.
func (c *callee) says(answer func(w http.ResponseWriter, r *http.Request)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = answer
}

// agrees sets how verifications are answered from now on.
func (c *callee) agrees(agree func(w http.ResponseWriter, r *http.Request)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.agree = agree
}

func status(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// hang is how a callback answers that does not answer.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// agreesAfter is how a callback agrees that takes its time.
func agreesAfter(d time.Duration) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(d)
		_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge"))
	}
}

// locs returns the locs of all that was delivered with success.
func (c *callee) locs() (locs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.took {
		for i := range d.doc.Items {
			locs = append(locs, strings.TrimPrefix(d.doc.Items[i].Loc, "https://example.org/"))
		}
	}
	return locs
}

// check fails the test unless what was delivered is all of n changes after a
// position, in order and once, with consecutive intervals.
func (c *callee) check(after uint64, n int) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	position := after
	var until time.Time
	for i, d := range c.took {
		if d.header.Get("RS-Previous") != strconv.FormatUint(position, 10) {
			c.t.Errorf("delivery %d has RS-Previous %s, want %d", i, d.header.Get("RS-Previous"), position)
		}
		for _, got := range positions.FindAllSubmatch(d.body, -1) {
			position++
			if string(got[1]) != strconv.FormatUint(position, 10) {
				c.t.Fatalf("delivery %d has position %s, want %d", i, got[1], position)
			}
		}
		if d.header.Get("RS-Position") != strconv.FormatUint(position, 10) {
			c.t.Errorf("delivery %d has RS-Position %s, want %d", i, d.header.Get("RS-Position"), position)
		}
		if i > 0 && !d.doc.Header.From.Equal(until) {
			c.t.Errorf("delivery %d is from %v, want %v", i, d.doc.Header.From, until)
		}
		until = d.doc.Header.Until
	}
	if position != after+uint64(n) {
		c.t.Errorf("%d changes were delivered, want %d", position-after, n)
	}
}

// positions finds the positions of entries: ReadXML drops the hub's own attributes.
var positions = regexp.MustCompile(`h:position="(\d+)"`)

func (c *callee) counts() (tries, took, asked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.tries), len(c.took), len(c.asked)
}

// question returns what the callback was asked, or told, last.
func (c *callee) question() url.Values {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[len(c.asked)-1].URL.Query()
}

func (c *callee) questions() int {
	_, _, asked := c.counts()
	return asked
}

func (c *callee) last() *delivered {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.tries) == 0 {
		c.t.Fatal("nothing was delivered")
	}
	return c.tries[len(c.tries)-1]
}
