package writer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/testutil/metricstest"
)

// TestTwoHubs lets two hubs update sets. When one stops, the other takes over its sets.
func TestTwoHubs(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		const claimFor = 5 * time.Second
		var sets []string
		for i := range 20 {
			sets = append(sets, fmt.Sprint("set-", i))
			w.log.Create(sets[i])
		}
		a := w.start(w.writer("a", claimFor, Options{}))
		b := w.start(w.writer("b", claimFor, Options{}))
		publish := func(rounds int) {
			heads := map[string]feed.Cursor{}
			for i := range rounds {
				set := sets[i%len(sets)]
				heads[set] = w.log.Publish(set, updates(50+i)...)
				w.pass(100 * time.Millisecond)
			}
			w.pass(10 * time.Second)
			for set, head := range heads {
				w.wantRoot(set, head)
			}
		}
		w.pass(claimFor)
		owned := 0
		for _, set := range sets {
			if a.Owns(set) == b.Owns(set) {
				t.Errorf("hubs own %q: a %v, b %v; want one of them", set, a.Owns(set), b.Owns(set))
			}
			if b.Owns(set) {
				owned++
			}
		}
		if owned == 0 || owned == len(sets) {
			t.Errorf("hub b owns %d of %d sets, want some", owned, len(sets))
		}
		publish(100)
		b.stop()
		publish(60)
		for _, set := range sets {
			if !a.Owns(set) || b.Owns(set) {
				t.Errorf("hubs own %q after b has stopped: a %v, b %v; want only a", set, a.Owns(set), b.Owns(set))
			}
		}
		w.wantLog("level=WARN", 0)
	})
}

// TestClaimsLost lets another hub take all claims while changes are pending.
func TestClaimsLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.log.Create("a")
		root := w.log.Publish("a", updates(5_000)...)
		metrics := prometheus.NewRegistry()
		h := w.start(w.writer("a", 5*time.Second, Options{Metrics: metrics}))
		w.pass(3 * time.Second)
		w.log.Publish("a", "+x")
		w.pass(time.Second)
		w.claims.steal()
		w.pass(time.Second)
		if h.Owns("a") {
			t.Error("Owns() = true, want false")
		}
		h.Request("a", false)
		w.pass(11 * time.Minute)
		w.wantRoot("a", root)
		values := metricstest.Values(t, metrics)
		for _, name := range []string{"sets", "waiting_bytes", "lag_changes"} {
			if got := values["rshub_inventory_"+name]; got != 0 {
				t.Errorf("metric %s = %v, want 0", name, got)
			}
		}
	})
}

// TestMetricsLastSetDeleted deletes the only set.
func TestMetricsLastSetDeleted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		metrics := prometheus.NewRegistry()
		w.hubWith(10, Options{Metrics: metrics})
		if got := metricstest.Values(t, metrics)["rshub_inventory_sets"]; got != 1 {
			t.Errorf("sets = %v, want 1", got)
		}
		w.pass(2 * time.Minute) // it is no longer active
		w.ok(w.log.Delete(t.Context(), "a"))
		w.pass(time.Minute)
		if got := metricstest.Values(t, metrics)["rshub_inventory_sets"]; got != 0 {
			t.Errorf("sets = %v after the last one was deleted, want 0", got)
		}
	})
}

func TestUnread(t *testing.T) {
	for _, tt := range []struct {
		name  string
		setUp func(w *world) *hub
		want  bool
		at    uint64 // position of the cursor
	}{
		{"no root", func(w *world) *hub {
			w.log.Create("a")
			w.log.Publish("a", "+x")
			return &hub{Writer: w.writer("hub", time.Hour, Options{})}
		}, true, 0},
		{"current root", func(w *world) *hub { return w.hubWith(5_000, Options{}) }, true, 5_000},
		{"unread for 23 hours", func(w *world) *hub {
			h := w.stuck(Options{})
			w.pass(23 * time.Hour)
			w.log.Publish("a", "+y")
			return h
		}, true, 5_000},
		{"unread for 25 hours", func(w *world) *hub {
			h := w.stuck(Options{})
			w.pass(25 * time.Hour)
			w.log.Publish("a", "+y")
			return h
		}, false, 0},
		{"store nearly full", func(w *world) *hub {
			return w.stuck(Options{Scarce: func(context.Context) bool { return true }})
		}, false, 0},
		{"no set", func(w *world) *hub { return w.hub(Options{}) }, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				h := tt.setUp(w)
				if at, ok := h.Unread(t.Context(), "a"); ok != tt.want || at.Position != tt.at {
					t.Errorf("Unread() = %v, %v; want position %d, %v", at, ok, tt.at, tt.want)
				}
			})
		})
	}
}

