package hub

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
)

// announcementOf returns the announcement of a batch.
func announcementOf(b *feed.Batch) announcement { return announcement{b.Cursor, b} }

// check checks the tail against a memory with the given head.
func (t *tail) check(head feed.Cursor) (unannounced bool) {
	unannounced, _ = t.finishCheck(t.startCheck(), head)
	return unannounced
}

// A tail accepts from other hubs only what follows its head. It requests a check for what may
// follow later, and ignores earlier entries as late.
func TestReceiveAnnouncements(t *testing.T) {
	start := feed.Cursor{Position: 7, Micros: 1_000}
	first := batchAfter(start, 3)
	second := batchAfter(first.Cursor, 2)
	third := batchAfter(second.Cursor, 1)
	inside := batchAfter(first.Entries[1].Cursor, 5)
	lost := batchAfter(feed.Cursor{Position: second.Cursor.Position, Micros: 5}, 1)
	dated := batchAfter(feed.Cursor{Position: start.Position, Micros: start.Micros + 1}, 3)
	bare := func(b *feed.Batch) announcement { return announcement{cursor: b.Cursor} }
	for _, test := range []struct {
		name  string
		heard []announcement
		doubt bool
		after feed.Cursor
		want  int // number of batches after the cursor; -1: the memory has to be read
	}{
		{"the first", []announcement{announcementOf(first)}, false, start, 1},
		{"in order", []announcement{announcementOf(first), announcementOf(second)}, false, start, 2},
		{"up to date", []announcement{announcementOf(first), announcementOf(second)}, false, second.Cursor, 0},
		{"twice", []announcement{announcementOf(first), announcementOf(second), announcementOf(second), announcementOf(first)}, false, start, 2},
		{"with a gap", []announcement{announcementOf(first), announcementOf(third)}, true, start, 1},
		{"reordered", []announcement{announcementOf(second), announcementOf(first)}, true, start, 1},
		{"the first is not the next", []announcement{announcementOf(second)}, true, first.Cursor, -1},
		{"after the middle", []announcement{announcementOf(first), announcementOf(inside)}, true, start, 1},
		{"after another entry with the position", []announcement{announcementOf(dated)}, true, dated.After, -1},
		{"of an earlier history", []announcement{announcementOf(first), announcementOf(second), announcementOf(lost)}, false, second.Cursor, 0},
		{"without content", []announcement{announcementOf(first), bare(second)}, true, start, 1},
		{"late, without content", []announcement{announcementOf(first), announcementOf(second), bare(first)}, false, start, 2},
		{"a deletion", []announcement{announcementOf(first), {cursor: feed.Cursor{Micros: 1}}}, true, start, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			tail := &tail{changed: make(chan struct{})}
			tail.check(start)
			doubt := false
			for _, a := range test.heard {
				if !tail.receive(a) {
					doubt = true
				}
			}
			if doubt != test.doubt || tail.needsCheck() != test.doubt {
				t.Errorf("check requested: %v, want %v", doubt, test.doubt)
			}
			batches, ok, _ := tail.after(test.after)
			if ok != (test.want >= 0) || ok && len(batches) != test.want {
				t.Errorf("after() = %d batches, %v, want %d", len(batches), ok, test.want)
			}
			tail.check(third.Cursor)
			if _, ok, _ := tail.after(start); tail.needsCheck() || tail.head != third.Cursor || ok {
				t.Error("the check did not update the tail")
			}
		})
	}
}

// A check wakes followers only if the memory changed.
func TestFinishCheckWakesFollowers(t *testing.T) {
	start := feed.Cursor{Position: 7, Micros: 1_000}
	b := batchAfter(start, 1)
	tail := &tail{changed: make(chan struct{})}
	for _, step := range []struct {
		name  string
		add   *feed.Batch
		head  feed.Cursor
		wakes bool
	}{
		{"there is no set", nil, feed.Cursor{}, false},
		{"the first poll", nil, start, true},
		{"nothing new", nil, start, false},
		{"announced", b, b.Cursor, false},
		{"not announced", nil, feed.Cursor{Position: 9, Micros: 2_000}, true},
		{"nothing new again", nil, feed.Cursor{Position: 9, Micros: 2_000}, false},
		{"lost its tail", nil, b.Cursor, true},
		{"the set was deleted", nil, feed.Cursor{}, true},
	} {
		if step.add != nil {
			tail.receive(announcementOf(step.add))
		}
		_, _, moved := tail.after(start)
		tail.check(step.head)
		woken := false
		select {
		case <-moved:
			woken = true
		default:
		}
		if woken != step.wakes || tail.head != step.head {
			t.Errorf("%s: woken = %v, head = %v", step.name, woken, tail.head)
		}
	}
}

