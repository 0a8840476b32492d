package hub

import (
	"context"
	"testing"

	"github.com/rshub/rshub/feed"
)

// While somebody only attends a set, the hub knows where its log ends, and keeps no batch. A
// follower has the window while it follows.
func TestAttend(t *testing.T) {
	h, _ := newHub(t, Options{})
	begin := mustPublish(t, h, "demo", changes("a", 1)).Cursor
	leave := h.Attend("demo")
	known := h.tail("demo")
	kept := func(what string, batches int) {
		t.Helper()
		known.mu.Lock()
		defer known.mu.Unlock()
		if len(known.window) != batches || batches == 0 && known.bytes != 0 {
			t.Errorf("%s: the window has %d batches of %d bytes, want %d batches", what, len(known.window), known.bytes, batches)
		}
	}
	behind := func(what string, after feed.Cursor, changes uint64, oldest int64) {
		t.Helper()
		if n, at := h.Behind("demo", after); n != changes || at != oldest {
			t.Errorf("%s: behind by %d changes since %d, want %d since %d", what, n, at, changes, oldest)
		}
	}
	first := mustPublish(t, h, "demo", changes("b", 3)).Cursor
	kept("attended", 0)
	behind("attended", begin, 3, first.Micros-2)
	behind("attended, at the end", first, 0, 0)

	ctx, cancel := context.WithCancel(t.Context())
	r := follow(ctx, h, "demo", begin)
	r.to(t, first)
	second := mustPublish(t, h, "demo", changes("c", 2)).Cursor
	r.to(t, second)
	kept("followed", 1)
	cancel()
	if err := r.ended(t); err != nil {
		t.Error(err)
	}
	kept("the follower has left", 0)
	behind("the follower has left", begin, 5, first.Micros-2)
	behind("the follower has left, one batch", first, 2, second.Micros-1)

	leave()
	if len(h.tails) != 0 {
		t.Errorf("tails: %v", h.tails)
	}
	behind("nobody is there", begin, 0, 0)
}

// An attendant who comes before anything is known of a log learns where it ends as soon as
// Behind was asked, and the memory was looked at.
func TestAttendUnknown(t *testing.T) {
	h, _ := newHub(t, Options{})
	end := mustPublish(t, h, "demo", changes("a", 3)).Cursor
	leave := h.Attend("demo")
	known := h.tail("demo")
	defer leave()
	first := feed.Cursor{Position: 1, Micros: end.Micros - 2}
	if known.doubtful() {
		t.Error("it is looked for before anybody asks")
	}
	if n, _ := h.Behind("demo", first); n != 0 || !known.doubtful() || len(h.doubted) != 1 {
		t.Fatalf("behind by %d, want 0; whether it is looked for: %v", n, known.doubtful())
	}
	if err := h.compare(t.Context(), h.looks((*tail).doubtful)); err != nil {
		t.Fatal(err)
	}
	if n, oldest := h.Behind("demo", first); n != 2 || oldest != first.Micros || known.doubtful() {
		t.Errorf("behind by %d since %d, want 2 since %d", n, oldest, first.Micros)
	}

	defer h.Attend("none")() // such a set is looked for once
	none := h.tail("none")
	for _, want := range []bool{true, false} {
		if n, _ := h.Behind("none", feed.Cursor{}); n != 0 || none.doubtful() != want {
			t.Errorf("behind by %d in a set that is not there; it is looked for: %v, want %v", n, none.doubtful(), want)
		}
		if err := h.compare(t.Context(), h.looks((*tail).doubtful)); err != nil {
			t.Fatal(err)
		}
	}
}

// What a tail says of followers that are behind does not depend on its window. Of the
// batches that it remembers it says what looking through all of them says.
func TestMarks(t *testing.T) {
	log := newTailLog()
	windowed, attended := &tail{moved: make(chan struct{})}, &tail{moved: make(chan struct{}), headOnly: true}
	var all []*feed.Batch
	for i := range 2*windowBatches + 7 {
		batches := log.batch(1+i%3, 10)
		windowed.add(batches)
		attended.add(batches)
		all = append(all, batches...)
	}
	if len(attended.window) != 0 || len(attended.marks) > windowBatches {
		t.Errorf("%d batches and %d marks are kept", len(attended.window), len(attended.marks))
	}
	for i, b := range all {
		for _, after := range []feed.Cursor{b.After, b.Entries[0].Cursor} {
			changes := log.head.Position - after.Position
			oldest := after.Micros // what is not remembered
			if after == b.Cursor && i+1 < len(all) {
				b = all[i+1]
			}
			if remembered := len(all) - len(attended.marks); i >= remembered || b == all[remembered] {
				for _, e := range b.Entries {
					if e.Position == after.Position+1 {
						oldest = e.Micros
					}
				}
			}
			if changes == 0 {
				oldest = 0
			}
			for name, tail := range map[string]*tail{"windowed": windowed, "attended": attended} {
				if n, at, doubt := tail.before(after); n != changes || at != oldest || doubt {
					t.Fatalf("%s, behind %v: %d changes since %d, want %d since %d (doubt: %v)", name, after, n, at, changes, oldest, doubt)
				}
			}
		}
	}
	attended.forget()
	if n, at, _ := attended.before(all[len(all)-1].After); n == 0 || at != all[len(all)-1].After.Micros {
		t.Errorf("after it forgot: %d changes since %d", n, at)
	}
}
