package server

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/rshub/rshub/internal/testutil/certtest"
	"github.com/rshub/rshub/internal/testutil/metricstest"
	"github.com/rshub/rshub/internal/testutil/redistest"
	"github.com/rshub/rshub/internal/testutil/servertest"
	"github.com/rshub/rshub/internal/testutil/tabletest"
)

// Metrics require no token, like health, and so contain no names of sets, callers or resources.
func TestMetricsRequireNoToken(t *testing.T) {
	known, texts := tokens(t, "publish:*")
	h := start(t, Config{Callers: known})
	h.Publish("secret-name", bearer(texts[0])...)
	_, plain := servertest.Do(t, "GET", h.Ops+"/metrics", "")
	for _, name := range []string{"secret-name", "callera", "example.org"} {
		if strings.Contains(plain, name) {
			t.Errorf("metrics contain %q, want it absent", name)
		}
	}
	for _, want := range []string{"\nrshub_published_changes_total 1\n", "\ngo_goroutines ", "\nprocess_resident_memory_bytes ", `rshub_build_info{goversion="go`} {
		if !strings.Contains(plain, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
	resp, text := servertest.Do(t, "GET", h.Ops+"/metrics", "", "Accept", "application/openmetrics-text;version=1.0.0")
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/openmetrics-text; version=1.0.0") || !strings.HasSuffix(text, "# EOF\n") {
		t.Errorf("OpenMetrics: got %s, end %q, want EOF", resp.Header.Get("Content-Type"), text[max(0, len(text)-20):])
	}
}

// Each response is counted once, for its route, even if a middleware sends it.
func TestResponseCounts(t *testing.T) {
	known, texts := tokens(t, "publish:*,follow:*,operate", "anyone - follow:*")
	h := start(t, Config{Callers: known, Metrics: prometheus.NewRegistry()})
	auth := bearer(texts[0])
	h.Publish("demo", auth...)
	ws, _, err := websocket.DefaultDialer.Dial(strings.Replace(h.URL, "http", "ws", 1)+"/sets/demo/changes", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	etag := ""
	for _, r := range []struct {
		path    string
		headers []string
	}{
		{"/", nil}, {"/sets/demo/changelist.xml", nil}, {"/sets/demo/changelist.xml", []string{"If-None-Match"}}, {"/hub", nil},
		{"/sets", nil}, {"//sets", nil}, {"/sets/other", nil}, {"/sets/demo/changes", nil}, {"/sets/demo/changes", []string{"Origin", "https://evil.example"}},
		{"/sets/demo/subscriptions", auth}, {"/sets/demo/subscriptions/x", auth}, {"/subscriptions/none", nil}, {"/nothing", nil},
	} {
		if len(r.headers) == 1 {
			r.headers = append(r.headers, etag)
		}
		resp, _ := servertest.Do(t, "GET", h.URL+r.path, "", r.headers...)
		etag = resp.Header.Get("ETag")
	}
	want := map[string]float64{
		"page 2xx": 1, "documents 2xx": 1, "documents 3xx": 1, "hub 2xx": 1, "sets 2xx": 1, "sets 3xx": 1, "sets 4xx": 1,
		"topic 101": 1, "topic 2xx": 2, "topic 4xx": 1, "subscriptions 2xx": 1, "subscriptions 4xx": 1, "status 4xx": 1, "other 4xx": 1,
	}
	got := map[string]float64{}
	for name, v := range metricstest.Values(t, h.server.metrics) {
		if m := responsesForm.FindStringSubmatch(name); m != nil && v > 0 {
			got[m[2]+" "+m[1]] = v
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("response counts = %v, want %v", got, want)
	}
}

var responsesForm = regexp.MustCompile(`^rshub_http_responses_total\{code="(\w+)",route="(\w+)"`)

// The metrics of a hub on the disk, and of one on Redis with NATS, follow the conventions of Prometheus,
// and docs/reference.md has them in a table, which -update writes.
func TestMetricsTable(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	pair := certtest.New(t)
	disk := start(t, Config{TLSCertFile: pair.Cert, TLSKeyFile: pair.Key})
	shared := start(t, Config{RedisURL: "redis://" + redis.Addr, BaseURL: "http://127.0.0.1:1", NATSURL: "nats://127.0.0.1:1"})
	all := map[string]*family{}
	for _, h := range []*testHub{disk, shared} {
		families, err := h.server.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if strings.HasPrefix(p.Metric, "rshub_") {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
		for _, f := range families {
			if all[f.GetName()] == nil {
				all[f.GetName()] = &family{strings.ToLower(f.GetType().String()), f.GetHelp(), map[string]map[string]bool{}}
			}
			labels := all[f.GetName()].labels
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if labels[l.GetName()] == nil {
						labels[l.GetName()] = map[string]bool{}
					}
					labels[l.GetName()][l.GetValue()] = true
				}
			}
		}
	}
	var table strings.Builder
	table.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		if !strings.HasPrefix(name, "rshub_") {
			continue
		}
		var labels []string
		for _, label := range slices.Sorted(maps.Keys(f.labels)) {
			text := "`" + label + "`"
			if name != "rshub_build_info" {
				text += ": " + strings.Join(slices.Sorted(maps.Keys(f.labels[label])), ", ")
			}
			labels = append(labels, text)
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", name, f.kind, strings.Join(labels, "; "), tabletest.Cell(f.help))
	}
	tabletest.Check(t, "../../docs/reference.md", "metrics", table.String())
}

// A family is a metric family.
type family struct {
	kind, help string
	labels     map[string]map[string]bool // values by label name
}
