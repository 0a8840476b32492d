package operate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// alertsFile is what is shipped.
const alertsFile = "../../deploy/helm/rshub/files/alerts.yaml"

// An alert is what Prometheus' engine says of one.
type alert struct {
	Alert               string
	Fires               bool
	Metrics             []string // that its expression names
	Labels, Annotations map[string]string
}

// buildAlerts builds the program that evaluates alerts.
func buildAlerts(t testing.TB) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "alerts")
	cmd := exec.Command("go", "build", "-o", program, ".")
	cmd.Dir = "../alerts"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the engine: %v\n%s", err, out)
	}
	return program
}

// evaluateAlerts says of each alert whether it fires at the end of series, which are as
// the program reads them.
func evaluateAlerts(t testing.TB, program string, series []byte) (all []alert) {
	t.Helper()
	cmd := exec.Command(program, alertsFile)
	cmd.Stdin = bytes.NewReader(series)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%s: %s", alertsFile, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	hubtest.Decode(t, out, &all)
	return all
}

// A sample is a value that a hub says of itself.
type sample struct {
	rises bool // it is a counter, or a part of a histogram
	value float64
}

// scrape reads all metrics of a hub, by series as the hub writes them. It is nil
// when the hub does not answer.
func scrape(h *hubtest.Hub) (map[string]sample, error) {
	a, err := hubtest.Request(http.MethodGet, h.Ops+"/metrics", nil, "Accept: text/plain; version=0.0.4")
	if err != nil || a.Status != http.StatusOK {
		return nil, nil
	}
	all, rises := map[string]sample{}, map[string]bool{}
	for line := range strings.Lines(string(a.Body)) {
		line = strings.TrimSpace(line)
		if words := strings.Fields(line); len(words) == 4 && words[1] == "TYPE" {
			rises[words[2]] = words[3] == "counter"
			for _, part := range []string{"_bucket", "_count", "_sum"} {
				rises[words[2]+part] = words[3] == "histogram"
			}
		}
		if line == "" || line[0] == '#' {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		name, _, _ := strings.Cut(line[:i], "{")
		all[line[:i]] = sample{rises[name], value}
	}
	return all, nil
}

// An alertWatch is what a Prometheus sees of some hubs. From two looks at them it makes
// an hour in which nothing happens, and then an eventful time in which, in each
// interval, happens again what did between the looks. So no test waits for minutes.
type alertWatch struct {
	hubs     []*hubtest.Hub
	looks    [][]map[string]sample // of each hub
	eventful time.Duration         // half an hour unless it is set
	late     string                // a series that goes on rising after the looks
	vanish   bool                  // a hub that does not answer is no target any more
}

const (
	scrapeEvery = 30 * time.Second
	quiet       = time.Hour
)

// look reads the metrics of all hubs. There are two looks.
func (w *alertWatch) look(t *testing.T) {
	t.Helper()
	all, err := w.scrapes()
	if err != nil {
		t.Fatal(err)
	}
	w.looks = append(w.looks, all)
}

// lookShared looks when every shard of the subscriptions is some hub's: for a
// moment, while it goes from one to another, it is not.
func (w *alertWatch) lookShared(t *testing.T) {
	t.Helper()
	hubtest.Until(t, "all is claimed", func() error {
		all, err := w.scrapes()
		if err != nil {
			return err
		}
		claims := 0.0
		for _, s := range all {
			claims += s["rshub_callback_claims"].value
		}
		if claims != 256 {
			return fmt.Errorf("%v shards are", claims)
		}
		w.looks = append(w.looks, all)
		return nil
	})
}

// scrapes reads the metrics of all hubs.
func (w *alertWatch) scrapes() (all []map[string]sample, err error) {
	for _, h := range w.hubs {
		s, err := scrape(h)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// now is the sum of a series over all hubs.
func (w *alertWatch) now(series string) (sum float64) {
	for _, h := range w.hubs {
		s, _ := scrape(h) // what cannot be read is missing in the sum
		sum += s[series].value
	}
	return sum
}

// sums returns nil when the sum of a series over all hubs is so much.
func (w *alertWatch) sums(series string, want float64) error {
	if got := w.now(series); got != want {
		return fmt.Errorf("%s is %v", series, got)
	}
	return nil
}

// over returns nil when it is more.
func (w *alertWatch) over(series string, most float64) error {
	if got := w.now(series); got <= most {
		return fmt.Errorf("%s is %v", series, got)
	}
	return nil
}

// series is what Prometheus has stored by the end, a series a line.
func (w *alertWatch) series(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encode := func(series string, points [][2]float64) {
		if err := encoder.Encode(map[string]any{"series": series, "points": points}); err != nil {
			t.Fatalf("%s: %v", series, err)
		}
	}
	end := quiet + cmp.Or(w.eventful, 30*time.Minute)
	// A target that is no hub, and that is down, is nobody's alert.
	var other [][2]float64
	for at := time.Duration(0); at <= end; at += scrapeEvery {
		other = append(other, [2]float64{float64(at.Milliseconds()), 0})
	}
	encode(`up{job="other",instance="other:9100"}`, other)
	for i, h := range w.hubs {
		before, after := w.looks[0][i], w.looks[1][i]
		points := map[string][][2]float64{}
		for at := time.Duration(0); at <= end; at += scrapeEvery {
			seen, again := before, 0.0
			if at > quiet {
				seen, again = after, float64((at-quiet)/scrapeEvery)
			}
			add := func(series string, v float64) {
				points[series] = append(points[series], [2]float64{float64(at.Milliseconds()), v})
			}
			if seen == nil {
				if !w.vanish {
					add("up", 0)
				}
				continue
			}
			add("up", 1)
			for series, s := range seen {
				v, was := s.value, before[series].value
				switch {
				case again == 0:
				case s.rises:
					v = was + again*(v-was)
				case (strings.HasPrefix(series, "rshub_follower_lag_seconds") || series == w.late) && was > 0 && v > was:
					v += again * scrapeEvery.Seconds() // it lags on
				}
				add(series, v)
			}
		}
		for _, series := range slices.Sorted(maps.Keys(points)) {
			name, rest, labelled := strings.Cut(series, "{")
			name += fmt.Sprintf(`{job="hubs",instance=%q`, h.Host)
			if labelled {
				name += "," + rest
			} else {
				name += "}"
			}
			encode(name, points[series])
		}
	}
	return out.Bytes()
}

// said is what the hubs said of some metrics at the second look.
func (w *alertWatch) said(metrics []string) (all []string) {
	for i, h := range w.hubs {
		for _, series := range slices.Sorted(maps.Keys(w.looks[1][i])) {
			if name, _, _ := strings.Cut(series, "{"); slices.Contains(metrics, name) {
				all = append(all, fmt.Sprintf("%s: %s %v, before %v", h.Host, series, w.looks[1][i][series].value, w.looks[0][i][series].value))
			}
		}
	}
	return all
}