// Batches added during a check are newer than its result. Announcements received during a
// check require another one.
func TestCheckOvertakenByAppend(t *testing.T) {
	start := feed.Cursor{Position: 7, Micros: 1_000}
	first := batchAfter(start, 1)
	second := batchAfter(first.Cursor, 1)
	third := batchAfter(second.Cursor, 1)
	tail := &tail{changed: make(chan struct{})}
	tail.check(start)

	l := tail.startCheck()
	tail.receive(announcementOf(first))
	if _, settled := tail.finishCheck(l, start); tail.head != first.Cursor || len(tail.window) != 1 || !settled {
		t.Errorf("an outdated check changed head to %v", tail.head)
	}
	l = tail.startCheck()
	tail.receive(announcementOf(third))
	if _, settled := tail.finishCheck(l, first.Cursor); settled {
		t.Error("a check served a request made after it started")
	}
	l = tail.startCheck()
	tail.add([]*feed.Batch{second})
	if _, settled := tail.finishCheck(l, second.Cursor); settled || tail.head != second.Cursor {
		t.Error("an overtaken check served a request")
	}
	if _, settled := tail.finishCheck(tail.startCheck(), third.Cursor); !settled || tail.head != third.Cursor {
		t.Error("the last check did not serve the request")
	}
	// The hub's own append comes after what follows it.
	if tail.add([]*feed.Batch{second}) || tail.head != third.Cursor {
		t.Error("head moved back")
	}
}

// If a follower finds the end of the log before the tail knows it, another follower that waits
// for earlier entries is woken.
func TestNoteReadWakesFollowers(t *testing.T) {
	tail := &tail{changed: make(chan struct{})}
	_, _, waits := tail.after(feed.Cursor{Position: 1, Micros: 1})
	_, _, moved := tail.after(feed.Cursor{Position: 2, Micros: 2})
	now := tail.noteRead(feed.Cursor{Position: 2, Micros: 2}, moved)
	select {
	case <-waits:
	default:
		t.Error("the waiting follower was not woken")
	}
	select {
	case <-now:
		t.Error("noteRead returned a closed channel")
	default:
	}
	if tail.noteRead(feed.Cursor{Position: 1, Micros: 1}, now) != now || tail.head.Position != 2 {
		t.Error("head moved back")
	}
}

// A set is deleted and created again with earlier datetimes, because the clock was ahead when
// the old set received its last changes. Followers receive what is published to the new set.
func TestSetRecreatedWithEarlierDatetimes(t *testing.T) {
	tail := &tail{changed: make(chan struct{})}
	ahead := batchAfter(feed.Cursor{Position: 7, Micros: 1e15}, 1)
	tail.add([]*feed.Batch{ahead})
	l := tail.startCheck()
	tail.markDeleted()
	tail.finishCheck(l, ahead.Cursor)
	first := batchAfter(feed.Cursor{Micros: 1_000}, 1)
	if !tail.add([]*feed.Batch{first}) || tail.head != first.Cursor {
		t.Errorf("head = %v", tail.head)
	}
	// Another hub does the same with the set.
	tail.add([]*feed.Batch{ahead})
	tail.receive(announcement{cursor: feed.Cursor{Micros: 2_000}})
	if tail.check(first.Cursor); tail.head != first.Cursor || tail.needsCheck() {
		t.Errorf("head = %v", tail.head)
	}
}

// withBus returns a hub with a Bus that has no NATS connection, and a memory with a secret.
func withBus(t *testing.T, o Options) (*Hub, *testLog, *Bus) {
	bus := &Bus{opts: NATSOptions{Logger: slog.New(slog.DiscardHandler)}, queue: make(chan queuedAppend, maxQueuedAppends)}
	bus.metrics = newBusMetrics(prometheus.NewRegistry(), func() bool { return false })
	bus.subscriptions = newSubscriptions("rshub", bus.opts.Logger, bus.metrics.received.Inc)
	o.Bus = bus
	h, log := newHub(t, o)
	log.secret = "secret"
	return h, log, bus
}

