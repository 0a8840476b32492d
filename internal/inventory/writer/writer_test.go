package writer

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/inventory/storetest"
	"github.com/rshub/rshub/internal/testutil/metricstest"
)

// TestClaimsLost lets another hub take all claims while changes are pending.
func TestClaimsLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Log.Create("a")
		root := w.Log.Publish("a", storetest.Updates(5_000)...)
		metrics := prometheus.NewRegistry()
		w.claims.claimFor = 5 * time.Second
		h := w.hub(Options{Metrics: metrics})
		w.Pass(3 * time.Second)
		w.Log.Publish("a", "+x")
		w.Pass(time.Second)
		w.claims.lost.Store(true)
		w.Pass(time.Second)
		if h.Owns("a") {
			t.Error("Owns() = true, want false")
		}
		h.Request("a", false)
		w.Pass(11 * time.Minute)
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
		w.Pass(2 * time.Minute) // it is no longer active
		w.OK(w.Log.Delete(t.Context(), "a"))
		w.Pass(time.Minute)
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
			w.Log.Create("a")
			w.Log.Publish("a", "+x")
			return &hub{Writer: w.writer(Options{})}
		}, true, 0},
		{"current root", func(w *world) *hub { return w.hubWith(5_000, Options{}) }, true, 5_000},
		{"unread for 23 hours", func(w *world) *hub {
			h := w.stuck(Options{})
			w.Pass(23 * time.Hour)
			w.Log.Publish("a", "+y")
			return h
		}, true, 5_000},
		{"unread for 25 hours", func(w *world) *hub {
			h := w.stuck(Options{})
			w.Pass(25 * time.Hour)
			w.Log.Publish("a", "+y")
			return h
		}, false, 0},
		{"store nearly full", func(w *world) *hub { return w.stuck(Options{Scarce: func(context.Context) bool { return true }}) }, false, 0},
		{"no set", func(w *world) *hub { return w.hub(Options{}) }, false, 0},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			h := tt.setUp(w)
			if at, ok := h.Unread(t.Context(), "a"); ok != tt.want || at.Position != tt.at {
				t.Errorf("Unread() = %v, %v; want position %d, %v", at, ok, tt.at, tt.want)
			}
		})
	}
}

// stuck returns a hub that has stopped. Two days after its last commit a change was published.
func (w *world) stuck(o Options) *hub {
	h := w.hubWith(5_000, o)
	h.stop()
	w.Pass(48 * time.Hour)
	w.Log.Publish("a", "+x")
	return h
}

// TestUnreadLog calls Unread for many sets while the store is nearly full. That is logged once a minute.
func TestUnreadLog(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		writer := w.writer(Options{Scarce: func(context.Context) bool { return true }})
		for _, set := range storetest.Updates(50) {
			w.Log.Create(set)
			w.Log.Publish(set, "+a")
		}
		for range 3 {
			for _, set := range storetest.Updates(50) {
				if at, ok := writer.Unread(t.Context(), set); ok {
					t.Errorf("Unread(%q) = %v, want retention not to wait", set, at)
				}
			}
			w.Pass(time.Minute)
		}
		w.wantLog("\n", 3)
	})
}

// TestSweepDeleted sweeps 250 deleted sets in three steps, and then sweeps each hour.
func TestSweepDeleted(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		swept := make(chan int, 10)
		results := []int{100, 100, 50, 5}
		w.hub(Options{SweepDeleted: func(_ context.Context, most int) (n int, err error) {
			if n, results = results[0], results[1:]; n == 5 {
				err = errors.New("no connection")
			}
			swept <- min(n, most)
			return n, err
		}})
		for _, tt := range []struct {
			pass time.Duration
			want int
		}{{50 * time.Second, 250}, {10 * time.Minute, 0}, {time.Hour, 5}} {
			w.Pass(tt.pass)
			got := 0
			for len(swept) > 0 {
				got += <-swept
			}
			if got != tt.want {
				t.Errorf("swept %d sets in %v, want %d", got, tt.pass, tt.want)
			}
		}
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
		other := w.writer(Options{ExchangeRequests: requests.exchange})
		go other.exchangeRequests(t.Context())
		at := w.Log.Publish("a", "+x") // too few changes for a commit
		w.Pass(time.Minute)
		if w.newest().Cursor == at {
			t.Fatal("the change was committed without a request")
		}
		requests.mu.Lock()
		requests.fails = feed.ErrUnavailable
		requests.mu.Unlock()
		other.Request("a", false)
		w.Pass(3 * time.Second)
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
		w.Log.Create("a")
		at := w.Log.Publish("a", "+x")
		w.OK(w.inv("a").Writer(uint64(time.Now().Add(10 * time.Second).UnixMicro())).Shrink(t.Context()))
		w.claims.claimFor = 5 * time.Second
		w.hub(Options{})
		w.Pass(time.Minute)
		w.wantRoot("a", at)
	})
}

// TestLateYield gives up a claim that the hub has already taken again.
func TestLateYield(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		writer := w.writer(Options{})
		former, present := &claim.Hold{}, &claim.Hold{}
		worker{writer}.Gained(former)
		worker{writer}.Gained(present)
		worker{writer}.Yield(former)
		if got := writer.holds[0]; got != present {
			t.Errorf("hold after a former one was given up: got %p, want %p", got, present)
		}
	})
}

// A failingLog is a log whose scans take a second, and fail when asked to.
type failingLog struct {
	*storetest.MemoryLog
	fails atomic.Bool
	scans atomic.Int64
}

func (l *failingLog) Sets(ctx context.Context, names ...string) ([]feed.State, error) {
	if len(names) > 0 {
		return l.MemoryLog.Sets(ctx, names...)
	}
	time.Sleep(time.Second) // in fake time
	if l.scans.Add(1); l.fails.Load() {
		return nil, feed.ErrUnavailable
	}
	return l.MemoryLog.Sets(ctx)
}

// TestScanFails scans all sets of a log that is slow and fails, and then works again.
func TestScanFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		writer := w.writer(Options{})
		log := &failingLog{MemoryLog: w.Log}
		writer.log = log
		start(t, writer)
		w.Pass(10 * time.Second)
		log.fails.Store(true)
		w.Pass(scanShare * time.Second) // until the next scan is due
		before := log.scans.Load()
		w.Pass(10 * time.Minute)
		if n := log.scans.Load() - before; n < 5 || n > 20 {
			t.Errorf("scanned %d times in ten minutes, want 5 to 20", n)
		}
		log.fails.Store(false)
		w.Log.Create("a")
		at := w.Log.Publish("a", "+x")
		w.Pass(2 * time.Minute)
		w.wantRoot("a", at)
	})
}
