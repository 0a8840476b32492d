package hub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// watchTail adds a watcher to a tail. wakes returns the number of its calls since the last call
// of wakes.
func watchTail(tail *tail) (wakes func() int) {
	n := 0
	tail.watchers.add(func() { n++ })
	return func() int {
		old := n
		n = 0
		return old
	}
}

// A watcher of a tail is called whenever the tail wakes its followers.
func TestWatchersOfTail(t *testing.T) {
	start := feed.Cursor{Position: 7, Micros: 1_000}
	first := batchAfter(start, 1)
	second := batchAfter(first.Cursor, 1)
	third := batchAfter(second.Cursor, 1)
	tail := &tail{changed: make(chan struct{})}
	wakes := watchTail(tail)
	_, _, changed := tail.after(start)
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"first read", func() { tail.noteRead(start, changed) }, 1},
		{"later read", func() { tail.noteRead(start, changed) }, 0},
		{"append", func() { tail.add([]*feed.Batch{first}) }, 1},
		{"announcement", func() { tail.receive(announcementOf(second)) }, 1},
		{"repeated announcement", func() { tail.receive(announcementOf(second)) }, 0},
		{"announcement without content", func() { tail.receive(announcement{cursor: third.Cursor}) }, 0},
		{"check that finds the same head", func() { tail.check(second.Cursor) }, 0},
		{"check that finds another head", func() { tail.check(third.Cursor) }, 1},
		{"unknown append", tail.invalidate, 1},
		{"deletion", tail.markDeleted, 1},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.do()
			if n := wakes(); n != step.want {
				t.Errorf("got %d calls of wake, want %d", n, step.want)
			}
		})
	}
}

// NoteHead sets an unknown head. It wakes others, but not a caller that is alone.
func TestNoteHead(t *testing.T) {
	head := feed.Cursor{Position: 7, Micros: 1_000}
	other := batchAfter(feed.Cursor{Position: 8, Micros: 2_000}, 1)
	for _, tt := range []struct {
		name   string
		before func(*tail)
		head   feed.Cursor
		others bool
		want   feed.Cursor
		wakes  int
	}{
		{"alone", nil, head, false, head, 0},
		{"with others", nil, head, true, head, 1},
		{"of an empty set", nil, feed.Cursor{}, true, feed.Cursor{}, 0},
		{"after a check", func(tail *tail) { tail.check(other.Cursor) }, head, true, other.Cursor, 0},
		{"after an append", func(tail *tail) { tail.add([]*feed.Batch{other}) }, head, true, other.Cursor, 0},
		{"after a deletion", (*tail).markDeleted, head, true, feed.Cursor{}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tail := &tail{changed: make(chan struct{})}
			if tt.before != nil {
				tt.before(tail)
			}
			wakes := watchTail(tail)
			tail.noteHead(tt.head, tt.others)
			if n := wakes(); tail.head != tt.want || n != tt.wakes {
				t.Errorf("noteHead(%v, %v): head = %v after %d calls of wake, want %v after %d", tt.head, tt.others, tail.head, n, tt.want, tt.wakes)
			}
		})
	}
}

// NoteHead counts the followers of a set, and does nothing without any.
func TestNoteHeadOfSet(t *testing.T) {
	h, _ := newHub(t, Options{})
	head := mustPublish(t, h, "demo", changes("a", 1)).Cursor
	h.NoteHead("demo", head)
	for followers, want := range []int64{0, 1} {
		var wakes atomic.Int64
		release := h.Watch("demo", func() { wakes.Add(1) })
		for range followers {
			defer h.Retain("demo")()
		}
		if h.NoteHead("demo", head); wakes.Load() != want || h.tail("demo").head != head {
			t.Errorf("with %d others: head = %v after %d calls of wake, want %v after %d", followers, h.tail("demo").head, wakes.Load(), head, want)
		}
		release()
	}
}

