package hub

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// A follower at the head reads the memory unless nothing has followed the head since the hub
// learned of it.
func TestAfterAtHead(t *testing.T) {
	head := feed.Cursor{Position: 7, Micros: 1_000}
	b := batchAfter(head, 1)
	later := batchAfter(b.Cursor, 1)
	read := func(tail *tail, end feed.Cursor) {
		_, _, changed := tail.after(end)
		tail.noteRead(end, changed)
	}
	shrink := func(tail *tail) {
		tail.shrinkIdle()
		tail.shrinkIdle()
	}
	for _, tt := range []struct {
		name   string
		before func(*tail)
		cursor feed.Cursor
		ok     bool
	}{
		{"unknown", func(*tail) {}, head, false},
		{"unknown, zero cursor", func(*tail) {}, feed.Cursor{}, false},
		{"no set", func(tail *tail) { tail.check(feed.Cursor{}) }, feed.Cursor{}, false},
		{"read", func(tail *tail) { read(tail, head) }, head, true},
		{"read, another history", func(tail *tail) { read(tail, head) }, feed.Cursor{Position: 7, Micros: 999}, false},
		{"head noted", func(tail *tail) { tail.noteHead(head, false) }, head, true},
		{"head noted, earlier cursor", func(tail *tail) { tail.noteHead(b.Cursor, false) }, head, false},
		{"check", func(tail *tail) { tail.check(head) }, head, true},
		{"check finds a later head", func(tail *tail) { read(tail, head); tail.check(b.Cursor) }, head, false},
		{"check finds an earlier head", func(tail *tail) { read(tail, b.Cursor); tail.check(head) }, b.Cursor, false},
		{"check finds no set", func(tail *tail) { read(tail, head); tail.check(feed.Cursor{}) }, head, false},
		{"at the head of a check", func(tail *tail) { read(tail, head); tail.check(b.Cursor) }, b.Cursor, true},
		{"append", func(tail *tail) { tail.add([]*feed.Batch{b}) }, b.Cursor, true},
		{"append, idle", func(tail *tail) { tail.add([]*feed.Batch{b}); shrink(tail) }, b.Cursor, true},
		{"append, idle, earlier cursor", func(tail *tail) { tail.add([]*feed.Batch{b}); shrink(tail) }, head, false},
		{"append after a gap", func(tail *tail) { read(tail, head); tail.add([]*feed.Batch{later}) }, head, false},
		{"announcement, idle", func(tail *tail) { read(tail, head); tail.receive(announcementOf(b)); shrink(tail) }, b.Cursor, true},
		{"unknown append", func(tail *tail) { read(tail, head); tail.invalidate() }, head, false},
		{"unknown append after an append", func(tail *tail) { tail.add([]*feed.Batch{b}); tail.invalidate() }, b.Cursor, false},
		{"unknown append, idle", func(tail *tail) { tail.add([]*feed.Batch{b}); tail.invalidate(); shrink(tail) }, b.Cursor, false},
		{"unknown append, read", func(tail *tail) { read(tail, head); tail.invalidate(); read(tail, head) }, head, true},
		{"unknown append, later read", func(tail *tail) { read(tail, head); tail.invalidate(); read(tail, b.Cursor) }, b.Cursor, true},
		{"unknown append, earlier read", func(tail *tail) { read(tail, b.Cursor); tail.invalidate(); read(tail, head) }, head, false},
		{"unknown append, head noted", func(tail *tail) { read(tail, head); tail.invalidate(); tail.noteHead(head, true) }, head, false},
		{"unknown append, check", func(tail *tail) { read(tail, head); tail.invalidate(); tail.check(head) }, head, true},
		{"unknown append during a check", func(tail *tail) {
			read(tail, head)
			c := tail.startCheck()
			tail.invalidate()
			tail.finishCheck(c, head)
		}, head, false},
		{"unknown append during a read", func(tail *tail) {
			read(tail, head)
			_, _, changed := tail.after(head)
			tail.invalidate()
			tail.noteRead(head, changed)
		}, head, false},
		{"deletion", func(tail *tail) { read(tail, head); tail.markDeleted() }, head, false},
		{"deletion, zero cursor", func(tail *tail) { read(tail, head); tail.markDeleted() }, feed.Cursor{}, false},
		{"deletion, head noted", func(tail *tail) { tail.markDeleted(); tail.noteHead(head, true) }, head, false},
		{"deletion during a check", func(tail *tail) {
			c := tail.startCheck()
			tail.markDeleted()
			tail.finishCheck(c, head)
		}, head, false},
		{"deletion during a read", func(tail *tail) {
			_, _, changed := tail.after(head)
			tail.markDeleted()
			tail.noteRead(head, changed)
		}, head, false},
		{"read during a check", func(tail *tail) {
			c := tail.startCheck()
			read(tail, b.Cursor)
			tail.finishCheck(c, head)
		}, head, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tail := &tail{changed: make(chan struct{})}
			tt.before(tail)
			if batches, ok, _ := tail.after(tt.cursor); ok != tt.ok || len(batches) > 0 {
				t.Errorf("after(%v) = %d batches, %v, want none, %v", tt.cursor, len(batches), ok, tt.ok)
			}
		})
	}
}

// At the head of an idle tail, Next reads the memory only if there may be something to read.
func TestNextAtIdleTail(t *testing.T) {
	h, log := newHub(t, Options{})
	head := mustPublish(t, h, "demo", changes("a", 1)).Cursor
	reads, wakes := 0, 0
	log.onSince = func() error { reads++; return nil }
	defer h.Watch("demo", func() { wakes++ })()
	tail := h.tail("demo")
	for _, step := range []struct {
		name           string
		do             func()
		batches, reads int
		err            error
	}{
		{"first", func() {}, 0, 1, nil},
		{"known head", func() {}, 0, 0, nil},
		{"append", func() { mustPublish(t, h, "demo", changes("b", 1)) }, 1, 0, nil},
		{"window", func() {}, 0, 0, nil},
		{"active", tail.shrinkIdle, 0, 0, nil},
		{"idle", tail.shrinkIdle, 0, 0, nil},
		{"check", func() { tail.check(head) }, 0, 0, nil},
		{"unknown append", func() {
			log.onAppend = func(ctx context.Context, publishes []changelog.Publish) error {
				_, err := log.Log.Append(ctx, "demo", publishes...)
				return errors.Join(err, fmt.Errorf("append: %w", feed.ErrUnknown))
			}
			if _, err := h.Publish(t.Context(), "demo", changelog.Publish{Changes: changes("c", 1)}); !errors.Is(err, feed.ErrUnknown) {
				t.Fatalf("Publish() = %v, want ErrUnknown", err)
			}
		}, 1, 1, nil},
		{"end after the unknown append", func() {}, 0, 1, nil},
		{"known end", func() {}, 0, 0, nil},
		{"deletion", func() {
			if err := h.Delete(t.Context(), "demo"); err != nil {
				t.Fatal(err)
			}
		}, 0, 1, feed.ErrGone},
	} {
		reads = 0
		step.do()
		batches, err := h.Next(t.Context(), "demo", head, pageEntries)
		if len(batches) != step.batches || reads != step.reads || !errors.Is(err, step.err) {
			t.Errorf("%s: Next(%v) = %d batches, %v, after %d reads, want %d, %v, after %d", step.name, head, len(batches), err, reads, step.batches, step.err, step.reads)
		}
		for _, b := range batches {
			head = b.Cursor
		}
	}
	if wakes != 5 { // first read, append, unknown append, its end, and deletion
		t.Errorf("got %d calls of wake, want 5", wakes)
	}
}
