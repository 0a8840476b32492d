package inventory

import (
	"context"
	"errors"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
)

// After a writer with a higher term has written, every write of the other one fails, and nothing is written.
func TestFencedWriter(t *testing.T) {
	ctx := t.Context()
	for name, write := range map[string]func(w *Writer, root Root) error{
		"Commit": func(w *Writer, root Root) error {
			_, err := w.Commit(ctx, Changes{Base: root, To: root.Cursor, Sorted: peps(20)})
			return err
		},
		"Forget": func(w *Writer, root Root) error {
			_, err := w.Forget(ctx, root, feed.Cursor{}, "a test")
			return err
		},
		"List":   func(w *Writer, root Root) error { return w.List(ctx, root.Upto) },
		"Shrink": func(w *Writer, _ Root) error { return w.Shrink(ctx) },
		"Sweep":  func(w *Writer, _ Root) error { return w.Sweep(ctx) },
		"Reset":  func(w *Writer, _ Root) error { return w.Reset(ctx, "a test") },
	} {
		t.Run(name, func(t *testing.T) {
			store := NewMemory()
			late, next := New(store, "set", Options{}).Writer(1), New(store, "set", Options{}).Writer(2)
			commit(t, late, 10)
			root := commit(t, next, 10)
			before, _ := store.Load(ctx, "set")
			for range 2 { // the second time, the writer begins its term again
				if err := write(late, root); !errors.Is(err, ErrFenced) {
					t.Errorf("%s() of a fenced writer: got error %v, want %v", name, err, ErrFenced)
				}
			}
			if after, _ := store.Load(ctx, "set"); string(after.Head) != string(before.Head) || after.Term != 2 {
				t.Errorf("record: got term %d, head %s, want 2, %s", after.Term, after.Head, before.Head)
			}
			commit(t, next, 30)
			if n := pagesIn(t, next); n != 1 {
				t.Errorf("pages: got %d, want 1", n)
			}
		})
	}
}

// A store that has lost pages ends the term. The writer begins it again, and continues.
func TestTermEnds(t *testing.T) {
	store := NewMemory()
	w := New(store, "set", Options{}).Writer(7)
	root := commit(t, w, 10)
	if err := store.Update(t.Context(), "set", Update{Change: func(r *Record) error {
		r.Term = 0
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	c := Changes{Base: root, To: root.Cursor, Sorted: peps(20)}
	if _, err := w.Commit(t.Context(), c); !errors.Is(err, ErrFenced) {
		t.Errorf("Commit() after the end of the term: got error %v, want %v", err, ErrFenced)
	}
	if _, err := w.Commit(t.Context(), c); err != nil {
		t.Errorf("second Commit(): %v", err)
	}
}

// A pageNumbersStore records the numbers of the pages that are put.
type pageNumbersStore struct {
	Store
	numbers []uint64
	fails   error
}

func (s *pageNumbersStore) Put(ctx context.Context, set string, begin int64, term uint64, pages []Page) error {
	for _, p := range pages {
		s.numbers = append(s.numbers, p.Number)
	}
	if s.fails != nil {
		return s.fails
	}
	return s.Store.Put(ctx, set, begin, term, pages)
}

// A commit uses no page number of an earlier commit that failed, because those pages may be written late.
func TestNumbersAfterFailure(t *testing.T) {
	s := &pageNumbersStore{Store: NewMemory(), fails: feed.ErrUnknown}
	w := New(s, "set", Options{PageBytes: 1000}).Writer(1)
	entries := sourcetest.PEPs(100)
	c := Changes{To: entries[99].Cursor, Sorted: pointers(entries)}
	if _, err := w.Commit(t.Context(), c); !errors.Is(err, feed.ErrUnknown) {
		t.Fatalf("Commit(): got error %v, want %v", err, feed.ErrUnknown)
	}
	failed := len(s.numbers)
	s.fails = nil
	if _, err := w.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if last, next := s.numbers[failed-1], s.numbers[failed]; next <= last {
		t.Errorf("first page after a failed commit: got number %d, want more than %d", next, last)
	}
}

// Runs cannot be used after the term has ended: their pages may be lost.
func TestRunsOfEndedTerm(t *testing.T) {
	store := NewMemory()
	w := New(store, "set", Options{}).Writer(1)
	entries := sourcetest.PEPs(20)
	runs, err := w.NewRuns(t.Context(), Root{})
	if err == nil {
		err = runs.Add(t.Context(), pointers(entries[:10]), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Update(t.Context(), "set", Update{Change: func(r *Record) error {
		r.Term = 0
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	if err := w.List(t.Context(), 1); !errors.Is(err, ErrFenced) {
		t.Fatalf("List() after the end of the term: got error %v, want %v", err, ErrFenced)
	}
	if err := w.Shrink(t.Context()); err != nil { // begins the term again
		t.Fatal(err)
	}
	if err := runs.Add(t.Context(), pointers(entries[10:]), nil); !errors.Is(err, ErrFenced) {
		t.Errorf("Add(): got error %v, want %v", err, ErrFenced)
	}
	if _, err := w.Commit(t.Context(), Changes{To: entries[19].Cursor, Runs: runs, Sorted: pointers(entries[10:])}); !errors.Is(err, ErrFenced) {
		t.Errorf("Commit(): got error %v, want %v", err, ErrFenced)
	}
}
