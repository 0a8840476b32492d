package live

import (
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
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/resourcesync"
)

// A memory is a Log in memory that can be trimmed and torn.
type memory struct {
	mu   sync.Mutex
	sets map[string]*logged
	ever int64

	reads int // calls of Since
}

// A logged is the log of one set in a memory.
type logged struct {
	state   feed.State
	entries []feed.Entry // behind the floor
}

func newMemory() *memory { return &memory{sets: map[string]*logged{}} }

// make makes a set anew.
func (m *memory) make(set string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ever = max(m.ever+1, time.Now().UnixMicro())
	floor := feed.Cursor{Micros: m.ever}
	m.sets[set] = &logged{state: feed.State{Set: set, ListSize: 1000, Begin: m.ever, Floor: floor, Head: floor}}
}

func (m *memory) delete(set string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sets, set)
}

// publish adds changes, "+loc" or "-loc", and returns the new head.
func (m *memory) publish(set string, changes ...string) feed.Cursor {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sets[set]
	for _, text := range changes {
		c := resourcesync.Change{Loc: "http://example.org/" + text[1:], Change: resourcesync.Updated, Hash: fmt.Sprintf("md5:%032x", s.state.Head.Position)}
		if text[0] == '-' {
			c.Change = resourcesync.Deleted
		}
		s.state.Head = feed.Cursor{Position: s.state.Head.Position + 1, Micros: max(s.state.Head.Micros+1, time.Now().UnixMicro())}
		m.ever = s.state.Head.Micros
		s.entries = append(s.entries, feed.Entry{Cursor: s.state.Head, Change: c})
	}
	return s.state.Head
}

// trim removes the entries up to a position.
func (m *memory) trim(set string, upto uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sets[set]
	for len(s.entries) > 0 && s.entries[0].Position <= upto {
		s.state.Floor = s.entries[0].Cursor
		s.entries = s.entries[1:]
	}
}

// tear removes the entries behind a position, as a failover does.
func (m *memory) tear(set string, behind uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sets[set]
	s.entries = slices.Clone(s.entries[:behind-s.state.Floor.Position])
	s.state.Head = s.state.Floor
	if n := len(s.entries); n > 0 {
		s.state.Head = s.entries[n-1].Cursor
	}
}

// describe turns the inventory of a set off or on.
func (m *memory) describe(set string, off bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sets[set].state.NoInventory = off
}

// fold returns the locs that exist after all changes up to a position, from those that the log has.
func (m *memory) fold(set string, upto uint64) map[string]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := map[string]uint64{}
	for _, e := range m.sets[set].entries {
		if e.Position > upto {
			break
		}
		if delete(held, e.Change.Loc); e.Change.Change != resourcesync.Deleted {
			held[e.Change.Loc] = e.Position
		}
	}
	return held
}

func (m *memory) State(_ context.Context, set string) (feed.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sets[set]; s != nil {
		return s.state, nil
	}
	return feed.State{}, feed.ErrNoSet
}

func (m *memory) Sets(_ context.Context, names ...string) (states []feed.State, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, set := range slices.Sorted(maps.Keys(m.sets)) {
		if len(names) == 0 || slices.Contains(names, set) {
			states = append(states, m.sets[set].state)
		}
	}
	return states, nil
}

func (m *memory) At(_ context.Context, set string, position uint64) (feed.Cursor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sets[set]
	switch {
	case s == nil:
		return feed.Cursor{}, feed.ErrNoSet
	case position < s.state.Floor.Position:
		return feed.Cursor{}, feed.ErrGone
	case position > s.state.Head.Position:
		return feed.Cursor{}, resourcesync.Invalidf("behind the head")
	case position == s.state.Floor.Position:
		return s.state.Floor, nil
	}
	return s.entries[position-s.state.Floor.Position-1].Cursor, nil
}

func (m *memory) Since(_ context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	s := m.sets[set]
	if s == nil {
		return nil, feed.ErrGone
	}
	b := &feed.Batch{Set: set, After: after, Cursor: after}
	skip := 0
	switch {
	case after == s.state.Floor, after.IsZero() && s.state.Floor.Position == 0:
	case after.Position > s.state.Floor.Position && after.Position <= s.state.Head.Position && s.entries[after.Position-s.state.Floor.Position-1].Cursor == after:
		skip = int(after.Position - s.state.Floor.Position)
	case after.Micros < s.state.Floor.Micros:
		return nil, feed.ErrGone
	default:
		b.Diverged, b.After = true, s.state.Floor
		for _, e := range s.entries {
			if e.Position < after.Position && e.Micros <= after.Micros-time.Minute.Microseconds() {
				b.After, skip = e.Cursor, int(e.Position-s.state.Floor.Position)
			}
		}
		b.Cursor = b.After
	}
	if rest := s.entries[skip:]; len(rest) > 0 {
		b.Entries = slices.Clone(rest[:min(len(rest), limit)])
		b.Cursor = b.Entries[len(b.Entries)-1].Cursor
	}
	return b, nil
}

// A world is a memory, the inventories beside it, and hubs.
type world struct {
	t     *testing.T
	log   *memory
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
		log := newMemory()
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
	w.log.make("a")
	w.log.publish("a", many(n)...)
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
	w.has(h, w.log.fold(set, h.Cursor().Position))
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
