package hub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// A testFollower follows a set in its own goroutine, one yield at a time.
type testFollower struct {
	yields chan []*feed.Batch
	err    error // set when yields is closed
	cancel context.CancelFunc
}

func startFollower(t testing.TB, h *Hub, set string, after feed.Cursor) *testFollower {
	ctx, leave := context.WithCancel(t.Context())
	r := &testFollower{yields: make(chan []*feed.Batch), cancel: leave}
	go func() {
		defer close(r.yields)
		for batches, err := range h.Follow(ctx, set, after) {
			if err != nil {
				r.err = err
				return
			}
			r.yields <- batches
		}
	}()
	return r
}

// readTo reads up to a cursor and returns the batches.
func (r *testFollower) readTo(t *testing.T, cur feed.Cursor) []*feed.Batch {
	t.Helper()
	var all []*feed.Batch
	for batches := range r.yields {
		all = append(all, batches...)
		if all[len(all)-1].Cursor == cur {
			return all
		}
	}
	t.Fatalf("Follow stopped before %v: %v", cur, r.err)
	return nil
}

// closeReaders cancels followers and waits for them.
func closeReaders(t *testing.T, readers ...*testFollower) {
	t.Helper()
	for _, r := range readers {
		r.cancel()
		if err := r.wait(t); err != nil {
			t.Error(err)
		}
	}
}

// wait waits for the end of the sequence and returns its error.
func (r *testFollower) wait(t *testing.T) error {
	t.Helper()
	for batches := range r.yields {
		t.Errorf("unexpected batches %v", batches)
	}
	return r.err
}

// Wherever a follower starts, it receives every later position exactly once, even when it
// alternates between the memory and the window.
func TestFollowWhilePublishing(t *testing.T) {
	const publishers, each, followers = 8, 60, 12
	h, log := newHub(t, Options{})
	begin := mustPublish(t, h, "demo", changes("begin", 1500)) // more than one read
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var publishing, following sync.WaitGroup
	var total int
	for p := range publishers {
		for i := range each {
			total += p%3 + i%2 + 1
		}
		publishing.Go(func() {
			for i := range each {
				mustPublish(t, h, "demo", changes(fmt.Sprint(p, "-", i), p%3+i%2+1))
			}
		})
	}
	end := begin.Cursor.Position + uint64(total)
	for f := range followers {
		following.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(f), 1))
			var after feed.Cursor
			if f%3 > 0 {
				st, err := log.State(ctx, "demo")
				if err != nil {
					t.Error(err)
					return
				}
				if after, err = log.At(ctx, "demo", rng.Uint64N(st.Head.Position+1)); err != nil {
					t.Error(err)
					return
				}
			}
			for after.Position < end && ctx.Err() == nil {
				// Now and then the follower stops and begins again, as destinations do.
				for batches, err := range h.Follow(ctx, "demo", after) {
					if err != nil {
						t.Errorf("follower %d: %v", f, err)
						return
					}
					for _, b := range batches {
						if b.After != after && !after.IsZero() || b.Diverged {
							t.Errorf("follower %d: batch starts after %v, want %v", f, b.After, after)
							return
						}
						for i, e := range b.Entries {
							if e.Position != after.Position+uint64(i)+1 {
								t.Errorf("follower %d: position %d, want %d", f, e.Position, after.Position+uint64(i)+1)
								return
							}
						}
						after = b.Cursor
					}
					if after.Position == end || rng.IntN(20) == 0 {
						break
					}
				}
			}
			if after.Position != end {
				t.Errorf("follower %d stopped at %v, want position %d", f, after, end)
			}
		})
	}
	publishing.Wait()
	following.Wait()
}

// Followers that are up to date receive the same batches, so each batch is encoded once.
func TestFollowersShare(t *testing.T) {
	h, _ := newHub(t, Options{})
	head := mustPublish(t, h, "demo", changes("a", 1)).Cursor
	one, two := startFollower(t, h, "demo", head), startFollower(t, h, "demo", head)
	waitFollowers(h, "demo", 2)
	end := mustPublish(t, h, "demo", changes("b", 1)).Cursor // a follower that has just attached may read it from the memory
	one.readTo(t, end)
	two.readTo(t, end)
	end = mustPublish(t, h, "demo", changes("c", 3)).Cursor
	b1, b2 := one.readTo(t, end), two.readTo(t, end)
	if len(b1) != 1 || len(b2) != 1 || b1[0] != b2[0] {
		t.Errorf("followers got different batches %p and %p", b1, b2)
	}
	if &b1[0].JSON()[0] != &b2[0].JSON()[0] {
		t.Error("the batch was encoded twice")
	}
	closeReaders(t, one, two)
}

