package reader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/storetest"
)

// A world is the log of the set a, its inventory, and readers, in fake time.
type world struct {
	*testing.T
	log   *storetest.MemoryLog
	store *hookedStore
	inv   *inventory.Writer

	mu       sync.Mutex
	requests []request
}

// A hookedStore is a Store whose clock and whose Updates a test controls.
type hookedStore struct {
	inventory.Store
	ahead    time.Duration
	onUpdate func() error // called before each Update; an error replaces the Update
}

func (s *hookedStore) Load(ctx context.Context, set string) (inventory.Record, error) {
	rec, err := s.Store.Load(ctx, set)
	rec.Now += s.ahead.Microseconds()
	return rec, err
}

func (s *hookedStore) Update(ctx context.Context, set string, u inventory.Update) error {
	if s.onUpdate != nil {
		if err := s.onUpdate(); err != nil {
			return err
		}
	}
	change := u.Change
	u.Change = func(r *inventory.Record) error {
		r.Now += s.ahead.Microseconds()
		return change(r)
	}
	return s.Store.Update(ctx, set, u)
}

// A request is a call of Options.Request.
type request struct {
	set     string
	damaged bool
}

// inWorld runs a test in a bubble of fake time, in which the set a has n resources and no root.
func inWorld(t *testing.T, n int, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := storetest.NewMemoryLog()
		store := &hookedStore{Store: storetest.Beside(inventory.NewMemory(), log)}
		log.Create("a")
		log.Publish("a", many(n)...)
		test(t, &world{T: t, log: log, store: store, inv: inventory.New(store, "a", inventory.Options{}).Writer(1)})
	})
}

// many returns n changes of n resources.
func many(n int) []string {
	changes := make([]string, n)
	for i := range changes {
		changes[i] = fmt.Sprintf("+%06d", i)
	}
	return changes
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// reader returns a Reader that does not run.
func (w *world) reader(o Options) *Reader {
	o.Request = func(set string, damaged bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.requests = append(w.requests, request{set, damaged})
	}
	return New(w.log, w.store, fmt.Sprintf("hub %p", &o), o)
}

// running returns a Reader that runs until stop is called or the test ends.
func (w *world) running(o Options) (r *Reader, stop func()) {
	r = w.reader(o)
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	w.Cleanup(stop)
	return r, stop
}

// commit commits a root at the head of the log, as the writer does.
func (w *world) commit() inventory.Root {
	w.Helper()
	rec, head, err := w.inv.Load(w.Context())
	w.ok(err)
	var changes inventory.Backlog
	at := head.Newest().Cursor
	for at.Position < rec.Log.Head.Position {
		b, err := w.log.Since(w.Context(), "a", at, 10_000)
		w.ok(err)
		changes.Add(b.Entries)
		at = b.Cursor
	}
	root, err := w.inv.Commit(w.Context(), inventory.Changes{Base: head.Newest(), To: rec.Log.Head, Sorted: changes.Entries()})
	w.ok(err)
	return root
}

// list commits a root and makes it the root of a Resource List.
func (w *world) list() inventory.Root {
	w.Helper()
	root := w.commit()
	w.ok(w.inv.List(w.Context(), root.Upto))
	w.ok(w.inv.Shrink(w.Context()))
	return root
}

// roots returns the roots of the set.
func (w *world) roots() []inventory.Kept {
	w.Helper()
	_, head, err := w.inv.Load(w.Context())
	w.ok(err)
	return head.Roots
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	time.Sleep(d) // in fake time
	synctest.Wait()
}

// requested returns the calls of Options.Request since the last call of requested.
func (w *world) requested() []request {
	w.mu.Lock()
	defer w.mu.Unlock()
	requests := w.requests
	w.requests = nil
	return requests
}

// got returns a result, and releases it at the end of the test.
func (w *world) got(p *inventory.Pinned, err error) *inventory.Pinned {
	w.Helper()
	w.ok(err)
	w.Cleanup(p.Release)
	return p
}

// check compares a result with the log, which must not have been trimmed, and releases it.
func (w *world) check(p *inventory.Pinned, err error) *inventory.Pinned {
	w.Helper()
	w.ok(err)
	defer p.Release()
	w.compare(p)
	return p
}

func (w *world) compare(p *inventory.Pinned) {
	w.Helper()
	want, got := w.log.Resources("a", p.Cursor().Position), map[string]uint64{}
	for e, err := range p.Walk(w.Context(), inventory.Range{}) {
		w.ok(err)
		got[e.Change.Loc] = e.Position
	}
	if !maps.Equal(got, want) {
		w.Fatalf("Walk at %v: got %d resources, want %d: %.500v", p.Cursor(), len(got), len(want), differing(got, want))
	}
	if tally, err := p.Tally(w.Context(), inventory.Range{}); err != nil || tally.Count != uint64(len(want)) {
		w.Errorf("Tally at %v = %d, %v, want %d", p.Cursor(), tally.Count, err, len(want))
	}
}

// differing returns the locs that two maps do not agree on.
func differing(a, b map[string]uint64) []string {
	var locs []string
	for loc := range maps.Keys(a) {
		if b[loc] != a[loc] {
			locs = append(locs, loc)
		}
	}
	for loc := range maps.Keys(b) {
		if _, ok := a[loc]; !ok {
			locs = append(locs, loc)
		}
	}
	return locs
}

// fails checks the error of a call.
func (w *world) fails(call string, want error) func(*inventory.Pinned, error) {
	return func(p *inventory.Pinned, err error) {
		w.Helper()
		if err == nil {
			p.Release()
		}
		if !errors.Is(err, want) {
			w.Errorf("%s = %v, want %v", call, err, want)
		}
	}
}

// head returns the state at the head of the log.
func (w *world) head(r *Reader) (*inventory.Pinned, error) {
	return r.State(w.Context(), "a", feed.Cursor{}, 0)
}

// memory returns the bytes that r counts, and the cursors of the cached states of the set a.
func memory(r *Reader) (bytes int, cached []feed.Cursor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v := r.views["a"]; v != nil {
		for _, s := range v.states {
			cached = append(cached, s.Cursor())
		}
	}
	return r.bytes, cached
}
