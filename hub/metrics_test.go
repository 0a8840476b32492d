package hub

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil/metricstest"
)

// Each metric counts what its help text says, and nothing else.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	h, log := newHub(t, Options{Metrics: reg, ListSize: 2, Retention: changelog.Retention{Count: 1}})
	ctx := t.Context()
	metricstest.Check(t, reg, nil)

	keyed := changelog.Publish{Changes: changes("a", 5), Key: "k"}
	first, err := h.Publish(ctx, "demo", keyed)
	if err != nil {
		t.Fatal(err)
	}
	r := startFollower(t, h, "demo", first.Cursor)
	waitFollowers(h, "demo", 1)
	for promtest.ToFloat64(h.metrics.misses) == 0 { // the follower reads the memory first
		runtime.Gosched()
	}
	if _, err := h.Publish(ctx, "demo", keyed); err != nil {
		t.Fatal(err)
	}
	last := mustPublish(t, h, "demo", changes("b", 2)).Cursor
	r.readTo(t, last)
	if _, err := h.Publish(ctx, "demo", changelog.Publish{Key: "k", Hash: [32]byte{1}, Changes: changes("c", 1)}); !errors.Is(err, feed.ErrKeyReused) {
		t.Error(err)
	}
	for _, body := range []string{"{}", `{"changes":[{"loc":"/a","change":"updated"}]}`, "<"} { // refused before they come to Publish
		w := post(h, body, "Content-Type", "application/json")
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	for _, body := range []string{"", "{}\n"} {
		post(h, body, "Content-Type", "application/x-ndjson")
	}
	gone, leave := context.WithCancel(ctx)
	leave()
	if _, err := h.Publish(gone, "demo", changelog.Publish{Changes: changes("d", 1)}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for _, failure := range []error{feed.ErrFull, feed.ErrUnavailable, feed.ErrUnknown, feed.ErrClock, errors.New("no idea")} {
		log.mu.Lock()
		log.onAppend = func(context.Context, []changelog.Publish) error { return failure }
		log.mu.Unlock()
		if _, err := h.Publish(ctx, "demo", changelog.Publish{Changes: changes("e", 1)}); !errors.Is(err, failure) {
			t.Error(err)
		}
	}
	closeReaders(t, r)
	misses := promtest.ToFloat64(h.metrics.misses) // an unknown append made the follower look again
	h.maintain(t.Context())
	metricstest.Check(t, reg, map[string]float64{
		"rshub_published_changes_total":              7,
		`rshub_publishes_total{outcome="accepted"}`:  2,
		`rshub_publishes_total{outcome="replayed"}`:  1,
		`rshub_publishes_total{outcome="refused"}`:   7,
		`rshub_publishes_total{outcome="failed"}`:    5,
		"rshub_publish_duration_seconds":             2,
		`rshub_window_reads_total{outcome="hit"}`:    1,
		`rshub_window_reads_total{outcome="miss"}`:   misses,
		`rshub_window_reads_total{outcome="shared"}`: 0,
		"rshub_log_sets":                             1,
		"rshub_log_changes":                          7, // as it was before retention
		"rshub_log_oldest_timestamp_seconds":         seconds(first.After.Micros),
		"rshub_log_newest_timestamp_seconds":         seconds(last.Micros),
		"rshub_retention_removed_changes_total":      4,
	})
	h.maintain(t.Context())
	floor := mustState(t, log, "demo")
	got := metricstest.Values(t, reg)
	if got["rshub_log_changes"] != 3 || got["rshub_log_oldest_timestamp_seconds"] != seconds(floor.Floor.Micros) {
		t.Errorf("after retention: %v changes since %v", got["rshub_log_changes"], got["rshub_log_oldest_timestamp_seconds"])
	}
}

// Changes that another hub announced do not count as repaired, even if the announcement comes
// just after the poll. Changes that were not announced count.
func TestUnannouncedHeads(t *testing.T) {
	start := feed.Cursor{Position: 7, Micros: 1_000}
	next := batchAfter(start, 1)
	later := batchAfter(next.Cursor, 1)
	type step struct {
		hear        *feed.Batch
		told        bool // there is an announcement, but without content
		head        feed.Cursor
		unannounced bool
	}
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{"nothing happens", []step{{head: start}, {head: start}, {head: start}}},
		{"announced before the poll", []step{{head: start}, {hear: next, head: next.Cursor}, {head: next.Cursor}, {head: next.Cursor}}},
		{"announced after the poll", []step{{head: start}, {head: next.Cursor}, {hear: next, head: next.Cursor}, {head: next.Cursor}}},
		{"announced without content", []step{{head: start}, {told: true, head: next.Cursor}, {head: next.Cursor, unannounced: true}, {head: next.Cursor}}},
		{"not announced", []step{{head: start}, {head: next.Cursor}, {head: next.Cursor, unannounced: true}, {head: next.Cursor}}},
		{"not announced before the first poll", []step{{hear: next, head: later.Cursor}, {head: later.Cursor, unannounced: true}, {head: later.Cursor}}},
		{"not new", []step{{head: later.Cursor}, {head: later.Cursor}}},
		{"never announced", []step{{head: start}, {head: next.Cursor}, {head: later.Cursor, unannounced: true}, {head: later.Cursor, unannounced: true}}},
		{"the next was announced", []step{{head: start}, {head: next.Cursor}, {hear: later, head: later.Cursor}, {head: later.Cursor}}},
		{"the set was removed", []step{{head: start}, {head: feed.Cursor{}}, {head: feed.Cursor{}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			tail := &tail{changed: make(chan struct{})}
			for i, step := range test.steps {
				if step.hear != nil {
					tail.receive(announcementOf(step.hear))
				} else if step.told {
					tail.receive(announcement{cursor: feed.Cursor{Micros: start.Micros}})
				}
				if got := tail.check(step.head); got != step.unannounced {
					t.Errorf("check %d: unannounced = %v", i+1, got)
				}
			}
		})
	}
}

// A look that finds unannounced changes of other hubs is counted.
func TestRepairedIsCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	h, log := newHub(t, Options{Metrics: reg})
	r := startFollower(t, h, "demo", mustPublish(t, h, "demo", changes("a", 1)).Cursor)
	waitFollowers(h, "demo", 1)
	compare := func() {
		if err := h.checkHeads(t.Context(), h.startChecks(nil)); err != nil {
			t.Error(err)
		}
	}
	compare()
	other, err := log.Append(t.Context(), "demo", changelog.Publish{Changes: changes("b", 1)})
	if err != nil {
		t.Fatal(err)
	}
	compare()
	r.readTo(t, other[0].Cursor)
	compare()
	if n := promtest.ToFloat64(h.metrics.repaired); n != 1 {
		t.Errorf("%v repairs, want 1", n)
	}
	closeReaders(t, r)
}

