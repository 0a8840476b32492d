package inventory

import (
	"context"
	"iter"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
	"github.com/rshub/rshub/resourcesync"
)

// A hookedStore is a Store that calls a function before each call that writes. Its error is returned instead.
type hookedStore struct {
	Store
	before func(call string, pages []Page) error
}

func (s *hookedStore) call(name string, pages []Page) error {
	if s.before == nil {
		return nil
	}
	return s.before(name, pages)
}

func (s *hookedStore) Put(ctx context.Context, set string, begin int64, term uint64, pages []Page) error {
	if err := s.call("put", pages); err != nil {
		return err
	}
	return s.Store.Put(ctx, set, begin, term, pages)
}

func (s *hookedStore) Get(ctx context.Context, set string, begin int64, numbers []uint64) ([][]byte, error) {
	if err := s.call("get", nil); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, set, begin, numbers)
}

func (s *hookedStore) Remove(ctx context.Context, set string, begin int64, term uint64, numbers []uint64) error {
	if err := s.call("remove", nil); err != nil {
		return err
	}
	return s.Store.Remove(ctx, set, begin, term, numbers)
}

func (s *hookedStore) Update(ctx context.Context, set string, u Update) error {
	if err := s.call("update", nil); err != nil {
		return err
	}
	return s.Store.Update(ctx, set, u)
}

// A testWriter is the writer of a set in memory.
type testWriter struct {
	*testing.T
	*Writer
	store *hookedStore
}

func newTestWriter(t *testing.T, o Options) *testWriter {
	s := &hookedStore{Store: NewMemory()}
	return &testWriter{t, New(s, "set", o).Writer(1), s}
}

// next returns a writer of the same set with a term, in another process.
func (w *testWriter) next(term uint64) *testWriter {
	return &testWriter{w.T, New(w.store, w.set, Options{PageBytes: w.limit}).Writer(term), w.store}
}

func (w *testWriter) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func pointers(entries []feed.Entry) iter.Seq[*feed.Entry] {
	return func(yield func(*feed.Entry) bool) {
		for i := range entries {
			if !yield(&entries[i]) {
				return
			}
		}
	}
}

// changesOf returns changes to the newest root.
func (w *testWriter) changesOf(entries []feed.Entry) Changes {
	w.Helper()
	_, head, err := w.Load(w.Context())
	w.ok(err)
	return Changes{Base: head.Newest(), To: feed.Cursor{Position: uint64(len(entries)), Micros: 1}, Sorted: pointers(entries)}
}

// commit adds changes to the newest root.
func (w *testWriter) commit(entries []feed.Entry) Root {
	w.Helper()
	root, err := w.Commit(w.Context(), w.changesOf(entries))
	w.ok(err)
	return root
}

// peps adds the first n PEPs to the newest root.
func (w *testWriter) peps(n int) Root {
	w.Helper()
	return w.commit(sourcetest.PEPs(n))
}

// deletions returns deletions of those entries for which gone returns true.
func deletions(entries []feed.Entry, gone func(i int) bool) (deleted []feed.Entry) {
	for i, e := range entries {
		if gone(i) {
			e.Change.Change = resourcesync.Deleted
			deleted = append(deleted, e)
		}
	}
	return deleted
}

// roots checks the inventory, and returns its roots by Root.Upto.
func (w *testWriter) roots() (upto []uint64) {
	w.Helper()
	_, head, err := w.Load(w.Context())
	w.ok(err)
	for _, k := range head.Roots {
		upto = append(upto, k.Upto)
	}
	w.ok(w.Check(w.Context()))
	return upto
}

// wantPages checks how many pages the store has.
func (w *testWriter) wantPages(when string, want uint64) {
	w.Helper()
	n := uint64(0)
	for _, err := range w.store.Numbers(w.Context(), w.set, 0) {
		w.ok(err)
		n++
	}
	if n != want {
		w.Errorf("pages %s: got %d, want %d", when, n, want)
	}
}
