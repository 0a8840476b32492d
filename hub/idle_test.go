package hub

import (
	"fmt"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
)

// The window of an idle set is dropped without affecting the followers.
func TestIdleWindowIsDropped(t *testing.T) {
	h, _ := newHub(t, Options{})
	begin := mustPublish(t, h, "demo", changes("a", 1)).Cursor
	r := startFollower(t, h, "demo", begin)
	waitFollowers(h, "demo", 1)
	at := begin
	for range 40 {
		at = mustPublish(t, h, "demo", changes("b", 1000)).Cursor
		r.readTo(t, at)
	}
	tail := h.tail("demo")
	h.maintain(t.Context())
	if tail.windowBytes < maxWindowBytes/2 {
		t.Errorf("the window of an active set has %d bytes", tail.windowBytes)
	}
	last := mustPublish(t, h, "demo", changes("c", 10))
	r.readTo(t, last.Cursor)
	h.maintain(t.Context())
	h.maintain(t.Context())
	if tail.windowBytes > 0 || tail.window != nil {
		t.Errorf("the window of an idle set has %d bytes and %d batches, want none", tail.windowBytes, len(tail.window))
	}
	next := mustPublish(t, h, "demo", changes("d", 1)).Cursor
	if got := r.readTo(t, next); len(got) != 1 || got[0].After != last.Cursor {
		t.Errorf("got %d batches after %v", len(got), got[0].After)
	}
	closeReaders(t, r)
}

// A follower that is behind on an idle set is as old as the oldest change that it has not
// received, not as the cursor before a long pause.
func TestLagOfIdleSet(t *testing.T) {
	start := feed.Cursor{Position: 7, Micros: 1_000}
	b := batchAfter(feed.Cursor{Position: 7, Micros: 1_000_000}, 2)
	b.After = start
	next := batchAfter(b.Cursor, 3)
	first := b.Entries[0].Cursor
	tail := &tail{changed: make(chan struct{})}
	tail.check(start)
	tail.receive(announcementOf(b))
	tail.shrinkIdle()
	tail.shrinkIdle()
	for _, tt := range []struct {
		name    string
		do      func()
		after   feed.Cursor
		changes uint64
		oldest  int64
	}{
		{"at the head", nil, b.Cursor, 0, 0},
		{"before the dropped window", nil, start, 2, first.Micros},
		{"inside the dropped window", nil, first, 1, first.Micros},
		{"further behind", nil, feed.Cursor{Position: 5, Micros: 900}, 4, 900},
		{"before the dropped window, after an append", func() { tail.add([]*feed.Batch{next}) }, start, 5, first.Micros},
		{"in the new window", nil, b.Cursor, 3, next.Entries[0].Micros},
		{"after a loss", func() { tail.check(first) }, start, 1, start.Micros},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.do != nil {
				tt.do()
			}
			if changes, oldest := tail.lag(tt.after); changes != tt.changes || oldest != tt.oldest {
				t.Errorf("lag(%v) = %d, %d, want %d, %d", tt.after, changes, oldest, tt.changes, tt.oldest)
			}
		})
	}
}

// An idle set with a follower uses little memory.
func TestIdleTailMemory(t *testing.T) {
	const sets, most = 10_000, 2 << 10
	h, _ := newHub(t, Options{})
	releases := make([]func(), sets)
	wakes := 0
	wake := func() { wakes++ }
	total := testutil.RetainedBytes(t, func() any {
		for i := range sets {
			set := fmt.Sprint("org.example.repository-", i)
			releases[i] = h.Watch(set, wake)
			log := newTailLog()
			tail := h.tail(set)
			tail.check(log.head)
			tail.add(log.batch(1, 1000))
			tail.add(log.batch(10, 1000))
			for _, b := range tail.window {
				b.JSON()
			}
		}
		for range 2 {
			for _, c := range h.startChecks(nil) {
				c.tail.shrinkIdle()
			}
		}
		return h
	})
	per := total / sets
	t.Logf("%d bytes for each idle tail", per)
	if per > most || wakes != 3*sets {
		t.Errorf("got %d bytes for each idle tail and %d calls of wake, want at most %d and %d", per, wakes, most, 3*sets)
	}
	for _, release := range releases {
		release()
	}
}
