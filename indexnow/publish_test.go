package indexnow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/claim/cursors"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/logged"
	"github.com/rshub/rshub/internal/memorytest"
	"github.com/rshub/rshub/internal/metricstest"
	"github.com/rshub/rshub/resourcesync"
)

func TestMain(m *testing.M) { memorytest.Main(m) }

const key = "0123456789abcdef"

// A took is a request that an engine got.
type took struct {
	Host, Key, KeyLocation string
	URLList                []string
	at                     time.Time
}

// A world is a hub with a memory on the disk, a Publisher, and an engine.
type world struct {
	t       *testing.T
	log     *disklog.Log
	hub     *hub.Hub
	metrics *prometheus.Registry
	logged  *logged.Log
	stop    func()

	mu     sync.Mutex
	took   []took
	answer func(took) (status int, after string) // nil: 200
}

// inWorld calls do in fake time.
func inWorld(t *testing.T, do func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, log: memorytest.Open(t), logged: new(logged.Log)}
		w.hub = hub.New(w.log, hub.Options{Base: "https://hub.example.org"})
		defer w.hub.Close()
		do(w)
		w.stop()
	})
}

// start starts a Publisher of the set demo.
func (w *world) start(o Options) {
	w.t.Helper()
	keep := w.log.Keep(Kind)
	claims, err := claim.OpenLocal(w.t.Context(), keep, Shards)
	if err != nil {
		w.t.Fatal(err)
	}
	w.metrics = prometheus.NewRegistry()
	o.Key, o.Client, o.Metrics, o.Logger = key, w, w.metrics, w.logged.Logger(slog.LevelInfo)
	p := New([]string{"demo"}, w.hub, w.log, cursors.OnDisk(keep, claims), claims, o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = p.Run(ctx) }()
	w.stop = func() { cancel(); <-done; w.stop = func() {} }
	synctest.Wait()
}

// RoundTrip is the engine.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	var q took
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		w.t.Error(err)
	}
	if r.Method != http.MethodPost || r.URL.String() != DefaultEndpoint || r.Header.Get("Content-Type") != "application/json; charset=utf-8" {
		w.t.Errorf("a request is %s %s %v", r.Method, r.URL, r.Header)
	}
	q.at = time.Now()
	w.mu.Lock()
	w.took = append(w.took, q)
	answer := w.answer
	w.mu.Unlock()
	status, after := http.StatusOK, ""
	if answer != nil {
		status, after = answer(q)
	}
	if status == 0 {
		return nil, errors.New("the connection breaks")
	}
	h := http.Header{}
	if after != "" {
		h.Set("Retry-After", after)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(""))}, nil
}

func (w *world) says(answer func(took) (int, string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

func (w *world) publish(locs ...string) {
	w.t.Helper()
	var changes []resourcesync.Change
	for _, loc := range locs {
		changes = append(changes, resourcesync.Change{Loc: loc, Change: resourcesync.Updated})
	}
	if _, err := w.hub.Publish(w.t.Context(), "demo", changelog.Publish{Changes: changes}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// sent returns the requests since the last time, as texts.
func (w *world) sent() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.took {
		all = append(all, q.Host+" "+strings.Join(q.URLList, " "))
	}
	w.took = nil
	return all
}

func (w *world) want(what string, want ...string) {
	w.t.Helper()
	if got := w.sent(); !slices.Equal(got, want) {
		w.t.Errorf("%s: sent are %q, want %q", what, got, want)
	}
}

// passes lets time go on.
func passes(d time.Duration) { time.Sleep(d); synctest.Wait() }

// An engine is told of each change from when a set is published on, after a restart too.
// Changes that come soon after each other are sent together, and by host.
func TestPublish(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish("https://a.example/old")
		w.start(Options{})
		passes(time.Minute)
		w.want("nothing new")
		w.publish("https://a.example/1", "https://a.example/2", "http://b.example:8080/1", "urn:x:1", "https://a.example/1")
		if q := w.took; len(q) != 2 || q[0].Key != key || q[0].KeyLocation != "" {
			t.Errorf("the requests are %+v", q)
		}
		w.want("a batch", "a.example https://a.example/1 https://a.example/2", "b.example:8080 http://b.example:8080/1")
		w.publish("https://a.example/3")
		w.publish("https://a.example/4")
		w.publish("https://a.example/3")
		w.want("soon after")
		passes(10 * time.Second)
		w.want("later", "a.example https://a.example/3 https://a.example/4")
		w.stop()
		w.publish("https://a.example/5")
		w.start(Options{})
		w.want("after a restart", "a.example https://a.example/5")
		passes(time.Hour)
		w.want("after an hour")
	})
}

// An engine that does not take a request gets it again, after as long as it asks, and nothing
// is left out. A request of which the first part was taken is not repeated in that part.
func TestRetry(t *testing.T) {
	for name, test := range map[string]struct {
		status      int
		after       string
		least, most time.Duration // between two attempts
		says        string
	}{
		"no answer":           {0, "", 800 * time.Millisecond, 1200 * time.Millisecond, "cannot be told"},
		"an error":            {500, "", 800 * time.Millisecond, 1200 * time.Millisecond, "Internal Server Error"},
		"too many":            {429, "90", 90 * time.Second, 90 * time.Second, "too many requests"},
		"another key":         {403, "", lastRetry, lastRetry, "does not find the key"},
		"another site":        {422, "", lastRetry, lastRetry, "not of the site"},
		"moved, not followed": {301, "", 800 * time.Millisecond, 1200 * time.Millisecond, "Moved Permanently"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.start(Options{})
				w.says(func(q took) (int, string) {
					if q.Host == "b.example" {
						return test.status, test.after
					}
					return http.StatusAccepted, ""
				})
				w.publish("https://a.example/1", "https://b.example/1")
				passes(test.most)
				w.mu.Lock()
				tries := w.took
				w.mu.Unlock()
				if len(tries) < 3 || tries[1].Host != "b.example" || tries[2].Host != "b.example" {
					t.Fatalf("the attempts are %+v", tries)
				}
				if d := tries[2].at.Sub(tries[1].at); d < test.least || d > test.most {
					t.Errorf("the second attempt is %v after the first", d)
				}
				w.publish("https://a.example/2")
				if v := metricstest.Values(t, w.metrics); v[`rshub_followers{kind="indexnow"}`] != 1 || v[`rshub_follower_lag_changes{kind="indexnow"}`] != 3 ||
					v[`rshub_follower_lag_seconds{kind="indexnow"}`] < (test.least-time.Millisecond).Seconds() {
					t.Errorf("the metrics are %v", v)
				}
				w.stop()
				w.sent()
				w.start(Options{})
				passes(lastRetry * 2)
				if got := w.sent(); len(got) < 2 || got[0] != "a.example https://a.example/1 https://a.example/2" || slices.ContainsFunc(got[1:], func(q string) bool { return q != "b.example https://b.example/1" }) {
					t.Errorf("after a restart: %q", got)
				}
				if n := metricstest.Values(t, w.metrics)["rshub_indexnow_failing"]; n != 1 {
					t.Errorf("%v sets are failing", n)
				}
				w.says(nil)
				passes(lastRetry * 2)
				w.want("in the end", "b.example https://b.example/1")
				if v := metricstest.Values(t, w.metrics); v["rshub_indexnow_failing"] != 0 || v[`rshub_follower_lag_changes{kind="indexnow"}`] != 0 {
					t.Errorf("the metrics are %v in the end", v)
				}
				if !strings.Contains(w.logged.String(), test.says) || strings.Contains(w.logged.String(), key) {
					t.Errorf("the log is %s", w.logged)
				}
			})
		})
	}
}

