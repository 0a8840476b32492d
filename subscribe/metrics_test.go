//go:build unix

package subscribe_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/metricstest"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
)

// by returns the series of a metric for a kind of followers.
func by(name, kind string) string { return "rshub_" + name + `{kind="` + kind + `"}` }

// TestMetrics checks the counters of deliveries, whether a group or the connection's own goroutine
// writes them, and the gauges of followers.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := newSite(t, settings{Options: subscribe.Options{Metrics: reg}})
	metricstest.Check(t, reg, nil)
	s.publish(2)
	start := s.follow("?since=start", dialer{}) // catches up by 2 changes
	start.nextChanges()
	filtered := s.follow("?prefix=https://example.org/1", dialer{}) // gets one of the next 3 changes
	now := s.follow("", dialer{protocol: "rs.xml"})
	events := s.followEvents("")
	page := make(chan int, 1)
	go func() {
		_, body := s.get("?wait=1m", "Accept", "application/json")
		page <- len(body)
	}()
	testutil.Until(t, "all are current", func() bool {
		return metricstest.Values(t, reg)[by("followers", "longpoll")] == 1 && strings.Contains(stacks(), "subscribe.(*Server).collect") &&
			!strings.Contains(stacks(), "subscribe.(*conn).follow")
	})
	got := metricstest.Values(t, reg)
	if got[by("followers", "websocket")] != 3 || got[by("followers", "eventstream")] != 1 {
		t.Errorf("followers = %v, want 3 WebSockets and 1 event stream", got)
	}
	end := s.publish(3)
	for _, c := range []*client{start, filtered, now} {
		c.readTo(end)
	}
	e, _ := events.nextChanges()
	polled := <-page
	_, body := s.get("?since=start", "Accept", "application/json")
	s.do(http.MethodHead, s.url("?since=start"), "Accept", "application/json") // delivers nothing
	s.get("?since=now", "Accept", "application/json")                          // neither does this

	want := map[string]float64{
		by("followers", "websocket"): 3, by("followers", "eventstream"): 1,
		by("deliveries_total", "websocket"): 4, by("delivered_changes_total", "websocket"): 2 + 3 + 1 + 3,
		by("deliveries_total", "eventstream"): 1, by("delivered_changes_total", "eventstream"): 3,
		by("deliveries_total", "longpoll"): 2, by("delivered_changes_total", "longpoll"): 3 + 5,
		by("delivered_bytes_total", "websocket"):   float64(start.bytes + filtered.bytes + now.bytes),
		by("delivered_bytes_total", "eventstream"): float64(len("id: ") + len(e.id) + len("\ndata: ") + len(e.data) + len("\n\n")),
		by("delivered_bytes_total", "longpoll"):    float64(polled + len(body)),
	}
	// Counters are updated after the write.
	testutil.Until(t, "all deliveries are counted", func() bool {
		got := metricstest.Values(t, reg)
		for _, kind := range []string{"websocket", "eventstream", "longpoll"} {
			if name := by("delivered_bytes_total", kind); got[name] < want[name] {
				return false
			}
		}
		return got[by("followers", "longpoll")] == 0
	})
	metricstest.Check(t, reg, want)
}

// TestLag checks that the gauges show the lag of the slowest client: the changes that the hub has not
// started to write to it.
func TestLag(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	s := newSite(t, settings{Options: subscribe.Options{Metrics: reg, WriteTimeout: time.Minute}, sendBuffer: smallSend})
	s.publish(1)
	stalled := s.follow("", smallBuffers(smallRead))
	other := s.follow("", dialer{})
	stream := s.followEvents("")
	var end feed.Cursor
	const published = 20
	for range published {
		end = s.publishLarge(100_000)
		other.readTo(end)
	}
	got := metricstest.Values(t, reg)
	behind, age := got[by("follower_lag_changes", "websocket")], got[by("follower_lag_seconds", "websocket")]
	if behind < 1 || behind > published || age <= 0 || age > patience.Seconds() {
		t.Errorf("lag of WebSockets = %v changes, %v s, want 1 to %d changes", behind, age, published)
	}
	testutil.Until(t, "the stream lags, too", func() bool { return metricstest.Values(t, reg)[by("follower_lag_changes", "eventstream")] > 0 })
	stalled.readTo(end)
	stream.readTo(end)
	testutil.Until(t, "no follower lags", func() bool {
		for name, v := range metricstest.Values(t, reg) {
			if strings.HasPrefix(name, "rshub_follower_lag") && v != 0 {
				return false
			}
		}
		return true
	})
}

// TestLagOfFilteredLongPoll checks that changes that the filter omits do not count as lag of a long
// poll, whether they existed before or are published while it waits.
func TestLagOfFilteredLongPoll(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := newSite(t, settings{Options: subscribe.Options{Metrics: reg}})
	s.publish(3)
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url("?since=start&wait=5m&prefix=https://example.org/none"), nil)
	ok(t, err)
	ended := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			err = resp.Body.Close()
		}
		ended <- err
	}()
	current := func() bool {
		got := metricstest.Values(t, reg)
		return got[by("followers", "longpoll")] == 1 && got[by("follower_lag_changes", "longpoll")] == 0 && strings.Contains(stacks(), "subscribe.(*Server).collect")
	}
	testutil.Until(t, "no lag by earlier changes", current)
	s.publish(3)
	testutil.Until(t, "no lag by new changes", current)
	leave()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("long poll ended with %v, want canceled", err)
	}
}

// A failingFollower fails at the change of the resource break.
type failingFollower struct{ subscribe.Follower }