// Whatever is forged or repeated, followers receive exactly what the memory holds: immediately
// if it was announced, else after the next check. TestAnnouncement lists what is refused.
func TestForgedAnnouncements(t *testing.T) {
	ten := func(c feed.Cursor) feed.Cursor {
		return feed.Cursor{Position: c.Position, Micros: c.Micros + 10*365*24*time.Hour.Microseconds()}
	}
	const set = "a.set"
	for _, test := range []struct {
		name string
		// forge returns what an attacker sends. head is the log's, and real the next
		// announcement.
		forge   func(h *Hub, head feed.Cursor, real []byte) []byte
		refused bool
	}{
		{"without the secret", func(h *Hub, head feed.Cursor, _ []byte) []byte {
			return encoded(memoryKey{h.log.ID(), "guess"}, appended(batchAfter(head, 3), 1000))
		}, true},
		{"ten years ahead, from a hub", func(h *Hub, head feed.Cursor, _ []byte) []byte {
			b := batchAfter(head, 3)
			b.Cursor = ten(b.Cursor)
			return encoded(h.memoryKey(), appended(b, 1000))
		}, true},
		{"changed", func(_ *Hub, _ feed.Cursor, real []byte) []byte {
			m := slices.Clone(real)
			m[len(m)-40] ^= 1
			return m
		}, true},
		{"from a hub, beyond the head", func(h *Hub, head feed.Cursor, _ []byte) []byte {
			return encoded(h.memoryKey(), appended(batchAfter(batchAfter(head, 2).Cursor, 3), 1000))
		}, false},
		{"from a hub, after another head", func(h *Hub, head feed.Cursor, _ []byte) []byte {
			return encoded(h.memoryKey(), appended(batchAfter(feed.Cursor{Position: head.Position, Micros: head.Micros + 1}, 3), 1000))
		}, false},
		{"from a hub, after the middle", func(h *Hub, head feed.Cursor, _ []byte) []byte {
			return encoded(h.memoryKey(), appended(batchAfter(feed.Cursor{Position: head.Position - 1, Micros: head.Micros - 1}, 3), 1000))
		}, false},
		{"from a hub, a deletion that was none", func(h *Hub, head feed.Cursor, _ []byte) []byte {
			return encoded(h.memoryKey(), changelog.Appended{Cursor: feed.Cursor{Micros: head.Micros + 1}})
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, log, bus := withBus(t, Options{PollInterval: 2 * time.Second})
				stop := runHub(t, h)
				head := mustPublish(t, h, set, changes("old", 5)).Cursor
				r := startFollower(t, h, set, head)
				synctest.Wait()
				tail := h.tail(set)
				last := head
				for i, repeats := range []int{1, 3} { // the attacker also repeats what hubs send
					for _, announced := range []bool{true, false} {
						time.Sleep(10 * time.Millisecond)
						next, err := log.Append(t.Context(), set, changelog.Publish{Changes: changes(fmt.Sprint("new-", i, announced), 2)}) // by another hub
						if err != nil {
							t.Fatal(err)
						}
						next[0].Blocks = changelog.CutBlocks(changes(fmt.Sprint("new-", i, announced), 2), last.Position+1, 10_000)
						real := encoded(h.memoryKey(), next[0])
						for range repeats {
							h.receiveAnnouncement(set, tail, test.forge(h, last, real))
							if announced {
								h.receiveAnnouncement(set, tail, real)
							}
						}
						begin, at := time.Now(), last
						for at != next[0].Cursor {
							for _, b := range <-r.yields {
								if b.After != at || b.Diverged {
									t.Fatalf("batch after %v starts after %v", at, b.After)
								}
								at = b.Cursor
								for _, e := range b.Entries {
									if !strings.HasPrefix(e.Change.Loc, "https://example.org/new-") {
										t.Fatalf("got %s, which is not in the memory", e.Change.Loc)
									}
								}
							}
						}
						if took := time.Since(begin); announced && took > time.Second || took > 3*time.Second {
							t.Errorf("delivery took %v", took)
						}
						last = at
					}
				}
				if n := promtest.ToFloat64(bus.metrics.refused); (n == 8) != test.refused || n != 0 && !test.refused {
					t.Errorf("%v announcements were refused", n)
				}
				stop()
				closeReaders(t, r)
			})
		})
	}
}

