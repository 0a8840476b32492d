package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/page"
	"github.com/rshub/rshub/resourcesync"
)

// pagesIn returns the number of pages in the store of an inventory.
func pagesIn(t *testing.T, v *Writer) (n uint64) {
	t.Helper()
	for _, err := range v.store.Numbers(t.Context(), v.set, 0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// A commit removes the pages that no root has any longer. Pages of an older root stay until it is dropped,
// and then until a sweep.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := New(NewMemory(), "set", Options{PageBytes: 1000}).Writer(1)
		root := commit(t, v, 1000)
		pin := func() {
			t.Helper()
			if _, err := v.Pin(t.Context(), 0, "me", time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		change := func() {
			t.Helper()
			var err error
			first := feed.Entry{Cursor: feed.Cursor{Position: root.Cursor.Position + 1, Micros: 1}, Change: resourcesync.Change{Loc: "a", Change: resourcesync.Created}}
			if root, err = v.Commit(t.Context(), Changes{Base: root, To: first.Cursor, Sorted: pointers([]feed.Entry{first})}); err != nil {
				t.Fatal(err)
			}
		}
		change()
		if n := pagesIn(t, v); n != root.Pages {
			t.Errorf("pages after a commit: got %d, want %d of the newest root", n, root.Pages)
		}
		pin()
		change()
		change()
		if err := v.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, want := pagesIn(t, v), root.Pages+uint64(root.Height); n != want {
			t.Errorf("pages with a pinned root: got %d, want %d", n, want)
		}
		time.Sleep(time.Hour)
		change()
		if n := pagesIn(t, v); n != root.Pages {
			t.Errorf("pages after the pin has expired: got %d, want %d", n, root.Pages)
		}
	})
}

// The next process removes the pages of a commit that a crash has interrupted.
func TestSweepAfterCrash(t *testing.T) {
	store := NewMemory()
	root := commit(t, New(store, "set", Options{PageBytes: 1000}).Writer(1), 1000)
	a := New(store, "set", Options{PageBytes: 1000}).Writer(1)
	if err := a.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	write := a.pageWriter(t.Context())
	for range 10 {
		if _, _, err := write(page.LeafForm, 1, []byte("abandoned")); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.put(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := New(store, "set", Options{PageBytes: 1000}).Writer(1)
	if n := pagesIn(t, v); n != root.Pages+10 {
		t.Fatalf("pages after a crash: got %d, want %d", n, root.Pages+10)
	}
	if _, err := v.Commit(t.Context(), Changes{Base: root, To: root.Cursor, Sorted: pointers(nil)}); err != nil {
		t.Fatal(err)
	}
	if n := pagesIn(t, v); n != root.Pages {
		t.Errorf("pages after the next commit: got %d, want %d", n, root.Pages)
	}
}

// Heads of old versions have no term, name lists of pages to be removed, and may be from an unfinished attempt.
// The first commit of this version removes the pages.
func TestOldHead(t *testing.T) {
	store := NewMemory()
	v := New(store, "set", Options{PageBytes: 1000}).Writer(1)
	root := commit(t, v, 1000)
	_, head, err := v.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	old := fmt.Sprintf(`{"next":%d,"reserved":[{"from":%d,"to":%d}],"trash":%d,"sweep":3,"roots":[%s],"complete":"","why":""}`,
		head.Next+9, head.Next+5, head.Next+9, head.Next+1, strings.TrimSuffix(mustJSON(t, head.Roots[0]), "}")+`,"dead":7}`)
	old = strings.Replace(old, `"complete":"",`, `"complete":`+mustJSON(t, head.Complete)+`,`, 1)
	if err := store.Update(t.Context(), "set", Update{Change: func(r *Record) error {
		r.Term, r.Head = 1<<50, []byte(old)
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), "set", 0, 1<<50, []Page{{head.Next + 1, []byte("a list")}, {head.Next + 6, []byte("of an attempt")}}); err != nil {
		t.Fatal(err)
	}
	v = New(store, "set", Options{PageBytes: 1000}).Writer(1)
	if _, err := v.Commit(t.Context(), Changes{Base: root, To: root.Cursor, Sorted: pointers(nil)}); err != nil {
		t.Fatal(err)
	}
	if n := pagesIn(t, v); n != root.Pages {
		t.Errorf("pages after the first commit: got %d, want %d", n, root.Pages)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A removalFailsStore is a Store that fails from the first call of Remove on, until the next Update has failed, too.
type removalFailsStore struct {
	Store
	armed, failing bool
}

func (s *removalFailsStore) Remove(ctx context.Context, set string, begin int64, term uint64, numbers []uint64) error {
	if s.armed {
		s.armed, s.failing = false, true
	}
	if s.failing {
		return feed.ErrUnavailable
	}
	return s.Store.Remove(ctx, set, begin, term, numbers)
}

func (s *removalFailsStore) Update(ctx context.Context, set string, u Update) error {
	if s.failing {
		s.failing = false
		return feed.ErrUnavailable
	}
	return s.Store.Update(ctx, set, u)
}

// If a commit can neither remove pages nor sweep, the next commit sweeps.
func TestSweepAfterFailure(t *testing.T) {
	store := &removalFailsStore{Store: NewMemory()}
	w := New(store, "set", Options{PageBytes: 1000}).Writer(1)
	root := commit(t, w, 1000)
	store.armed = true
	commit(t, w, 1000)
	if store.armed || store.failing {
		t.Fatal("the commit has removed or swept pages, want failures of both")
	}
	if root = commit(t, w, 1000); pagesIn(t, w) != root.Pages {
		t.Errorf("pages after the next commit: got %d, want %d", pagesIn(t, w), root.Pages)
	}
}
