package hub

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
)

// The number of concurrent reads by followers that are behind is bounded.
func TestReadsAreBounded(t *testing.T) {
	h, log := newHub(t, Options{})
	const followers = 100
	head := mustPublish(t, h, "a", changes("a", followers)).Cursor
	var reading, most atomic.Int64
	held := make(chan struct{})
	log.onSince = func() error {
		most.Store(max(reading.Add(1), most.Load()))
		<-held
		reading.Add(-1)
		return nil
	}
	var readers []*testFollower
	for i := range followers { // each at another cursor, so that none waits for what another one reads
		at := feed.Cursor{Position: head.Position - uint64(i+1), Micros: head.Micros - int64(i+1)}
		if at.Position == 0 {
			at = feed.Cursor{}
		}
		readers = append(readers, startFollower(t, h, "a", at))
	}
	stack := make([]byte, 4<<20)
	testutil.Until(t, "all want to read", func() bool {
		return strings.Count(string(stack[:runtime.Stack(stack, true)]), "hub.(*pageCache).readPage(") == followers
	})
	if n := most.Load(); n > maxPageReads {
		t.Errorf("%d of %d followers read concurrently", n, followers)
	}
	close(held)
	for _, r := range readers {
		<-r.yields
	}
	closeReaders(t, readers...)
	if n := len(h.pages.reads); n != 0 {
		t.Errorf("%d reads are still in progress", n)
	}
}

// Followers that catch up at the same time share reads and encodings. They receive what a read
// of the memory returns.
func TestPagesAreShared(t *testing.T) {
	h, log := newHub(t, Options{})
	const entries, followers = 5_500, 50
	var head feed.Cursor
	for range entries / 500 {
		head = mustPublish(t, h, "a", changes("a", 500)).Cursor
	}
	want, err := log.Log.Since(t.Context(), "a", feed.Cursor{}, entries)
	if err != nil || len(want.Entries) == 0 {
		t.Fatal(want, err)
	}
	var reads atomic.Int64
	log.onSince = func() error { reads.Add(1); return nil }
	var all sync.WaitGroup
	var readers []*testFollower
	seen := make([]map[*feed.Batch]bool, followers)
	for i := range followers {
		seen[i] = map[*feed.Batch]bool{}
		first := want.Entries[i%7].Cursor // they begin at different cursors
		r := startFollower(t, h, "a", first)
		readers = append(readers, r)
		all.Go(func() {
			at := first
			for at != head {
				batches, ok := <-r.yields
				if !ok {
					t.Errorf("follower %d stopped: %v", i, r.err)
					return
				}
				for _, b := range batches {
					if b.After != at || len(b.Entries) != int(b.Cursor.Position-at.Position) {
						t.Errorf("follower %d at %v got %d entries after %v", i, at, len(b.Entries), b.After)
						return
					}
					at, seen[i][b] = b.Cursor, true
				}
			}
		})
	}
	all.Wait()
	closeReaders(t, readers...)
	shared := 0
	for b := range seen[0] {
		if seen[1][b] {
			shared++
		}
	}
	if shared < entries/pageEntries-1 {
		t.Errorf("two followers shared %d batches", shared)
	}
	// Seven first pages, the others, and at the end of the log one for each follower at most.
	if n := reads.Load(); n > 7+entries/pageEntries+2*followers {
		t.Errorf("%d followers read %d times", followers, n)
	}
}

// A blockingLog holds back the result of its first read.
type blockingLog struct {
	changelog.Log
	once    sync.Once
	found   chan struct{}
	release chan struct{}
}

func (l *blockingLog) Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	b, err := l.Log.Since(ctx, set, after, limit)
	l.once.Do(func() {
		close(l.found)
		<-l.release
	})
	return b, err
}