// stuck returns a hub that has stopped. Two days after its last commit a change was published.
func (w *world) stuck(o Options) *hub {
	h := w.hubWith(5_000, o)
	h.stop()
	w.pass(48 * time.Hour)
	w.log.Publish("a", "+x")
	return h
}

// TestUnreadLog calls Unread for many sets while the store is nearly full. That is logged once a minute.
func TestUnreadLog(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		writer := w.writer("hub", time.Hour, Options{Scarce: func(context.Context) bool { return true }})
		for _, set := range updates(50) {
			w.log.Create(set)
			w.log.Publish(set, "+a")
		}
		for range 3 {
			for _, set := range updates(50) {
				if at, ok := writer.Unread(t.Context(), set); ok {
					t.Errorf("Unread(%q) = %v, want retention not to wait", set, at)
				}
			}
			w.pass(time.Minute)
		}
		w.wantLog("\n", 3)
	})
}

// TestSweepDeleted sweeps 250 deleted sets in three steps, and then sweeps each hour.
func TestSweepDeleted(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		var left, calls atomic.Int64
		var fail atomic.Bool
		left.Store(250)
		w.hub(Options{SweepDeleted: func(_ context.Context, most int) (int, error) {
			calls.Add(1)
			n := min(left.Load(), int64(most))
			left.Add(-n)
			if fail.Load() {
				return int(n), errors.New("no connection")
			}
			return int(n), nil
		}})
		want := func(want int64) {
			t.Helper()
			if left.Load() != 0 || calls.Load() != want {
				t.Errorf("%d sets left after %d sweeps, want 0 after %d", left.Load(), calls.Load(), want)
			}
		}
		w.pass(50 * time.Second)
		want(3)
		w.pass(10 * time.Minute)
		want(3)
		left.Store(5)
		fail.Store(true)
		w.pass(time.Hour)
		want(4)
		w.wantLog("no connection", 1)
	})
}

// A requestStore has the requests that hubs make to each other.
type requestStore struct {
	mu    sync.Mutex
	all   map[string]bool
	fails error // returned by the next exchange
}

func (s *requestStore) exchange(_ context.Context, done []string, add map[string]bool) (map[string]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fails; err != nil {
		s.fails = nil
		return nil, err
	}
	for _, set := range done {
		delete(s.all, set)
	}
	maps.Copy(s.all, add)
	return maps.Clone(s.all), nil
}

// TestExchangeRequests requests a root at a hub that does not own the set.
func TestExchangeRequests(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		requests := &requestStore{all: map[string]bool{}}
		w.hubWith(3_000, Options{ExchangeRequests: requests.exchange})
		other := w.start(w.writer("other", 24*time.Hour, Options{ExchangeRequests: requests.exchange}))
		at := w.log.Publish("a", "+x") // too few changes for a commit
		w.pass(time.Minute)
		if w.newest("a").Cursor == at {
			t.Fatal("the change was committed without a request")
		}
		requests.fails = feed.ErrUnavailable
		other.Request("a", false)
		w.pass(3 * time.Second)
		w.wantRoot("a", at)
		w.wantLog("exchange of requests for inventories failed", 1)
		requests.mu.Lock()
		defer requests.mu.Unlock()
		if len(requests.all) > 0 {
			t.Errorf("got requests %v after the commit, want none", requests.all)
		}
	})
}

// TestHigherTerm writes an inventory after a failover has lost a claim with a higher number.
func TestHigherTerm(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.log.Create("a")
		at := w.log.Publish("a", "+x")
		w.ok(w.inv("a").Writer(Shards + 5).Shrink(t.Context()))
		w.start(w.writer("hub", 5*time.Second, Options{}))
		w.pass(time.Minute)
		w.wantRoot("a", at)
	})
}

// TestLateYield gives up a claim that the hub has already taken again.
func TestLateYield(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		writer := w.writer("hub", 24*time.Hour, Options{})
		former, present := &claim.Hold{}, &claim.Hold{}
		worker{writer}.Gained(former)
		worker{writer}.Gained(present)
		worker{writer}.Yield(former)
		if got := writer.holds[0]; got != present {
			t.Errorf("hold after a former one was given up: got %p, want %p", got, present)
		}
	})
}
