package activity

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
)

// heads is a Log with heads set by a test.
type heads struct {
	mu  sync.Mutex
	all map[string]feed.State
}

func newHeads() *heads { return &heads{all: map[string]feed.State{}} }

func (h *heads) Sets(_ context.Context, names ...string) (states []feed.State, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, st := range h.all {
		if len(names) == 0 || slices.Contains(names, name) {
			states = append(states, st)
		}
	}
	return states, nil
}

func (h *heads) at(set string, head uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := h.all[set]
	st.Set, st.Begin, st.Head.Position = set, 1, head
	h.all[set] = st
}

// sum returns the sum of a chart's values.
func sum(values []uint32) (n uint64) {
	for _, v := range values {
		n += uint64(v)
	}
	return n
}

// Charts that are requested between two readings include the latest changes once, and the next
// reading does not count them again.
func TestHourIncludesPendingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newHeads()
		log.at("old", 1_000_000) // from before the hub started
		r := New(log, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.Run(ctx) }()
		defer func() { cancel(); <-done }()
		synctest.Wait()
		served := func(set string) HourView {
			t.Helper()
			w := httptest.NewRecorder()
			req := httptest.NewRequestWithContext(access.NewContext(ctx, access.Caller{Name: "me", Rights: access.All()}), "GET", "/", nil)
			if err := r.ServeHour(w, req, set); err != nil {
				t.Fatal(err)
			}
			var v HourView
			if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
				t.Fatal(err)
			}
			return v
		}
		check := func(set string, changes, deliveries uint64) {
			t.Helper()
			if v := served(set); sum(v.Changes) != changes || sum(v.Deliveries) != deliveries {
				t.Errorf("at %v: Hour(%q) has %d changes, %d deliveries, want %d, %d", time.Now(), set, sum(v.Changes), sum(v.Deliveries), changes, deliveries)
			}
		}
		time.Sleep(time.Second)
		log.at("new", 5000)
		log.at("old", 1_000_003)
		r.Delivered("new", 4000)
		r.Delivered("old", 2)
		for range 12 { // looks are between these
			check("new", 5000, 4000)
			check("old", 3, 2)
			check("", 5003, 4002)
			time.Sleep(time.Second)
		}
		log.at("new", 5001)
		check("new", 5001, 4000)
		check("", 5004, 4002)
	})
}

// A fixedFollowers is a Followers with fixed values.
type fixedFollowers map[string]Following

func (f fixedFollowers) Following() map[string]Following { return f }

// TestHour runs a Recorder in fake time for more than an hour.
func TestHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newHeads()
		log.at("old", 1_000_000) // existed before the hub started
		followed := fixedFollowers{"busy": {Followers: 3, Behind: 7, Lag: 2 * time.Second}}
		r := New(log, Options{Followers: followed})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.Run(ctx) }()
		synctest.Wait()
		for i := range 120 { // an hour and a half: every 45 s
			log.at("busy", uint64(i+1)*90)
			synctest.Wait()
			time.Sleep(45 * time.Second)
			synctest.Wait()
			r.Delivered("busy", 30)
			r.Delivered("old", 1)
		}
		time.Sleep(lookInterval)
		synctest.Wait()

		busy, old, all := r.Hour("busy"), r.Hour("old"), r.Hour("")
		for name, h := range map[string]Hour{"busy": busy, "old": old, "all": all} {
			if n := len(h.Changes); n != maxSteps || len(h.Deliveries) != n || len(h.Lag) != n {
				t.Errorf("Hour(%s) has %d, %d, %d steps", name, n, len(h.Deliveries), len(h.Lag))
			}
		}
		if n := sum(busy.Changes); n < 79*90 || n > 81*90 {
			t.Errorf("got %d changes of busy set in an hour, want about %d", n, 80*90)
		}
		if n := sum(busy.Deliveries); n < 79*30 || n > 81*30 {
			t.Errorf("got %d deliveries of busy set in an hour, want about %d", n, 80*30)
		}
		if a, b := sum(all.Changes), sum(busy.Changes); a != b {
			t.Errorf("got %d changes of all sets, want %d without those before the first reading", a, b)
		}
		if n := sum(old.Changes); n != 0 {
			t.Errorf("got %d changes of idle set, want 0", n)
		}
		if m := slices.Max(busy.Lag); m != 2 {
			t.Errorf("got lag %v s, want 2", m)
		}
		now := r.Now("busy")
		if !now.Known || math.Abs(now.Rate-2) > 1 || now.Followers != 3 || now.Behind != 7 {
			t.Errorf("Now(busy) = %+v, want about 2 changes per second", now)
		}
		if now := r.Now("none"); now.Known || now.Followers != 0 {
			t.Errorf("Now() of nonexistent set = %+v", now)
		}
		cancel()
		<-done
	})
}

