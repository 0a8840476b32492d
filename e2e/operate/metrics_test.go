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

// constant are the metrics that never move.
var constant = []string{"rshub_build_info"}

// elsewhere are the beginnings of metrics that their packages show to move, callback and
// subscribe.
var elsewhere = []string{"rshub_callback_", "rshub_follower"}

// What is of every Go program is somebody else's to test; these show that it is
// there.
var ofProgram = []string{"go_goroutines", "go_memstats_heap_objects", "process_cpu_seconds_total", "process_resident_memory_bytes"}

// A watch remembers what was seen of each metric.
type watch struct {
	kinds map[string]string           // of families
	seen  map[string]map[float64]bool // values by family
}

// scrape reads the metrics of a hub: the values by name and labels.
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
func (w *watch) until(t testing.TB, h *hubtest.Hub, sample string, is func(v float64) bool) {
	t.Helper()
	hubtest.Until(t, sample+" moves", func() error {
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
	crowdIn(t, crowded, 128)
	w.until(t, crowded, "rshub_connections_refused_total", positive)
	hubtest.Until(t, "who is idle makes room", func() error {
		crowdIn(t, crowded, 1)
		if w.scrape(t, crowded)["rshub_connections_ended_total"] == 0 {
			return errors.New("nobody does")
		}
		return nil
	})
	unmoved := w.unmoved()
	for _, name := range unmoved {
		begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if begins("rshub_") && !slices.Contains(constant, name) && !slices.ContainsFunc(elsewhere, begins) {
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
	h := hubtest.StartHub(t, "RSHUB_CHANGELIST_SIZE=1", "RSHUB_RETENTION_COUNT=1")
	w.scrape(t, h)
	hubtest.Publish(t, h, set, hubtest.Change("first"))
	hubtest.Follow(t, h, hubtest.ByWebSocket, set, "start").WaitEntries(t, 1)
	hubtest.Publish(t, h, set, hubtest.Changes("bulk", 1000))
	moveInventories(t, w, h, set)
	// What is in the memory is looked at when a hub starts, and retention applied.
	h.Stop(t)
	h.Start(t)
	w.until(t, h, "rshub_log_sets", positive)
	w.until(t, h, "rshub_retention_removed_changes_total", positive)
}

// moveInventories moves what the inventory of a set has that holds much.
func moveInventories(t *testing.T, w *watch, h *hubtest.Hub, set string) {
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
				return errors.New("none does")
			}
		}
		return nil
	})
	hubtest.Must(t, http.StatusOK, http.MethodGet, h.URL+"/sets/"+set+"/audit", nil)
	w.until(t, h, "rshub_inventory_kept_bytes", positive)
	w.until(t, h, `rshub_inventory_reads_total{outcome="begun",reader="state"}`, positive)
	for i := range 10 { // more than fits into what lies between here and there
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

// dialStalled follows over a WebSocket that never reads what comes.
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

// moveInCluster moves what hubs have with each other.
func moveInCluster(t *testing.T, w *watch) {
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
	hubtest.Until(t, "an announcement comes", func() error { // once a listens to them
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

	c.Redis.Command(t, "HSET", "rshub:memory", "clock", "1") // as if the clock had been noted long ago
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