// What an engine finds malformed three times is left out, so that it does not hold up the rest.
func TestMalformed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(Options{})
		w.says(func(q took) (int, string) {
			if slices.Contains(q.URLList, "https://a.example/bad") {
				return http.StatusBadRequest, ""
			}
			return http.StatusOK, ""
		})
		w.publish("https://a.example/bad")
		w.publish("https://a.example/good")
		passes(time.Minute)
		const bad = "a.example https://a.example/bad"
		w.want("malformed", bad, bad, bad, "a.example https://a.example/good")
	})
}

// The memory may remove changes before an engine was told of them. That is counted and logged,
// and the rest is sent. A set that is private is not.
func TestGapAndPrivate(t *testing.T) {
	inWorld(t, func(w *world) {
		w.publish("https://a.example/old")
		w.start(Options{})
		if err := w.hub.Delete(w.t.Context(), "demo"); err != nil {
			t.Fatal(err)
		}
		w.publish("https://a.example/new")
		passes(10 * time.Minute)
		w.want("made anew", "a.example https://a.example/new")
		if !strings.Contains(w.logged.String(), "had removed them") {
			t.Errorf("the log is %s", w.logged)
		}
		if err := w.hub.Describe(w.t.Context(), "demo", feed.Description{Private: true}); err != nil {
			t.Fatal(err)
		}
		w.publish("https://a.example/secret")
		passes(time.Hour)
		w.want("private")
		if err := w.hub.Describe(w.t.Context(), "demo", feed.Description{}); err != nil {
			t.Fatal(err)
		}
		passes(time.Hour)
		w.want("public again", "a.example https://a.example/secret")
	})
}

// With a file of the key at one host, only URLs of that host are sent.
func TestKeyLocation(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(Options{KeyLocation: "https://A.example/keys/it.txt"})
		w.publish("https://a.example/1", "https://b.example/1")
		if len(w.took) != 1 || w.took[0].KeyLocation != "https://A.example/keys/it.txt" {
			t.Errorf("the requests are %+v", w.took)
		}
		w.want("one host", "a.example https://a.example/1")
	})
}

// A request has no more URLs than the protocol allows, and all entries are in some request.
func TestGather(t *testing.T) {
	var batches []*feed.Batch
	at, n := feed.Cursor{}, 0
	for _, size := range []int{1000, 9000, 25_000, 1, 9999, 1} {
		var changes []resourcesync.Change
		for range size {
			changes = append(changes, resourcesync.Change{Loc: fmt.Sprintf("https://%s.example/%d", []string{"a", "b"}[n%7/6], n)})
			n++
		}
		last := feed.Cursor{Position: at.Position + uint64(size), Micros: at.Micros + int64(size)}
		batches = append(batches, feed.NewBatch("demo", at, last, changes))
		at = last
	}
	seen := map[string]bool{}
	var rounds int
	for rest := batches; len(rest) > 0; rounds++ {
		var r *round
		r, rest = gather(rest, &Options{})
		urls := 0
		for _, q := range r.requests {
			if len(q.urls) > MostURLs || len(q.urls) == 0 {
				t.Errorf("a request has %d URLs", len(q.urls))
			}
			for _, u := range q.urls {
				if seen[u] || !strings.HasPrefix(u, "https://"+q.host+"/") {
					t.Fatalf("%s is in a request for %s, or twice", u, q.host)
				}
				seen[u] = true
				urls++
			}
		}
		if urls != r.changes || rest == nil && r.cursor != at {
			t.Errorf("%d URLs of %d changes, up to %v", urls, r.changes, r.cursor)
		}
	}
	if len(seen) != n || rounds != 4 {
		t.Errorf("%d of %d URLs in %d rounds", len(seen), n, rounds)
	}
}