// waitFollowers waits until a set has n followers.
func waitFollowers(h *Hub, set string, n int) {
	for {
		h.mu.Lock()
		t := h.tails[set]
		ready := t != nil && t.followers == n || t == nil && n == 0
		h.mu.Unlock()
		if ready {
			return
		}
		runtime.Gosched()
	}
}

// A large publish is delivered in parts of bounded size.
func TestFollowSplits(t *testing.T) {
	h, _ := newHub(t, Options{})
	head := mustPublish(t, h, "demo", changes("a", 1)).Cursor
	r := startFollower(t, h, "demo", head)
	waitFollowers(h, "demo", 1)
	end := mustPublish(t, h, "demo", changes("b", 2500)).Cursor
	n := 0
	for _, b := range r.readTo(t, end) {
		if len(b.Entries) > changelog.MaxBlockEntries {
			t.Errorf("a batch has %d entries", len(b.Entries))
		}
		n += len(b.Entries)
	}
	if n != 2500 {
		t.Errorf("%d entries, want 2500", n)
	}
	closeReaders(t, r)
}

// Batches that were evicted from the window are read from the memory.
func TestFollowSlowerThanTheWindow(t *testing.T) {
	h, _ := newHub(t, Options{})
	after := mustPublish(t, h, "demo", changes("a", 1)).Cursor
	r := startFollower(t, h, "demo", after)
	waitFollowers(h, "demo", 1)
	var end feed.Cursor
	for range 3 { // the follower does not read, and each publish is larger than the window
		large := changes("large", 10_000)
		for i := range large {
			large[i].Loc += strings.Repeat("x", 500)
		}
		end = mustPublish(t, h, "demo", large).Cursor
	}
	for _, b := range r.readTo(t, end) {
		if b.After != after || b.Diverged {
			t.Fatalf("batch starts after %v, want %v", b.After, after)
		}
		after = b.Cursor
	}
	closeReaders(t, r)
}

func TestWindowBounds(t *testing.T) {
	log := newTailLog()
	tail := &tail{changed: make(chan struct{})}
	for range 3 * maxWindowBatches {
		tail.add(log.batch(1, 10))
	}
	if n := len(tail.window); n != maxWindowBatches {
		t.Errorf("the window has %d small batches, want %d", n, maxWindowBatches)
	}
	// Large batches push the small ones out of the window, which then are not held any
	// longer.
	for range 200 {
		tail.add(log.batch(1, 300_000))
		if tail.windowBytes > maxWindowBytes || tail.droppedBytes > maxWindowBytes {
			t.Fatalf("the window has %d bytes, and %d evicted bytes behind it", tail.windowBytes, tail.droppedBytes)
		}
	}
	sum := 0
	for i, b := range tail.window {
		sum += b.Size()
		if i > 0 && b.After != tail.window[i-1].Cursor {
			t.Errorf("batch %d is after %v", i, b.After)
		}
	}
	if sum != tail.windowBytes || len(tail.window) != len(tail.batchSizes) {
		t.Errorf("the window has %d bytes, but windowBytes = %d", sum, tail.windowBytes)
	}
	// A batch that is larger than the window still reaches the followers.
	huge := log.batch(1, maxWindowBytes+1)
	tail.add(huge)
	if got, ok, _ := tail.after(huge[0].After); !ok || len(got) != 1 {
		t.Errorf("after() = %v, %v, want the huge batch", got, ok)
	}
}