// A set that is recreated, or whose log lost its tail, does not get a negative number of changes.
func TestHeadMovesBack(t *testing.T) {
	log, now := newHeads(), time.Unix(1_800_000_000, 0)
	r := New(log, Options{Now: func() time.Time { return now }})
	steps := []uint64{10, 15, 5, 6, 6}
	for _, head := range steps {
		log.at("a", head)
		r.readHeads(t.Context())
		now = now.Add(lookInterval)
	}
	if n := sum(r.Hour("a").Changes); n != 5+1 {
		t.Errorf("got %d changes, want 6", n)
	}
	delete(log.all, "a")
	r.readHeads(t.Context())
	if len(r.rates) != 0 || len(r.charts) != 0 {
		t.Errorf("got %d sets and %d charts after deletion of the set, want 0", len(r.rates), len(r.charts))
	}
}

// The number of charts is bounded, and the busiest sets have them.
func TestChartsAreBounded(t *testing.T) {
	log, now := newHeads(), time.Unix(1_800_000_000, 0)
	r := New(log, Options{Now: func() time.Time { return now }})
	const sets = 3 * maxCharts
	for round := range uint64(3) {
		for i := range uint64(sets) {
			log.at(fmt.Sprint("s", i), round*(i+1))
		}
		r.readHeads(t.Context())
		now = now.Add(lookInterval)
	}
	if len(r.charts) != maxCharts {
		t.Fatalf("got %d charts, want %d", len(r.charts), maxCharts)
	}
	if n := sum(r.Hour(fmt.Sprint("s", sets-1)).Changes); n != 2*sets && n != sets {
		t.Errorf("got %d changes of busiest set", n)
	}
	r.Hour("s0") // a caller reads the quietest set
	log.at("s0", 1000)
	r.readHeads(t.Context())
	if n := sum(r.Hour("s0").Changes); n != 1000-2 || len(r.charts) != maxCharts {
		t.Errorf("got %d changes of viewed set, with %d charts", n, len(r.charts))
	}
}

// Failures are merged, bounded, and removed after a success.
func TestFailures(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	r := New(newHeads(), Options{Now: func() time.Time { return now }})
	for i := range 3 {
		now = now.Add(time.Minute)
		r.AddFailure(Failure{Kind: "deliver", Set: "a", About: "1", Text: fmt.Sprint("error ", i)})
		r.AddFailure(Failure{Kind: "source", Set: "b", Text: "away"})
	}
	all := r.Failures("")
	if len(all) != 2 || all[1].Text != "error 2" || all[1].Times != 3 || all[1].Last.Sub(all[1].First) != 2*time.Minute {
		t.Errorf("Failures() = %+v", all)
	}
	if of := r.Failures("b"); len(of) != 1 || of[0].Kind != "source" {
		t.Errorf("Failures(b) = %+v", of)
	}
	r.ClearFailure("deliver", "a", "1")
	r.ClearFailure("deliver", "a", "2")
	if of := r.Failures("a"); len(of) != 0 {
		t.Errorf("Failures() after ClearFailure = %+v", of)
	}
	for i := range 2 * maxFailures {
		r.AddFailure(Failure{Kind: "deliver", Set: "a", About: fmt.Sprint(i)})
	}
	if n := len(r.Failures("")); n != maxFailures {
		t.Errorf("got %d failures", n)
	}
	now = now.Add(25 * time.Hour)
	if n := len(r.Failures("")); n != 0 {
		t.Errorf("got %d failures after a day", n)
	}
}