// A flood of forged or repeated announcements causes no reads by followers, and only a few
// checks of the memory per second.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, log, _ := withBus(t, Options{PollInterval: 2 * time.Second})
		stop := runHub(t, h)
		head := mustPublish(t, h, "a.set", changes("old", 5)).Cursor
		var readers []*testFollower
		for range 20 {
			readers = append(readers, startFollower(t, h, "a.set", head))
		}
		synctest.Wait()
		reads, looks := 0, 0
		log.mu.Lock()
		log.onSince = func() error { reads++; return nil }
		log.onSets = func(states []feed.State, err error) ([]feed.State, error) { looks++; return states, err }
		log.mu.Unlock()
		forged := encoded(memoryKey{h.log.ID(), "guess"}, appended(batchAfter(head, 1), 1000))
		deletion := encoded(h.memoryKey(), changelog.Appended{Cursor: feed.Cursor{Micros: head.Micros}})
		for range 10_000 {
			h.receiveAnnouncement("a.set", h.tail("a.set"), forged)
			h.receiveAnnouncement("a.set", h.tail("a.set"), deletion)
			time.Sleep(100 * time.Microsecond) // for a second
		}
		synctest.Wait()
		if reads > 0 || looks < 10 || looks > 50 {
			t.Errorf("got %d reads and %d checks", reads, looks)
		}
		closeReaders(t, readers...)
		stop()
	})
}

// A set that cannot be read does not prevent checks of the others. The log names it once.
func TestCheckHeadsSkipsDamagedSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines testutil.Log
		h, log := newHub(t, Options{PollInterval: 2 * time.Second, Logger: lines.Logger(slog.LevelInfo)})
		stop := runHub(t, h)
		readers := map[string]*testFollower{}
		heads := map[string]feed.Cursor{}
		for _, set := range []string{"bad", "deleted", "good"} {
			heads[set] = mustPublish(t, h, set, changes("a", 1)).Cursor
			readers[set] = startFollower(t, h, set, heads[set])
		}
		damaged := fmt.Errorf("set %q: %w", "bad", changelog.ErrCorrupt)
		log.mu.Lock()
		log.onSets = func(states []feed.State, err error) ([]feed.State, error) {
			return slices.DeleteFunc(states, func(s feed.State) bool { return s.Set == "bad" }), errors.Join(err, damaged)
		}
		log.onState = func(set string) error {
			if set == "bad" {
				return damaged
			}
			return nil
		}
		log.mu.Unlock()
		synctest.Wait()
		next, err := log.Append(t.Context(), "good", changelog.Publish{Changes: changes("b", 1)})
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Delete(t.Context(), "deleted"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		readers["good"].readTo(t, next[0].Cursor)
		if err := readers["deleted"].wait(t); !errors.Is(err, feed.ErrGone) {
			t.Errorf("follower of the deleted set stopped with %v, want ErrGone", err)
		}
		if n := len(lines.Lines(t, "cannot check for unannounced changes")); n != 1 || !strings.Contains(lines.String(), `\"bad\"`) {
			t.Errorf("the log has %d lines:\n%s", n, lines.String())
		}
		stop()
		closeReaders(t, readers["bad"], readers["good"])
	})
}

// Each check of thousands of sets reads the memory once, and finds the changed ones.
func TestCheckHeadsReadsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sets, existing, changed = 3_000, 20, 5
		h, log := newHub(t, Options{PollInterval: 2 * time.Second})
		set := func(i int) string { return fmt.Sprint("set-", i) }
		wakes := make([]int, sets)
		for i := range sets {
			if i < existing {
				mustPublish(t, h, set(i), changes("a", 1))
			}
			defer h.Watch(set(i), func() { wakes[i]++ })()
		}
		stop := runHub(t, h)
		defer stop()
		time.Sleep(3 * time.Second) // the first check finds the heads
		synctest.Wait()
		clear(wakes)
		checks, reads := 0, 0
		log.mu.Lock()
		log.onSets = func(states []feed.State, err error) ([]feed.State, error) { checks++; return states, err }
		log.onState = func(string) error { reads++; return nil }
		log.onSince = func() error { reads++; return nil }
		log.mu.Unlock()
		for i := range changed {
			if _, err := log.Append(t.Context(), set(i), changelog.Publish{Changes: changes("b", 1)}); err != nil { // by another hub
				t.Fatal(err)
			}
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if checks != 2 || reads != 0 {
			t.Errorf("got %d reads of all states and %d others in two checks, want 2 and 0", checks, reads)
		}
		for i, n := range wakes {
			if want := i < changed; (n == 1) != want || n > 1 {
				t.Errorf("%s: got %d calls of wake, want one: %v", set(i), n, want)
			}
		}
	})
}
