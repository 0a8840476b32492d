package inventory

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/page"
	"github.com/rshub/rshub/internal/inventory/sourcetest"
)

// A commit removes the pages that no root has any longer. Pages of an older root stay until it is dropped,
// and then until a sweep.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWriter(t, Options{PageBytes: 1000})
		w.peps(1000)
		root := w.peps(1)
		w.wantPages("after a commit", root.Pages)
		_, err := w.Pin(t.Context(), 0, "me", time.Hour)
		w.ok(err)
		w.peps(1)
		root = w.peps(1)
		w.ok(w.Sweep(t.Context()))
		w.wantPages("with a pinned root", root.Pages+uint64(root.Height))
		time.Sleep(time.Hour)
		root = w.peps(1)
		w.wantPages("after the pin has expired", root.Pages)
	})
}

// The next process removes the pages of a commit that a crash has interrupted.
func TestSweepAfterCrash(t *testing.T) {
	w := newTestWriter(t, Options{PageBytes: 1000})
	root := w.peps(1000)
	write := w.pageWriter(t.Context())
	for range 10 {
		_, _, err := write(page.LeafForm, 1, []byte("abandoned"))
		w.ok(err)
	}
	w.ok(w.put(t.Context()))
	w = w.next(1)
	w.wantPages("after a crash", root.Pages+10)
	root = w.commit(nil)
	w.wantPages("after the next commit", root.Pages)
}

// Heads of old versions have no term, name lists of pages to be removed, and may be from an unfinished attempt.
// The first commit of this version removes the pages.
func TestOldHead(t *testing.T) {
	w := newTestWriter(t, Options{PageBytes: 1000})
	w.peps(1000)
	_, head, err := w.Load(t.Context())
	w.ok(err)
	root, err := json.Marshal(head.Roots[0])
	w.ok(err)
	old := fmt.Sprintf(`{"next":%d,"reserved":[{"from":%d,"to":%d}],"trash":%d,"sweep":3,"roots":[%s],"complete":{},"why":""}`,
		head.Next+9, head.Next+5, head.Next+9, head.Next+1, strings.TrimSuffix(string(root), "}")+`,"dead":7}`)
	complete, err := json.Marshal(head.Complete)
	w.ok(err)
	old = strings.Replace(old, `"complete":{}`, `"complete":`+string(complete), 1)
	w.ok(w.store.Update(t.Context(), "set", Update{Change: func(r *Record) error {
		r.Term, r.Head = 1<<50, []byte(old)
		return nil
	}}))
	w.ok(w.store.Put(t.Context(), "set", 0, 1<<50, []Page{{head.Next + 1, []byte("a list")}, {head.Next + 6, []byte("of an attempt")}}))
	w = w.next(1)
	w.wantPages("after the first commit", w.commit(nil).Pages)
}

// If a commit can neither remove pages nor sweep, the next commit sweeps.
func TestSweepAfterFailure(t *testing.T) {
	w := newTestWriter(t, Options{PageBytes: 1000})
	w.peps(1000)
	var failed []string
	w.store.before = func(call string, _ []Page) error {
		if call != "remove" && len(failed) == 0 {
			return nil
		}
		if failed = append(failed, call); call == "update" {
			w.store.before = nil
		}
		return feed.ErrUnavailable
	}
	w.peps(1000)
	if want := []string{"remove", "update"}; !slices.Equal(failed, want) {
		t.Fatalf("failed calls: got %q, want %q", failed, want)
	}
	w.wantPages("after the next commit", w.commit(sourcetest.PEPs(1000)).Pages)
}