// Announcements that find no room to wait are dropped and counted.
func TestLostAnnouncements(t *testing.T) {
	reg := prometheus.NewRegistry()
	connected := false
	b := &Bus{opts: NATSOptions{Logger: slog.New(slog.DiscardHandler)}, queue: make(chan queuedAppend, 1)}
	b.metrics = newBusMetrics(reg, func() bool { return connected })
	for range 3 {
		b.announce(me, "demo", changelog.Appended{})
	}
	b.announce(memoryKey{memory: "m"}, "demo", changelog.Appended{}) // without a connection
	connected = true
	metricstest.Check(t, reg, map[string]float64{"rshub_announcements_lost_total": 3, "rshub_nats_connected": 1})
}

// While NATS hangs, the appends that wait hold a bounded number of bytes, however large they are.
// Those beyond it are announced without their content.
func TestQueuedBytesAreBounded(t *testing.T) {
	h, _, bus := withBus(t, Options{})
	large := changelog.CutBlock{Block: make(changelog.Block, 1<<20), Count: 1}
	a := changelog.Appended{Count: 16, Blocks: slices.Repeat([]changelog.CutBlock{large}, 16)}
	waiting := func() (n, bytes int) {
		for range len(bus.queue) {
			o := <-bus.queue
			for _, b := range o.appended.Blocks {
				bytes += len(b.Block)
			}
			n++
			bus.dequeued(o)
		}
		return n, bytes
	}
	for range 3 {
		for range 50 {
			bus.announce(h.memoryKey(), "demo", a)
		}
		if n, bytes := waiting(); n != 50 || bytes != maxQueuedBytes {
			t.Errorf("%d appends are queued, with %d bytes", n, bytes)
		}
	}
}

func TestBehind(t *testing.T) {
	h, _ := newHub(t, Options{})
	begin := feed.Cursor{Position: 7, Micros: 1_000}
	one := batchAfter(begin, 3) // positions 8 to 10
	two := batchAfter(one.Cursor, 1)
	seen := &tail{changed: make(chan struct{}), followers: 1}
	seen.add([]*feed.Batch{one, two})
	found := &tail{changed: make(chan struct{}), followers: 1}
	found.check(two.Cursor)
	h.tails["seen"], h.tails["found"], h.tails["new"] = seen, found, &tail{changed: make(chan struct{}), followers: 1}
	for _, test := range []struct {
		name    string
		set     string
		after   feed.Cursor
		changes uint64
		oldest  int64
	}{
		{"current", "seen", two.Cursor, 0, 0},
		{"ahead", "seen", feed.Cursor{Position: 12, Micros: 5_000}, 0, 0},
		{"one batch", "seen", one.Cursor, 1, two.Entries[0].Micros},
		{"all of the window", "seen", begin, 4, one.Entries[0].Micros},
		{"in the middle of a batch", "seen", one.Entries[1].Cursor, 2, one.Entries[2].Micros},
		{"further back than the window", "seen", feed.Cursor{Position: 3, Micros: 500}, 8, 500},
		{"from before the set was made", "seen", feed.Cursor{}, 11, two.Cursor.Micros},
		{"what was found is in no window", "found", one.Cursor, 1, one.Cursor.Micros},
		{"nothing is known", "new", begin, 0, 0},
		{"not followed", "other", begin, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if changes, oldest := h.Behind(test.set, test.after); changes != test.changes || oldest != test.oldest {
				t.Errorf("Behind(%v) = %d, %d, want %d, %d", test.after, changes, oldest, test.changes, test.oldest)
			}
		})
	}
	clear(h.tails)
}