// After a gap the window starts from scratch. Followers before the gap read the memory.
func TestWindowGap(t *testing.T) {
	log := newTailLog()
	tail := &tail{changed: make(chan struct{})}
	first := log.batch(2, 10)
	tail.add(first)
	log.batch(1, 10) // not added
	third := log.batch(1, 10)
	_, _, moved := tail.after(first[0].Cursor)
	tail.add(third)
	select {
	case <-moved:
	default:
		t.Error("followers were not woken")
	}
	for _, test := range []struct {
		name  string
		after feed.Cursor
		ok    bool
		n     int
	}{
		{"before the gap", first[0].After, false, 0},
		{"in the gap", first[0].Cursor, false, 0},
		{"behind the gap", third[0].After, true, 1},
		{"at the head", third[0].Cursor, true, 0},
		{"another history", feed.Cursor{Position: third[0].After.Position, Micros: 1}, false, 0},
		{"zero", feed.Cursor{}, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, ok, _ := tail.after(test.after); ok != test.ok || len(got) != test.n {
				t.Errorf("after(%v) = %d batches, %v", test.after, len(got), ok)
			}
		})
	}
}

// A tailLog makes consecutive batches.
type tailLog struct{ head feed.Cursor }

func newTailLog() *tailLog { return &tailLog{feed.Cursor{Position: 10, Micros: 1e15}} }

func (l *tailLog) batch(n, bytes int) []*feed.Batch {
	cs := changes("a", n)
	cs[0].Hash = strings.Repeat("a", bytes)
	after := l.head
	l.head = feed.Cursor{Position: after.Position + uint64(n), Micros: after.Micros + int64(n) + 5}
	return []*feed.Batch{feed.NewBatch("demo", after, l.head, cs)}
}

func TestFollowEnds(t *testing.T) {
	for _, test := range []struct {
		name   string
		follow func(t *testing.T, h *Hub, log *testLog) *testFollower
		want   error
	}{
		{"trimmed", func(t *testing.T, h *Hub, log *testLog) *testFollower {
			first := mustPublish(t, h, "demo", changes("a", 1)).Cursor
			mustPublish(t, h, "demo", changes("b", 50))
			if n, err := log.Trim(t.Context(), "demo", changelog.Retention{Count: 5}); err != nil || n == 0 {
				t.Fatalf("Trim() = %d, %v", n, err)
			}
			return startFollower(t, h, "demo", first)
		}, feed.ErrGone},
		{"a cursor of a set that was never made", func(t *testing.T, h *Hub, _ *testLog) *testFollower {
			return startFollower(t, h, "demo", feed.Cursor{Position: 3, Micros: 4})
		}, feed.ErrGone},
		{"deleted while waiting", func(t *testing.T, h *Hub, _ *testLog) *testFollower {
			r := startFollower(t, h, "demo", mustPublish(t, h, "demo", changes("a", 1)).Cursor)
			waitFollowers(h, "demo", 1)
			if err := h.Delete(t.Context(), "demo"); err != nil {
				t.Fatal(err)
			}
			return r
		}, feed.ErrGone},
		{"deleted and made again", func(t *testing.T, h *Hub, log *testLog) *testFollower {
			head := mustPublish(t, h, "demo", changes("a", 1)).Cursor
			if err := h.Delete(t.Context(), "demo"); err != nil {
				t.Fatal(err)
			}
			mustPublish(t, h, "demo", changes("b", 1))
			return startFollower(t, h, "demo", head)
		}, feed.ErrGone},
		{"damaged", func(t *testing.T, h *Hub, log *testLog) *testFollower {
			log.onSince = func() error { return changelog.ErrCorrupt }
			return startFollower(t, h, "demo", feed.Cursor{})
		}, changelog.ErrCorrupt},
		{"the follower leaves", func(t *testing.T, h *Hub, log *testLog) *testFollower {
			r := startFollower(t, h, "demo", feed.Cursor{})
			waitFollowers(h, "demo", 1)
			r.cancel()
			return r
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, log := newHub(t, Options{ListSize: 10})
			if err := test.follow(t, h, log).wait(t); !errors.Is(err, test.want) {
				t.Errorf("Follow stopped with %v, want %v", err, test.want)
			}
			waitFollowers(h, "demo", 0)
		})
	}
}

// A set that does not exist yet can be followed from the zero cursor, including its first
// change.
func TestFollowBeforeTheSetIsMade(t *testing.T) {
	h, _ := newHub(t, Options{})
	r := startFollower(t, h, "demo", feed.Cursor{})
	waitFollowers(h, "demo", 1)
	for range 3 { // it continues like any other follower
		end := mustPublish(t, h, "demo", changes("a", 2)).Cursor
		if got := r.readTo(t, end); got[len(got)-1].Entries[1].Position != end.Position {
			t.Errorf("got %+v", got)
		}
	}
	closeReaders(t, r)
}