func (f failingFollower) Follow(ctx context.Context, set string, after feed.Cursor) iter.Seq2[[]*feed.Batch, error] {
	return func(yield func([]*feed.Batch, error) bool) {
		for batches, err := range f.Follower.Follow(ctx, set, after) {
			if len(batches) > 0 && len(batches[0].Entries) > 0 && batches[0].Entries[0].Change.Loc == "https://example.org/break" {
				batches, err = nil, errors.New("broken")
			}
			if !yield(batches, err) || err != nil {
				return
			}
		}
	}
}

// TestClosedReasons checks that each closed connection is counted once by reason. Followers get no
// details of internal errors.
func TestClosedReasons(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind, reason string
		options      subscribe.Options
		close        func(s *site)
	}{
		{"websocket", "client", subscribe.Options{}, func(s *site) {
			c := s.follow("", dialer{})
			// Browsers send this code when the user leaves the page.
			_ = c.ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseGoingAway, ""))
			c.closed(websocket.CloseGoingAway)
		}},
		{"websocket", "slow", subscribe.Options{WriteTimeout: 100 * time.Millisecond}, func(s *site) {
			s.dial("", dialer{}).next()
			s.publishLarge(100_000)
		}},
		{"websocket", "silent", subscribe.Options{Heartbeat: 32 * time.Millisecond}, func(s *site) {
			s.dial("", dialer{}).next() // never reads again, so that no ping is answered
		}},
		{"websocket", "silent", subscribe.Options{Heartbeat: 32 * time.Millisecond}, func(s *site) {
			c := s.follow("", dialer{})
			c.ws.SetPingHandler(func(string) error { return nil }) // reads pings, and does not answer
			_ = readAll(c)
		}},
		{"websocket", "gone", subscribe.Options{}, func(s *site) {
			c := s.dial("?since=5-5", dialer{})
			c.closed(4410)
		}},
		{"websocket", "stopping", subscribe.Options{}, func(s *site) {
			c := s.follow("", dialer{})
			go s.shutdown()
			_ = readAll(c) // leaves its socket open
		}},
		{"websocket", "error", subscribe.Options{}, func(s *site) {
			c := s.follow("", dialer{})
			s.publishChanges(change("break", resourcesync.Updated, ""))
			if reason := c.closed(websocket.CloseInternalServerErr); !strings.HasPrefix(reason, c.cursor) || strings.Contains(reason, "broken") {
				s.Errorf("got close reason %q, want cursor %s without details", reason, c.cursor)
			}
		}},
		{"eventstream", "client", subscribe.Options{}, func(s *site) { s.followEvents("").cancel() }},
		{"eventstream", "stopping", subscribe.Options{}, func(s *site) {
			events := s.followEvents("")
			go s.shutdown()
			_ = readAll(events)
		}},
		{"eventstream", "error", subscribe.Options{}, func(s *site) {
			events := s.followEvents("")
			s.publishChanges(change("break", resourcesync.Updated, ""))
			if e, err := events.event(); err != nil || e.name != "error" || !strings.Contains(e.data, `"status":500`) || strings.Contains(e.data, "broken") {
				s.Errorf("got event %+v, %v, want an error without details", e, err)
			}
		}},
		{"eventstream", "slow", subscribe.Options{WriteTimeout: 100 * time.Millisecond}, func(s *site) {
			s.stream("").next()
			s.publishLarge(100_000)
		}},
		{"eventstream", "gone", subscribe.Options{}, func(s *site) {
			s.followEvents("")
			if err := s.hub.Delete(s.Context(), "a"); err != nil {
				s.Error(err)
			}
		}},
	} {
		t.Run(test.kind+" "+test.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reg := prometheus.NewRegistry()
				test.options.Metrics = reg
				s := newSite(t, settings{
					Options: test.options, fake: true,
					follower: func(f subscribe.Follower) subscribe.Follower { return failingFollower{Follower: f} },
				})
				s.publish(1)
				test.close(s)
				name := `rshub_followers_closed_total{kind="` + test.kind + `",reason="` + test.reason + `"}`
				for begin := time.Now(); metricstest.Values(t, reg)[name] == 0; time.Sleep(100 * time.Millisecond) {
					if time.Since(begin) > patience {
						t.Fatalf("%s = 0, want 1", name)
					}
				}
				for other, v := range metricstest.Values(t, reg) {
					if strings.HasPrefix(other, "rshub_followers_closed") && v != map[bool]float64{true: 1}[other == name] {
						t.Errorf("%s = %v, want 1 for %s, otherwise 0", other, v, name)
					}
				}
			})
		})
	}
}

// A deliveryCounter counts delivered changes by set.
type deliveryCounter struct {
	mu   sync.Mutex
	sets map[string]int
}

func (d *deliveryCounter) Delivered(set string, changes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sets[set] += changes
}

// TestFollowing checks the number of followers of each set, and the calls of Delivered.
func TestFollowing(t *testing.T) {
	got := deliveryCounter{sets: map[string]int{}}
	s := newSite(t, settings{Options: subscribe.Options{Deliveries: &got}})
	if f := s.server.Following(); len(f) != 0 {
		t.Errorf("Following() = %v, want none", f)
	}
	start := s.follow("?since=start", dialer{})
	events := s.followEvents("?since=start")
	end := s.publish(3)
	start.readTo(end)
	events.nextChanges()
	s.get("?since=start")
	testutil.Until(t, "all deliveries are counted", func() bool {
		got.mu.Lock()
		defer got.mu.Unlock()
		return len(got.sets) == 1 && got.sets["a"] == 3*3
	})
	testutil.Until(t, "both are current", func() bool {
		f := s.server.Following()
		return len(f) == 1 && f["a"] == subscribe.Following{Followers: 2}
	})
}
