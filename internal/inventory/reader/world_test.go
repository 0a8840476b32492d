package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/storetest"
)

// A world is the log of the set a, its inventory, and readers, in fake time.
type world struct {
	*storetest.World
	inv *inventory.Writer

	mu       sync.Mutex
	requests []request
}

// A request is a call of Options.Request.
type request struct {
	set     string
	damaged bool
}

// inWorld runs a test in a bubble of fake time, in which the set a has n resources and no root.
func inWorld(t *testing.T, n int, test func(t *testing.T, w *world)) {
	t.Helper()
	storetest.InWorld(t, func(w *storetest.World) {
		w.Log.Create("a")
		w.Log.Publish("a", storetest.Updates(n)...)
		test(w.T, &world{World: w, inv: inventory.New(w.Store, "a", inventory.Options{}).Writer(1)})
	})
}

// run is inWorld in a subtest.
func run(t *testing.T, name string, n int, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inWorld(t, n, test) })
}

// reader returns a Reader that does not run.
func (w *world) reader(o Options) *Reader {
	o.Request = func(set string, damaged bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.requests = append(w.requests, request{set, damaged})
	}
	return New(w.Log, w.Store, fmt.Sprintf("hub %p", &o), o)
}

// running returns a Reader that runs until stop is called or the test ends.
func (w *world) running(o Options) (r *Reader, stop func()) {
	r = w.reader(o)
	ctx, cancel := context.WithCancel(w.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	stop = func() {
		cancel()
		wg.Wait()
	}
	w.Cleanup(stop)
	return r, stop
}

// commit commits a root at the head of the log, as the writer does.
func (w *world) commit() inventory.Root {
	w.Helper()
	rec, head, err := w.inv.Load(w.Context())
	w.OK(err)
	var changes inventory.Backlog
	at := head.Newest().Cursor
	for at.Position < rec.Log.Head.Position {
		b, err := w.Log.Since(w.Context(), "a", at, 10_000)
		w.OK(err)
		changes.Add(b.Entries)
		at = b.Cursor
	}
	root, err := w.inv.Commit(w.Context(), inventory.Changes{Base: head.Newest(), To: rec.Log.Head, Sorted: changes.Entries()})
	w.OK(err)
	return root
}

// list commits a root and makes it the root of a Resource List.
func (w *world) list() inventory.Root {
	w.Helper()
	root := w.commit()
	w.OK(w.inv.List(w.Context(), root.Upto))
	w.OK(w.inv.Shrink(w.Context()))
	return root
}

// roots returns the roots of the set.
func (w *world) roots() []inventory.Kept {
	w.Helper()
	_, head, err := w.inv.Load(w.Context())
	w.OK(err)
	return head.Roots
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
	w.OK(err)
	w.Cleanup(p.Release)
	return p
}

// check compares a result with the log, which must not have been trimmed, and releases it.
func (w *world) check(p *inventory.Pinned, err error) *inventory.Pinned {
	w.Helper()
	w.OK(err)
	defer p.Release()
	w.compare(p)
	return p
}

func (w *world) compare(p *inventory.Pinned) {
	w.Helper()
	w.WantResources(p.State, w.Log.Resources("a", p.Cursor().Position))
}

// result checks the result of a call: an error, or a state at a cursor that agrees with the log.
func (w *world) result(call string, fails error, at feed.Cursor) func(*inventory.Pinned, error) {
	return func(p *inventory.Pinned, err error) {
		w.Helper()
		if fails != nil {
			w.fails(call, fails)(p, err)
		} else if w.check(p, err); p.Cursor() != at {
			w.Errorf("%s is at %v, want %v", call, p.Cursor(), at)
		}
	}
}

// beforeUpdate calls a function before the next Update of the store.
func (w *world) beforeUpdate(f func()) {
	done := false
	w.Store.Before(func(_, call string) error {
		if call == "update" && !done {
			done = true
			f()
		}
		return nil
	})
}

// at returns the cursor of the log at a position.
func (w *world) at(position uint64) feed.Cursor {
	w.Helper()
	at, err := w.Log.At(w.Context(), "a", position)
	w.OK(err)
	return at
}

// wantRequests checks the calls of Options.Request since the last call of requested.
func (w *world) wantRequests(want ...request) {
	w.Helper()
	if got := w.requested(); !slices.Equal(got, want) {
		w.Errorf("requests = %v, want %v", got, want)
	}
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
