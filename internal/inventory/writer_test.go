package inventory

import (
	"errors"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
)

// After a writer with a higher term has written, every write of the other one fails, and nothing is written.
func TestFencedWriter(t *testing.T) {
	for name, write := range map[string]func(w *testWriter, root Root) error{
		"Commit": func(w *testWriter, _ Root) error {
			_, err := w.Commit(w.Context(), w.changesOf(sourcetest.PEPs(20)))
			return err
		},
		"Forget": func(w *testWriter, root Root) error {
			_, err := w.Forget(w.Context(), root, feed.Cursor{}, "a test")
			return err
		},
		"List":   func(w *testWriter, root Root) error { return w.List(w.Context(), root.Upto) },
		"Shrink": func(w *testWriter, _ Root) error { return w.Shrink(w.Context()) },
		"Sweep":  func(w *testWriter, _ Root) error { return w.Sweep(w.Context()) },
		"Reset":  func(w *testWriter, _ Root) error { return w.Reset(w.Context(), "a test") },
	} {
		t.Run(name, func(t *testing.T) {
			late := newTestWriter(t, Options{})
			late.peps(10)
			next := late.next(2)
			root := next.peps(10)
			before, _ := next.store.Load(t.Context(), "set")
			for range 2 { // the second time, the writer begins its term again
				if err := write(late, root); !errors.Is(err, ErrFenced) {
					t.Errorf("%s() of a fenced writer: got error %v, want %v", name, err, ErrFenced)
				}
			}
			if after, _ := next.store.Load(t.Context(), "set"); string(after.Head) != string(before.Head) || after.Term != 2 {
				t.Errorf("record: got term %d, head %s, want 2, %s", after.Term, after.Head, before.Head)
			}
			next.peps(30)
			next.wantPages("after the next commit", 1)
		})
	}
}

// endTerm ends the term of the writer, as a store does that has lost pages.
func (w *testWriter) endTerm() {
	w.ok(w.store.Update(w.Context(), "set", Update{Change: func(r *Record) error {
		r.Term = 0
		return nil
	}}))
}

// A writer whose term has ended begins it again, and continues.
func TestTermEnds(t *testing.T) {
	w := newTestWriter(t, Options{})
	w.peps(10)
	w.endTerm()
	if _, err := w.Commit(t.Context(), w.changesOf(sourcetest.PEPs(20))); !errors.Is(err, ErrFenced) {
		t.Errorf("Commit() after the end of the term: got error %v, want %v", err, ErrFenced)
	}
	w.peps(20)
}

// A commit uses no page number of an earlier commit that failed, because those pages may be written late.
func TestNumbersAfterFailure(t *testing.T) {
	w := newTestWriter(t, Options{PageBytes: 1000})
	var last uint64
	w.store.before = func(call string, pages []Page) error {
		if call != "put" {
			return nil
		}
		last = pages[len(pages)-1].Number
		return feed.ErrUnknown
	}
	if _, err := w.Commit(t.Context(), w.changesOf(sourcetest.PEPs(100))); !errors.Is(err, feed.ErrUnknown) {
		t.Fatalf("Commit(): got error %v, want %v", err, feed.ErrUnknown)
	}
	w.store.before = func(_ string, pages []Page) error {
		if len(pages) > 0 && pages[0].Number <= last {
			t.Errorf("first page after a failed commit: got number %d, want more than %d", pages[0].Number, last)
		}
		return nil
	}
	w.peps(100)
}

// Runs cannot be used after the term has ended: their pages may be lost.
func TestRunsOfEndedTerm(t *testing.T) {
	w := newTestWriter(t, Options{})
	entries := sourcetest.PEPs(20)
	runs, err := w.NewRuns(t.Context(), Root{})
	w.ok(err)
	w.ok(runs.Add(t.Context(), pointers(entries[:10]), nil))
	w.endTerm()
	if err := w.List(t.Context(), 1); !errors.Is(err, ErrFenced) {
		t.Fatalf("List() after the end of the term: got error %v, want %v", err, ErrFenced)
	}
	w.ok(w.Shrink(t.Context())) // begins the term again
	if err := runs.Add(t.Context(), pointers(entries[10:]), nil); !errors.Is(err, ErrFenced) {
		t.Errorf("Add(): got error %v, want %v", err, ErrFenced)
	}
	if _, err := w.Commit(t.Context(), Changes{To: entries[19].Cursor, Runs: runs, Sorted: pointers(entries[10:])}); !errors.Is(err, ErrFenced) {
		t.Errorf("Commit(): got error %v, want %v", err, ErrFenced)
	}
}