// A watcher that calls Next after each call of wake receives each change of this hub and of
// another one.
func TestWatchWhilePublishing(t *testing.T) {
	const publishers, each, followers = 4, 40, 6
	h, log := newHub(t, Options{PollInterval: 20 * time.Millisecond})
	stop := runHub(t, h)
	defer stop()
	var publishing, following sync.WaitGroup
	begin := mustPublish(t, h, "demo", changes("begin", 1)).Cursor
	end := begin.Position + publishers*each
	for p := range publishers {
		publishing.Go(func() {
			for i := range each {
				publish := changelog.Publish{Changes: changes(fmt.Sprint(p, "-", i), 1)}
				if p > 0 {
					mustPublish(t, h, "demo", publish.Changes)
				} else if _, err := log.Append(t.Context(), "demo", publish); err != nil { // by another hub
					t.Error(err)
				}
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for f := range followers {
		following.Go(func() {
			wakeup := backoff.NewWakeup()
			release := h.Watch("demo", wakeup.Wake)
			defer func() { release() }()
			after := begin
			for after.Position < end {
				batches, err := h.Next(ctx, "demo", after, 7)
				if err != nil {
					t.Errorf("follower %d: %v", f, err)
					return
				}
				for _, b := range batches {
					if b.After != after || b.Diverged {
						t.Errorf("follower %d: batch starts after %v, want %v", f, b.After, after)
						return
					}
					after = b.Cursor
				}
				if len(batches) == 0 && after.Position < end {
					if f%2 == 0 {
						h.NoteHead("demo", after)
					}
					select {
					case <-wakeup:
					case <-ctx.Done():
						t.Errorf("follower %d: got no call of wake after %v, want changes up to position %d", f, after, end)
						return
					}
				}
				if f%3 == 0 { // Now and then the follower stops and starts again.
					release()
					release = h.Watch("demo", wakeup.Wake)
				}
			}
		})
	}
	publishing.Wait()
	following.Wait()
}

// After release a watcher is not called, and the tail is dropped.
func TestWatchRelease(t *testing.T) {
	h, _ := newHub(t, Options{})
	var released, remaining atomic.Int64
	release := h.Watch("demo", func() { released.Add(1) })
	defer h.Watch("demo", func() { remaining.Add(1) })()
	release()
	if mustPublish(t, h, "demo", changes("a", 1)); released.Load() != 0 || remaining.Load() != 1 {
		t.Errorf("got %d calls after release and %d of the other watcher, want 0 and 1", released.Load(), remaining.Load())
	}
}

func TestWatchSets(t *testing.T) {
	h, log := newHub(t, Options{})
	wakes := 0
	release := h.WatchSets(func() { wakes++ })
	for _, step := range []struct {
		name string
		do   func() error
		wake bool
	}{
		{"first publish", func() error { mustPublish(t, h, "a", changes("a", 1)); return nil }, true},
		{"second publish", func() error { mustPublish(t, h, "a", changes("a", 1)); return nil }, false},
		{"new description", func() error { return h.Describe(t.Context(), "b", feed.Description{Title: "b"}) }, true},
		{"another description", func() error { return h.Describe(t.Context(), "b", feed.Description{Title: "B"}) }, true},
		{"deletion", func() error { return h.Delete(t.Context(), "a") }, true},
		{"after release", func() error { release(); return h.Delete(t.Context(), "b") }, false},
	} {
		t.Run(step.name, func(t *testing.T) {
			wakes = 0
			if err := step.do(); err != nil || (wakes > 0) != step.wake {
				t.Errorf("got %d calls of wake, %v, want any: %v", wakes, err, step.wake)
			}
		})
	}
	if _, err := log.State(t.Context(), "b"); !errors.Is(err, feed.ErrNoSet) {
		t.Errorf("State() of the deleted set = %v, want ErrNoSet", err)
	}
}

// Run reports a configured set only when it creates it.
func TestWatchSetsOfRun(t *testing.T) {
	h, _ := newHub(t, Options{Sets: []string{"demo"}})
	wakes := 0
	defer h.WatchSets(func() { wakes++ })()
	for _, want := range []int{1, 1} {
		if h.maintain(t.Context()); wakes != want {
			t.Errorf("got %d calls of wake, want %d", wakes, want)
		}
	}
}
