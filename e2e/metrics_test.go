package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gorilla/websocket"
)

// constant are the metrics that never move.
var constant = []string{"rshub_build_info", "rshub_disk_reserve_bytes"}

// What is of every Go program is somebody else's to test; these show that it is
// there.
var ofProgram = []string{"go_goroutines", "go_memstats_heap_objects", "process_cpu_seconds_total", "process_resident_memory_bytes"}

// A watch remembers what was seen of each metric.
type watch struct {
	kinds map[string]string           // of families
	seen  map[string]map[float64]bool // values by family
}

// scrape reads the metrics of a hub: the values by name and labels.
func (w *watch) scrape(t testing.TB, h *hub) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	family := ""
	for line := range strings.Lines(string(must(t, http.StatusOK, http.MethodGet, h.ops+"/metrics", nil).body)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			family, w.kinds[name] = name, kind
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		values[line[:i]] = v
		if strings.HasPrefix(line, family+"_sum") || strings.HasPrefix(line, family+"_bucket") {
			continue
		}
		if w.seen[family] == nil {
			w.seen[family] = map[float64]bool{}
		}
		w.seen[family][v] = true
	}
	return values
}

// unmoved are the families that did not move: a counter that counted nothing, a
// gauge that always said the same.
func (w *watch) unmoved() (names []string) {
	for name, values := range w.seen {
		moved := len(values) > 1
		if kind := w.kinds[name]; kind == "counter" || kind == "histogram" || kind == "summary" {
			moved = slices.ContainsFunc(slices.Collect(maps.Keys(values)), func(v float64) bool { return v > 0 })
		}
		if !moved {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// until scrapes until a value is as it should be.
func (w *watch) until(t testing.TB, h *hub, sample string, is func(v float64) bool) {
	t.Helper()
	until(t, sample+" moves", func() error {
		v, ok := w.scrape(t, h)[sample]
		if !ok || !is(v) {
			return fmt.Errorf("it is %v (there: %v)", v, ok)
		}
		return nil
	})
}

func positive(v float64) bool { return v > 0 }
func zero(v float64) bool     { return v == 0 }

// TestMetricsMove does what each metric is about, at a hub on the disk and at
// two on Redis and NATS. A metric that none of that moves fails the test: there is
// no metric that nobody has seen move.
func TestMetricsMove(t *testing.T) {
	t.Parallel()
	w := &watch{kinds: map[string]string{}, seen: map[string]map[float64]bool{}}
	moveOnDisk(t, w)
	moveInCluster(t, w)
	unmoved := w.unmoved()
	for _, name := range unmoved {
		if strings.HasPrefix(name, "rshub_") && !slices.Contains(constant, name) {
			t.Errorf("%s did not move", name)
		}
	}
	for _, name := range constant {
		if !slices.Contains(unmoved, name) {
			t.Errorf("%s moves, or is not there", name)
		}
	}
	for _, name := range ofProgram {
		if w.seen[name] == nil || slices.Contains(unmoved, name) {
			t.Errorf("%s did not move", name)
		}
	}
}

// moveOnDisk moves what a hub alone has.
func moveOnDisk(t *testing.T, w *watch) {
	const set = "moves"
	// Of a set, retention leaves one change.
	h := startHub(t, append(slices.Clone(callable), "RSHUB_CHANGELIST_SIZE=1", "RSHUB_RETENTION_COUNT=1")...)
	w.scrape(t, h)
	publish(t, h, set, change("first"))
	for _, way := range allWays {
		f := follow(t, h, way, set, "start")
		f.has(t, 1)
	}
	stalled := dialStalled(t, h, set)
	n := 0
	until(t, "who reads nothing lags", func() error { // and the disk gets fuller
		n++
		publish(t, h, set, changes(fmt.Sprint("bulk-", n), 1000))
		if v := w.scrape(t, h); v[`rshub_follower_lag_changes{kind="websocket"}`] == 0 || v[`rshub_follower_lag_seconds{kind="websocket"}`] == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	if err := stalled.Close(); err != nil {
		t.Error(err)
	}
	w.until(t, h, `rshub_followers_closed_total{kind="websocket",reason="client"}`, positive)
	c := callbackFails(t, w, h)
	// What is in the memory is looked at when a hub starts, and retention applied.
	h.stop(t)
	h.start(t)
	w.until(t, h, "rshub_log_sets", positive)
	w.until(t, h, "rshub_retention_removed_changes_total", positive) // of the callback's set first, by its name
	callbackEnds(t, w, h, c)
}

// called is the set of the callback.
const called = "called"

// callbackFails moves what a callback moves that takes nothing.
func callbackFails(t *testing.T, w *watch, h *hub) *callback {
	c := serveCallbacks(t, "127.0.0.1:0", nil).add("")
	answer := make(chan struct{})
	c.on(delivery, hangUntil(answer, status(http.StatusInternalServerError)), status(http.StatusInternalServerError))
	must(t, http.StatusAccepted, http.MethodPost, h.url+"/hub", []byte(form("subscribe", c.url, h.topic(called)).Encode()), asForm)
	w.until(t, h, "rshub_callback_subscriptions", positive)
	publish(t, h, called, change("first"))
	w.until(t, h, "rshub_callback_in_flight", positive)
	close(answer)
	w.until(t, h, "rshub_callback_failing", positive)
	w.until(t, h, "rshub_callback_retries_total", positive)
	publish(t, h, called, changes("overrun", 3))
	return c
}

// callbackEnds moves what it moves after the memory overran it, and in the end.
func callbackEnds(t *testing.T, w *watch, h *hub, c *callback) {
	c.on(delivery, status(http.StatusOK), status(http.StatusGone))
	publish(t, h, called, change("again")) // so it is tried soon
	w.until(t, h, "rshub_callback_gaps_total", positive)
	publish(t, h, called, change("last"))
	w.until(t, h, `rshub_callback_ended_total{reason="gone"}`, positive)
}

// dialStalled follows over a WebSocket that never reads what comes.
func dialStalled(t *testing.T, h *hub, set string) *websocket.Conn {
	t.Helper()
	d := websocket.Dialer{NetDial: func(network, addr string) (net.Conn, error) {
		c, err := net.Dial(network, addr)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		}
		return c, err
	}}
	c, _, err := d.Dial("ws"+strings.TrimPrefix(h.topic(set), "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// moveInCluster moves what hubs have with each other.
func moveInCluster(t *testing.T, w *watch) {
	const set = "moves"
	c := startCluster(t, 2, callable...)
	a, b := c.hubs[0], c.hubs[1]
	for _, h := range c.hubs {
		w.until(t, h, "rshub_nats_connected", positive)
		w.until(t, h, "rshub_ready", positive)
	}
	publish(t, b, set, change("first"))
	f := follow(t, a, byWebSocket, set, "start")
	f.has(t, 1)
	n := 1
	until(t, "an announcement comes", func() error { // once a listens to them
		publish(t, b, set, change("next"))
		n++
		f.has(t, n)
		if w.scrape(t, a)["rshub_announcements_received_total"] == 0 || w.scrape(t, b)["rshub_announcements_sent_total"] == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	c.nats.stop()
	for _, h := range c.hubs {
		w.until(t, h, "rshub_nats_connected", zero)
		w.until(t, h, `rshub_dependency_ok{dependency="nats"}`, zero)
	}
	publish(t, b, set, change("unannounced"))
	f.has(t, n+1)
	w.until(t, b, "rshub_announcements_lost_total", positive)
	w.until(t, a, "rshub_announcements_repaired_total", positive)

	b.signal(syscall.SIGSTOP) // until its claims are another's
	w.until(t, a, "rshub_callback_claims", func(v float64) bool { return v == 256 })
	b.signal(syscall.SIGCONT)
	w.until(t, b, "rshub_callback_claims_lost_total", positive)

	c.redis.kill()
	for _, h := range c.hubs {
		w.until(t, h, "rshub_ready", zero)
		w.until(t, h, `rshub_dependency_ok{dependency="memory"}`, zero)
	}
	w.until(t, a, `rshub_store_errors_total{op="check"}`, positive)
}
