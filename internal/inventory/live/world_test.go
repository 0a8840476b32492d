package live

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
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
	"github.com/rshub/rshub/internal/testutil"
)

// A world is a memory, the inventories beside it, and hubs.
type world struct {
	t     *testing.T
	log   *storetest.MemoryLog
	store inventory.Store
	text  *text
}

// A watched is a Store that tells a test of its calls.
type watched struct {
	inventory.Store
	before  func(ctx context.Context, call string) error // is asked before each Put and Swap
	swapped func(inventory.Swap)                         // is told of each Swap that was done
	ahead   atomic.Int64                                 // by how much its clock is ahead, a time.Duration
}

func (s *watched) Load(ctx context.Context, set string) (inventory.Record, error) {
	r, err := s.Store.Load(ctx, set)
	r.Now += time.Duration(s.ahead.Load()).Microseconds()
	return r, err
}

func (s *watched) Put(ctx context.Context, set string, begin int64, attempt uint64, pages []inventory.Page) error {
	if s.before != nil {
		if err := s.before(ctx, "put"); err != nil {
			return err
		}
	}
	return s.Store.Put(ctx, set, begin, attempt, pages)
}

func (s *watched) Swap(ctx context.Context, set string, swap inventory.Swap) error {
	if s.before != nil {
		if err := s.before(ctx, "swap"); err != nil {
			return err
		}
	}
	err := s.Store.Swap(ctx, set, swap)
	if err == nil && s.swapped != nil {
		s.swapped(swap)
	}
	return err
}

// bubble runs a test in a bubble in which time is fake.
func bubble(t *testing.T, test func(*testing.T, *world)) {
	synctest.Test(t, func(t *testing.T) {
		log := storetest.NewMemoryLog()
		test(t, &world{t: t, log: log, store: storetest.Beside(inventory.NewMemory(), log), text: &text{}})
	})
}

// A text is what all hubs of a world have logged.
type text struct {
	mu sync.Mutex
	strings.Builder
}

func (l *text) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(b)
}

func (l *text) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Builder.Reset()
}

func (l *text) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.String()
}

// hub returns a hub that runs until stop is called, or the test ends.
func (w *world) hub(o Options) (l *Live, stop func()) {
	w.t.Helper()
	l = w.idle(o)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	w.t.Cleanup(stop)
	return l, stop
}

// made returns a hub that has made the inventory of the set a, of n resources.
func (w *world) made(n int, o Options) (l *Live, stop func()) {
	w.t.Helper()
	w.log.Create("a")
	w.log.Publish("a", many(n)...)
	l, stop = w.hub(o)
	w.after(3 * time.Second)
	return l, stop
}

// idle returns a hub that makes nothing.
func (w *world) idle(o Options) *Live {
	w.t.Helper()
	claims, err := claim.OpenLocal(w.t.Context(), &testutil.Map{}, Shards)
	w.ok(err)
	o.Logger = slog.New(slog.NewTextHandler(w.text, nil))
	return New(w.log, w.store, seldom{claims}, o)
}

// seldom are claims that are renewed seldom, because hours pass in a bubble.
type seldom struct{ claim.Store }

func (seldom) ClaimFor() time.Duration { return 24 * time.Hour }

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.text)
	}
}

// got returns what is read without an error.
func (w *world) got(h *inventory.Pinned, err error) *inventory.Pinned {
	w.t.Helper()
	w.ok(err)
	return h
}

// after lets time pass.
func (w *world) after(d time.Duration) {
	time.Sleep(d) // in fake time
	synctest.Wait()
}

// head returns what the record of a set says.
func (w *world) head(set string) *inventory.Head {
	w.t.Helper()
	_, head, err := inventory.New(w.store, set, inventory.Options{}).Load(w.t.Context())
	w.ok(err)
	return head
}

// holds checks that a state is that of the log, from its beginning.
func (w *world) holds(set string, h *inventory.Pinned) {
	w.t.Helper()
	w.has(h, w.log.Resources(set, h.Cursor().Position))
}

// has checks that a state has these resources, with these positions.
func (w *world) has(h *inventory.Pinned, want map[string]uint64) {
	w.t.Helper()
	got := map[string]uint64{}
	for e, err := range h.Walk(w.t.Context(), inventory.Range{}) {
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
		w.t.Fatalf("at %v: too many: %.300q, missing: %.300q", h.Cursor(), fmt.Sprint(got), fmt.Sprint(want))
	}
	if tally, err := h.Tally(w.t.Context(), inventory.Range{}); err != nil || tally.Count != uint64(len(want)) {
		w.t.Errorf("a tally of %d, %v; want %d", tally.Count, err, len(want))
	}
}

// state returns the newest state, and checks it against the log.
func (w *world) state(l *Live, set string) *inventory.Pinned {
	w.t.Helper()
	h, err := l.State(w.t.Context(), set, feed.Cursor{}, 0)
	w.ok(err)
	w.holds(set, h)
	h.Release()
	return h
}

// many returns n changes of n resources.
func many(n int) []string {
	changes := make([]string, n)
	for i := range changes {
		changes[i] = fmt.Sprintf("+%06d", i)
	}
	return changes
}

// waiting returns how many bytes wait for a commit.
func (w *world) waiting(l *Live) int {
	l.maker.mu.Lock()
	defer l.maker.mu.Unlock()
	return l.maker.present.waiting
}

// kept returns how many bytes the states of all sets take, and which states of a set are
// kept.
func (w *world) kept(l *Live, set string) (bytes int, states []feed.Cursor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.views[set].kept {
		states = append(states, k.state.Cursor())
	}
	return l.bytes, states
}
