package writer

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/storetest"
	"github.com/rshub/rshub/internal/testutil"
)

// A world is a log, the inventories in its store, and the claims of one hub.
type world struct {
	*storetest.World
	claims *claims
	text   *logText // what the hub has logged
}

// inWorld runs a test with fake time.
func inWorld(t *testing.T, test func(*testing.T, *world)) {
	storetest.InWorld(t, func(w *storetest.World) {
		local, err := claim.OpenLocal(w.Context(), &testutil.Map{}, Shards)
		w.OK(err)
		test(w.T, &world{w, &claims{Local: local, claimFor: 24 * time.Hour}, &logText{}})
	})
}

// run is inWorld in a subtest.
func run(t *testing.T, name string, test func(*testing.T, *world)) {
	t.Run(name, func(t *testing.T) { inWorld(t, test) })
}

// claims are claims that can be lost. They are renewed seldom, because hours pass in a test.
type claims struct {
	*claim.Local
	claimFor time.Duration
	lost     atomic.Bool
}

func (c *claims) ClaimFor() time.Duration { return c.claimFor }

func (c *claims) Acquire(ctx context.Context, shards []int) ([]claim.Claim, error) {
	if c.lost.Load() {
		return nil, nil
	}
	return c.Local.Acquire(ctx, shards)
}

func (c *claims) Renew(ctx context.Context, all []claim.Claim) ([]claim.Claim, error) {
	if c.lost.Load() {
		return nil, nil
	}
	return c.Local.Renew(ctx, all)
}

// A logText collects what is logged.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A hub is a Writer that runs until stop is called or the test ends.
type hub struct {
	*Writer
	stop func()
}

// writer returns a Writer that does not run.
func (w *world) writer(o Options) *Writer {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.NewTextHandler(w.text, nil)))
	return New(w.Log, w.Store, w.claims, o)
}

// hub starts a hub.
func (w *world) hub(o Options) *hub { return start(w.T, w.writer(o)) }

func start(t *testing.T, w *Writer) *hub {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { w.Run(ctx) })
	stop := func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	return &hub{w, stop}
}

// hubWith returns a hub that has committed the set a with n resources.
func (w *world) hubWith(n int, o Options) *hub {
	w.Helper()
	w.Log.Create("a")
	w.Log.Publish("a", storetest.Updates(n)...)
	h := w.hub(o)
	w.Pass(3 * time.Second)
	return h
}

// completeHub returns a hub with a complete set.
func (w *world) completeHub(o Options) *hub {
	w.Helper()
	h := w.hubWith(3_000, o)
	w.setComplete(true)
	w.request(h)
	return h
}

// request makes the hub commit the set a, and waits for it.
func (w *world) request(h *hub) {
	h.Request("a", false)
	w.Pass(2 * time.Second)
}

// inv returns the inventory of a set, as a reader on another hub sees it.
func (w *world) inv(set string) *inventory.Inventory {
	return inventory.New(w.Store, set, inventory.Options{})
}

// head returns the head of the set a.
func (w *world) head() *inventory.Head {
	w.Helper()
	_, head, err := w.inv("a").Load(w.Context())
	w.OK(err)
	return head
}

// newest returns the newest root of the set a.
func (w *world) newest() inventory.Root {
	w.Helper()
	return w.head().Newest()
}

// wantRoot checks that the newest root of a set is at a cursor, and has the resources that the log had there.
func (w *world) wantRoot(set string, at feed.Cursor) {
	w.Helper()
	w.wantResources(set, at, w.Log.Resources(set, at.Position))
}

// wantResources checks the cursor and the resources of the newest root of a set, and all its pages.
func (w *world) wantResources(set string, at feed.Cursor, want map[string]uint64) {
	w.Helper()
	_, head, err := w.inv(set).Load(w.Context())
	if w.OK(err); head.Newest().Cursor != at {
		w.Fatalf("newest root of %q is at %v, want %v\n%s", set, head.Newest().Cursor, at, w.text)
	}
	w.WantResources(w.inv(set).Tree(head.Newest()).State(), want)
	w.OK(w.inv(set).Check(w.Context()))
}

// setComplete declares the set a complete at the head of its log, or not complete.
func (w *world) setComplete(complete bool) {
	w.Helper()
	at, why := feed.Cursor{}, "declared by a publisher"
	if complete {
		s, err := w.Log.State(w.Context(), "a")
		w.OK(err)
		at, why = s.Head, ""
	}
	w.OK(w.inv("a").SetComplete(w.Context(), at, why))
}

// wantComplete checks whether the set a is complete at its newest root, and why not.
func (w *world) wantComplete(why string) {
	w.Helper()
	if head := w.head(); head.IsComplete(head.Newest().Cursor) != (why == "") || head.Why != why {
		w.Errorf("complete from %v, newest root at %v: got why %q, want %q", head.Complete, head.Newest().Cursor, head.Why, why)
	}
}

// wantLog checks how often a text was logged.
func (w *world) wantLog(text string, want int) {
	w.Helper()
	if got := strings.Count(w.text.String(), text); got != want {
		w.Errorf("logged %q %d times, want %d:\n%s", text, got, want, w.text)
	}
}

// listed returns the cursor of the newest Resource List of the set a.
func (w *world) listed() (at feed.Cursor) {
	w.Helper()
	for _, k := range w.head().Roots {
		if k.Listed != 0 {
			at = k.Cursor
		}
	}
	return at
}

// wantListed checks the cursor of the newest Resource List of the set a.
func (w *world) wantListed(want feed.Cursor) {
	w.Helper()
	if at := w.listed(); at != want {
		w.Errorf("newest Resource List at %v, want %v", at, want)
	}
}