// A follower whose cursor is among entries that the memory lost receives Diverged and
// continues.
func TestFollowDiverged(t *testing.T) {
	h, _ := newHub(t, Options{})
	head := mustPublish(t, h, "demo", changes("a", 2)).Cursor
	r := startFollower(t, h, "demo", feed.Cursor{Position: head.Position + 5, Micros: head.Micros + 5})
	batches := <-r.yields
	if len(batches) != 1 || !batches[0].Diverged || batches[0].After.Position != 0 || len(batches[0].Entries) != 2 {
		t.Errorf("first batches = %+v", batches)
	}
	end := mustPublish(t, h, "demo", changes("b", 1)).Cursor
	if got := r.readTo(t, end); got[0].Diverged {
		t.Error("Diverged was reported twice")
	}
	closeReaders(t, r)
}

// While the memory is unavailable, a follower waits, longer after each failure up to a limit.
// Then it continues as if nothing had happened.
func TestFollowWaitsForTheMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, log := newHub(t, Options{})
		end := mustPublish(t, h, "demo", changes("a", 3)).Cursor
		var tries []time.Time
		log.onSince = func() error {
			switch tries = append(tries, time.Now()); {
			case len(tries) > 20:
				return nil
			case len(tries)%2 == 0:
				return fmt.Errorf("read: %w", context.DeadlineExceeded)
			}
			return fmt.Errorf("read: %w", feed.ErrUnavailable)
		}
		r := startFollower(t, h, "demo", feed.Cursor{})
		if got := r.readTo(t, end); len(got) != 1 || len(got[0].Entries) != 3 {
			t.Errorf("got %+v", got)
		}
		closeReaders(t, r)
		for i := range 20 { // only the failed attempts, not the reads after them
			if d := tries[i+1].Sub(tries[i]); d < 50*time.Millisecond || d > 5*time.Second || i > 10 && d < 2*time.Second {
				t.Errorf("attempt %d came %v after the previous one", i+2, d)
			}
		}
	})
}

// Retention removes old entries without affecting followers that are up to date.
func TestRunAppliesRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, log := newHub(t, Options{ListSize: 10, Retention: changelog.Retention{Age: time.Hour}})
		stop := runHub(t, h)
		mustPublish(t, h, "demo", changes("a", 35))
		floor := func() uint64 { return mustState(t, log, "demo").Floor.Position }
		<-time.After(59 * time.Minute) // fake time: it takes none
		if got := floor(); got != 0 {
			t.Errorf("floor = %d before the hour, want 0", got)
		}
		<-time.After(5 * time.Minute)
		if got := floor(); got != 20 {
			t.Errorf("floor = %d after the hour, want 20: the newest closed list stays", got)
		}
		stop()
	})
}

// Next returns what Follow would yield first, from the window or from the memory, without
// waiting.
func TestNext(t *testing.T) {
	h, _ := newHub(t, Options{})
	first := mustPublish(t, h, "a", changes("a", 3))
	for range 2 { // without a window, and with one
		leave := h.Retain("a")
		defer leave()
		batches, err := h.Next(t.Context(), "a", first.After, 2)
		if err != nil || len(batches) != 1 || batches[0].After != first.After || len(batches[0].Entries) == 0 {
			t.Fatalf("%d batches: %v", len(batches), err)
		}
		head := mustPublish(t, h, "a", changes("b", 2))
		if batches, err = h.Next(t.Context(), "a", first.Cursor, pageEntries); err != nil || batches[len(batches)-1].Cursor != head.Cursor {
			t.Errorf("%d batches after %v: %v", len(batches), first.Cursor, err)
		}
		if batches, err = h.Next(t.Context(), "a", head.Cursor, pageEntries); err != nil || len(batches) != 0 {
			t.Errorf("Next at the head: %d batches, %v", len(batches), err)
		}
	}
	if _, err := h.Next(t.Context(), "a", feed.Cursor{Position: 1, Micros: 1}, pageEntries); !errors.Is(err, feed.ErrGone) {
		t.Errorf("%v, want ErrGone", err)
	}
}
