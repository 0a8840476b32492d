package writer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/storetest"
)

// A world is a log, the inventories in its store, and the claims of all hubs.
type world struct {
	t      *testing.T
	log    *storetest.MemoryLog
	store  *hookedStore
	claims *claims
	text   *logText // what all hubs have logged
}

// inWorld runs a test with fake time.
func inWorld(t *testing.T, test func(*testing.T, *world)) {
	synctest.Test(t, func(t *testing.T) {
		log := storetest.NewMemoryLog()
		store := &hookedStore{Store: storetest.Beside(inventory.NewMemory(), log)}
		test(t, &world{t: t, log: log, store: store, claims: &claims{held: map[int]claim.Claim{}}, text: &logText{}})
	})
}

// A hookedStore is a Store that calls functions of a test. Set them while no Writer runs.
type hookedStore struct {
	inventory.Store
	before    func(set, call string) error                 // called before each Put and Update; its error is returned instead
	updated   func(u inventory.Update, r inventory.Record) // called after each successful Update
	ahead     atomic.Int64                                 // how far the clock is ahead, a time.Duration
	failLoads atomic.Int64                                 // number of Loads that fail next
}

func (s *hookedStore) Load(ctx context.Context, set string) (inventory.Record, error) {
	if s.failLoads.Add(-1) >= 0 {
		return inventory.Record{}, feed.ErrUnavailable
	}
	r, err := s.Store.Load(ctx, set)
	r.Now += time.Duration(s.ahead.Load()).Microseconds()
	return r, err
}

func (s *hookedStore) Put(ctx context.Context, set string, begin int64, term uint64, pages []inventory.Page) error {
	if s.before != nil {
		if err := s.before(set, "put"); err != nil {
			return err
		}
	}
	return s.Store.Put(ctx, set, begin, term, pages)
}

func (s *hookedStore) Update(ctx context.Context, set string, u inventory.Update) error {
	if s.before != nil {
		if err := s.before(set, "update"); err != nil {
			return err
		}
	}
	var updated inventory.Record
	change := u.Change
	u.Change = func(r *inventory.Record) error {
		r.Now += time.Duration(s.ahead.Load()).Microseconds()
		err := change(r)
		updated = *r
		return err
	}
	err := s.Store.Update(ctx, set, u)
	if err == nil && s.updated != nil {
		s.updated(u, updated)
	}
	return err
}

// claims are the claims of all hubs of a world. They do not expire.
type claims struct {
	mu   sync.Mutex
	held map[int]claim.Claim
	live []string
	last uint64
}

// A hubClaims is the claim.Store of one hub.
type hubClaims struct {
	*claims
	name     string
	claimFor time.Duration
}

func (c *hubClaims) Name() string            { return c.name }
func (c *hubClaims) ClaimFor() time.Duration { return c.claimFor }

func (c *hubClaims) Join(context.Context) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.live, c.name) {
		c.live = slices.Sorted(slices.Values(append(c.live, c.name)))
	}
	return slices.Clone(c.live), nil
}

func (c *hubClaims) Leave(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = slices.DeleteFunc(c.live, func(name string) bool { return name == c.name })
	return nil
}

func (c *hubClaims) Acquire(_ context.Context, shards []int) (got []claim.Claim, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, shard := range shards {
		if holder := c.held[shard].Holder; holder == "" || holder == c.name {
			c.last++
			c.held[shard] = claim.Claim{Shard: shard, Number: c.last, Holder: c.name}
			got = append(got, c.held[shard])
		}
	}
	return got, nil
}

func (c *hubClaims) Renew(_ context.Context, all []claim.Claim) ([]claim.Claim, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(all), func(h claim.Claim) bool { return c.held[h.Shard] != h }), nil
}

func (c *hubClaims) Release(_ context.Context, all []claim.Claim) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range all {
		if c.held[h.Shard] == h {
			delete(c.held, h.Shard)
		}
	}
	return nil
}

// steal gives all shards to another hub.
func (c *claims) steal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for shard := range Shards {
		c.last++
		c.held[shard] = claim.Claim{Shard: shard, Number: c.last, Holder: "thief"}
	}
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

// hub starts a hub whose claims are renewed seldom, because hours pass in a test.
func (w *world) hub(o Options) *hub {
	w.t.Helper()
	return w.start(w.writer("hub", 24*time.Hour, o))
}

