package operate

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// constant are the metrics that never change.
var constant = []string{"rshub_build_info"}

// elsewhere are the prefixes of metrics that the tests of callback and subscribe cover.
var elsewhere = []string{"rshub_callback_", "rshub_follower"}

// ofProgram are metrics of every Go program, as examples: their libraries test them.
var ofProgram = []string{"go_goroutines", "go_memstats_heap_objects", "process_cpu_seconds_total", "process_resident_memory_bytes"}

// A watch records the observed values of each metric.
type watch struct {
	kinds map[string]string           // types by family
	seen  map[string]map[float64]bool // values by family
}

// scrape returns the metrics of a hub by name and labels.
func (w *watch) scrape(t testing.TB, h *hubtest.Hub) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	family := ""
	for line := range strings.Lines(string(hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+"/metrics", nil).Body)) {
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

// unchanged returns the families without activity: counters that stayed zero, and gauges that had
// one value.
func (w *watch) unchanged() (names []string) {
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

// until scrapes until a value satisfies a condition.
func (w *watch) until(t testing.TB, h *hubtest.Hub, sample string, is func(v float64) bool) {
	t.Helper()
	hubtest.Until(t, sample+" changes", func() error {
		v, ok := w.scrape(t, h)[sample]
		if !ok || !is(v) {
			return fmt.Errorf("got %v (exists: %v)", v, ok)
		}
		return nil
	})
}

func positive(v float64) bool { return v > 0 }
func zero(v float64) bool     { return v == 0 }

// TestMetricsChange exercises what each metric measures, at a hub on disk and at two hubs with
// Redis and NATS. A metric without activity fails the test, so that every metric is covered.
func TestMetricsChange(t *testing.T) {
	t.Parallel()
	w := &watch{kinds: map[string]string{}, seen: map[string]map[float64]bool{}}
	exerciseDisk(t, w)
	exerciseCluster(t, w)
	file := filepath.Join(t.TempDir(), "tokens")
	hubtest.NewToken(t, file, "operator", "operate")
	limited := hubtest.StartHub(t, "RSHUB_TOKENS_FILE="+file, "RSHUB_LIMITS_ADDRESS=requests:2/h", "RSHUB_DISK_RESERVE=1GiB")
	for range 3 {
		_, _ = hubtest.Request(http.MethodGet, limited.URL+"/sets", nil)
	}
	w.until(t, limited, `rshub_limit_refused_total{limit="requests",whose="address"}`, positive)
	crowded := startWithDescriptors(t, 128)
	idle, err := net.Dial("tcp", crowded.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	connectIdle(t, crowded, 128)
	w.until(t, crowded, "rshub_connections_refused_total", positive)
	hubtest.Until(t, "an idle connection is closed", func() error {
		connectIdle(t, crowded, 1)
		if w.scrape(t, crowded)["rshub_connections_ended_total"] == 0 {
			return errors.New("none closed yet")
		}
		return nil
	})
	unchanged := w.unchanged()
	for _, name := range unchanged {
		hasPrefix := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if hasPrefix("rshub_") && !slices.Contains(constant, name) && !slices.ContainsFunc(elsewhere, hasPrefix) {
			t.Errorf("metric %s did not change", name)
		}
	}
	for _, name := range constant {
		if !slices.Contains(unchanged, name) {
			t.Errorf("metric %s changed, or does not exist", name)
		}
	}
	for _, name := range ofProgram {
		if w.seen[name] == nil || slices.Contains(unchanged, name) {
			t.Errorf("metric %s did not change", name)
		}
	}
}

// exerciseDisk exercises the metrics of a single hub.
func exerciseDisk(t *testing.T, w *watch) {
	const set = "moves"
	// Retention leaves one change per set.
	h := hubtest.StartHub(t, "RSHUB_CHANGELIST_SIZE=1", "RSHUB_RETENTION_COUNT=1")
	w.scrape(t, h)
	hubtest.Publish(t, h, set, hubtest.Change("first"))
	hubtest.Follow(t, h, hubtest.ByWebSocket, set, "start").WaitEntries(t, 1)
	hubtest.Publish(t, h, set, hubtest.Changes("bulk", 1000))
	exerciseInventories(t, w, h, set)
	// At its start a hub counts the sets, and applies retention.
	h.Stop(t)
	h.Start(t)
	w.until(t, h, "rshub_log_sets", positive)
	w.until(t, h, "rshub_retention_removed_changes_total", positive)
}

// exerciseInventories exercises the metrics of the inventory of a large set.
func exerciseInventories(t *testing.T, w *watch, h *hubtest.Hub, set string) {
	for _, name := range []string{"sets", "commits_total", "resources", "pages", "bytes", "roots"} {
		w.until(t, h, "rshub_inventory_"+name, positive)
	}
	n := 0
	hubtest.Until(t, "changes wait for a commit", func() error {
		n++
		hubtest.Publish(t, h, set, hubtest.Change(fmt.Sprint("waits-", n)))
		seen := w.scrape(t, h)
		for _, name := range []string{"lag_changes", "lag_seconds", "waiting_bytes"} {
			if seen["rshub_inventory_"+name] == 0 {
				return errors.New("none yet")
			}
		}
		return nil
	})
	hubtest.Must(t, http.StatusOK, http.MethodGet, h.URL+"/sets/"+set+"/audit", nil)
	w.until(t, h, "rshub_inventory_kept_bytes", positive)
	w.until(t, h, `rshub_inventory_reads_total{outcome="begun",reader="state"}`, positive)
	for i := range 10 { // more than the buffers of the connection
		hubtest.Publish(t, h, set, hubtest.Changes(strings.Repeat("long", 400)+strconv.Itoa(i), 1000))
	}
	w.until(t, h, "rshub_inventory_resources", func(v float64) bool { return v > 10_000 })
	reader := dialStalled(t, h, set, "?since=baseline")
	w.until(t, h, `rshub_inventory_readers{reader="baseline"}`, positive)
	w.until(t, h, "rshub_inventory_snapshots", positive)
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
	hubtest.Must(t, http.StatusOK, http.MethodPut, h.URL+"/sets/"+set, []byte(`{"complete":true}`), "Content-Type: application/json")
	w.until(t, h, "rshub_inventory_lists_total", positive)
}

// dialStalled follows over a WebSocket that never reads.
func dialStalled(t *testing.T, h *hubtest.Hub, set, query string) *websocket.Conn {
	t.Helper()
	d := websocket.Dialer{NetDial: func(network, addr string) (net.Conn, error) {
		c, err := net.Dial(network, addr)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		}
		return c, err
	}}
	c, _, err := d.Dial("ws"+strings.TrimPrefix(h.Topic(set), "http")+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// exerciseCluster exercises the metrics of a cluster.
func exerciseCluster(t *testing.T, w *watch) {
	const set = "moves"
	c := hubtest.StartCluster(t, 2)
	a, b := c.Hubs[0], c.Hubs[1]
	for _, h := range c.Hubs {
		w.until(t, h, "rshub_nats_connected", positive)
		w.until(t, h, "rshub_ready", positive)
	}
	hubtest.Publish(t, b, set, hubtest.Change("first"))
	f := hubtest.Follow(t, a, hubtest.ByWebSocket, set, "start")
	f.WaitEntries(t, 1)
	n := 1
	hubtest.Until(t, "an announcement arrives", func() error { // after a has subscribed to them
		hubtest.Publish(t, b, set, hubtest.Change("next"))
		n++
		f.WaitEntries(t, n)
		if w.scrape(t, a)["rshub_announcements_received_total"] == 0 || w.scrape(t, b)["rshub_announcements_sent_total"] == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	hubtest.StartWiretap(t, c.NATS).Publish(t, "rshub.changes."+set, []byte("nonsense"))
	w.until(t, a, "rshub_announcements_refused_total", positive)
	c.NATS.Stop()
	for _, h := range c.Hubs {
		w.until(t, h, "rshub_nats_connected", zero)
		w.until(t, h, `rshub_dependency_ok{dependency="nats"}`, zero)
	}
	hubtest.Publish(t, b, set, hubtest.Change("unannounced"))
	f.WaitEntries(t, n+1)
	w.until(t, b, "rshub_announcements_lost_total", positive)
	w.until(t, a, "rshub_announcements_repaired_total", positive)

	c.Redis.Command(t, "HSET", "rshub:memory", "clock", "1") // as if the clock had been recorded long ago
	b.Stop(t)
	b.Start(t)
	w.until(t, b, "rshub_clock_doubtful", positive)

	c.Redis.Kill()
	for _, h := range c.Hubs {
		w.until(t, h, "rshub_ready", zero)
		w.until(t, h, `rshub_dependency_ok{dependency="memory"}`, zero)
	}
	w.until(t, a, `rshub_store_errors_total{op="check"}`, positive)
	w.until(t, a, `rshub_inventory_failures_total{kind="late"}`, positive)
}