// A page requested after a publish contains it, even while a read is in progress that found
// nothing before the publish.
func TestSharedPageIsNotStale(t *testing.T) {
	h, log := newHub(t, Options{})
	at := mustPublish(t, h, "a", changes("a", 1)).Cursor
	held := &blockingLog{Log: log, found: make(chan struct{}), release: make(chan struct{})}
	h.pages.log = held
	entries := func() chan int {
		n := make(chan int, 1)
		go func() {
			page, _, err := h.pages.page(t.Context(), "a", at, pageEntries)
			if err != nil {
				t.Error(err)
			}
			n <- len(page)
		}()
		return n
	}
	before := entries()
	<-held.found
	mustPublish(t, h, "a", changes("a", 1))
	after := entries()
	stack := make([]byte, 4<<20)
	testutil.Until(t, "both want the page", func() bool {
		return strings.Count(string(stack[:runtime.Stack(stack, true)]), "flight.(*Group[...]).Do(") == 2
	})
	close(held.release)
	if n := <-before; n != 0 {
		t.Errorf("read before the publish returned %d batches, want none", n)
	}
	if n := <-after; n != 1 {
		t.Errorf("page after the publish returned %d batches, want 1", n)
	}
}

// After a set was deleted, none of its pages is returned. If another hub deletes it, that
// takes effect at the next check, even if a new set of the same name has a later head.
func TestPagesOfDeletedSet(t *testing.T) {
	for name, remove := range map[string]func(*Hub, *testLog) error{
		"by this hub": func(h *Hub, _ *testLog) error { return h.Delete(t.Context(), "a") },
		"by another hub": func(h *Hub, log *testLog) error {
			h.applyRetention(t.Context())
			return errors.Join(log.Delete(t.Context(), "a"), log.Make(t.Context(), "a", feed.Description{}, 10))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, log := newHub(t, Options{PollInterval: time.Second})
			mustPublish(t, h, "a", changes("a", 1))
			after := mustPublish(t, h, "a", changes("a", 2*pageEntries)).After
			page, _, err := h.pages.page(t.Context(), "a", after, pageEntries)
			if err != nil || len(page) != 1 || len(page[0].Entries) != pageEntries-1 {
				t.Fatal(page, err)
			}
			again, shared, _ := h.pages.page(t.Context(), "a", after, pageEntries)
			if len(again) != 1 || again[0] != page[0] || !shared {
				t.Fatal("the page is not cached")
			}
			if err := remove(h, log); err != nil {
				t.Fatal(err)
			}
			h.applyRetention(t.Context())
			if page, _, err := h.pages.page(t.Context(), "a", after, pageEntries); !errors.Is(err, feed.ErrGone) {
				t.Errorf("page of a deleted set = %d batches, %v", len(page), err)
			}
		})
	}
}

// Once a follower has detected that a log lost entries, no page from before the loss is
// returned.
func TestPagesAfterALoss(t *testing.T) {
	h, _ := newHub(t, Options{})
	after := mustPublish(t, h, "a", changes("a", 1)).Cursor
	head := mustPublish(t, h, "a", changes("a", 2*pageEntries)).Cursor
	first, _, err := h.pages.page(t.Context(), "a", after, pageEntries)
	if err != nil {
		t.Fatal(err)
	}
	lost := feed.Cursor{Position: head.Position + 5, Micros: head.Micros + 5}
	if page, _, err := h.pages.page(t.Context(), "a", lost, pageEntries); err != nil || !page[0].Diverged {
		t.Fatalf("page after the head = %v, %v", page, err)
	}
	if page, _, err := h.pages.page(t.Context(), "a", after, pageEntries); err != nil || page[0] == first[0] {
		t.Errorf("the page read before the loss is still returned; err = %v", err)
	}
}

// Unused pages are dropped after a while.
func TestIdlePagesAreDropped(t *testing.T) {
	h, _ := newHub(t, Options{})
	mustPublish(t, h, "a", changes("a", 1))
	after := mustPublish(t, h, "a", changes("a", pageEntries)).After
	page := func() *feed.Batch {
		p, _, err := h.pages.page(t.Context(), "a", after, pageEntries)
		if err != nil || len(p) != 1 {
			t.Fatal(p, err)
		}
		return p[0]
	}
	first := page()
	h.pages.clearIdle()
	if page() != first {
		t.Error("clearIdle dropped a page used since the last call")
	}
	h.pages.clearIdle()
	h.pages.clearIdle()
	if page() == first {
		t.Error("clearIdle kept an unused page")
	}
}