// writer returns a Writer that does not run.
func (w *world) writer(name string, claimFor time.Duration, o Options) *Writer {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.NewTextHandler(w.text, nil)))
	return New(w.log, w.store, &hubClaims{w.claims, name, claimFor}, o)
}

func (w *world) start(writer *Writer) *hub {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		writer.Run(ctx)
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		<-done
	})
	w.t.Cleanup(stop)
	return &hub{writer, stop}
}

// hubWith returns a hub that has committed the set a with n resources.
func (w *world) hubWith(n int, o Options) *hub {
	w.t.Helper()
	w.log.Create("a")
	w.log.Publish("a", updates(n)...)
	h := w.hub(o)
	w.pass(3 * time.Second)
	return h
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.text)
	}
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	time.Sleep(d) // in fake time
	synctest.Wait()
}

// inv returns the inventory of a set, as a reader on another hub sees it.
func (w *world) inv(set string) *inventory.Inventory {
	return inventory.New(w.store, set, inventory.Options{})
}

// head returns the head of a set.
func (w *world) head(set string) *inventory.Head {
	w.t.Helper()
	_, head, err := w.inv(set).Load(w.t.Context())
	w.ok(err)
	return head
}

// newest returns the newest root of a set.
func (w *world) newest(set string) inventory.Root {
	w.t.Helper()
	return w.head(set).Newest()
}

// wantRoot checks that the newest root of a set is at a cursor, and has the resources that the log had there.
func (w *world) wantRoot(set string, at feed.Cursor) {
	w.t.Helper()
	root := w.newest(set)
	if root.Cursor != at {
		w.t.Fatalf("newest root of %q is at %v, want %v\n%s", set, root.Cursor, at, w.text)
	}
	w.wantResources(set, root, w.log.Resources(set, at.Position))
}

// wantResources checks the resources of a root, by loc and position, and all pages of the set.
func (w *world) wantResources(set string, root inventory.Root, want map[string]uint64) {
	w.t.Helper()
	got := map[string]uint64{}
	for e, err := range w.inv(set).Tree(root).Walk(w.t.Context(), inventory.Range{}) {
		w.ok(err)
		got[e.Change.Loc] = e.Position
	}
	if !maps.Equal(got, want) {
		for loc, at := range got {
			if want[loc] == at {
				delete(got, loc)
				delete(want, loc)
			}
		}
		w.t.Fatalf("root at %v: extra %.300q, missing %.300q", root.Cursor, fmt.Sprint(got), fmt.Sprint(want))
	}
	if root.Tally.Count != uint64(len(want)) {
		w.t.Errorf("Tally.Count = %d, want %d", root.Tally.Count, len(want))
	}
	w.ok(w.inv(set).Check(w.t.Context()))
}

// setComplete declares a set complete at the head of its log, or not complete.
func (w *world) setComplete(set string, complete bool) {
	w.t.Helper()
	at, why := feed.Cursor{}, "declared by a publisher"
	if complete {
		s, err := w.log.State(w.t.Context(), set)
		w.ok(err)
		at, why = s.Head, ""
	}
	w.ok(w.inv(set).SetComplete(w.t.Context(), at, why))
}

// wantComplete checks whether a set is complete at its newest root.
func (w *world) wantComplete(set string, want bool) {
	w.t.Helper()
	if head := w.head(set); head.IsComplete(head.Newest().Cursor) != want {
		w.t.Errorf("complete from %v (%q), newest root at %v: got complete %v, want %v", head.Complete, head.Why, head.Newest().Cursor, !want, want)
	}
}

// wantLog checks how often a text was logged.
func (w *world) wantLog(text string, want int) {
	w.t.Helper()
	if got := strings.Count(w.text.String(), text); got != want {
		w.t.Errorf("logged %q %d times, want %d:\n%s", text, got, want, w.text)
	}
}

// listed returns the cursor of the newest Resource List of a set.
func (w *world) listed(set string) (at feed.Cursor) {
	w.t.Helper()
	for _, k := range w.head(set).Roots {
		if k.Listed != 0 {
			at = k.Cursor
		}
	}
	return at
}

// updates returns updates of n resources.
func updates(n int) []string {
	changes := make([]string, n)
	for i := range changes {
		changes[i] = fmt.Sprintf("+%06d", i)
	}
	return changes
}
