package server

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/rshub/rshub/internal/certificate/certtest"
	"github.com/rshub/rshub/internal/operatetest"
	"github.com/rshub/rshub/internal/redistest"
	"github.com/rshub/rshub/internal/servertest"
)

// A family is a metric as it is served.
type family struct {
	help, kind string
	samples    map[string]float64 // by name and labels
}

// scrape reads the metrics of a hub.
func scrape(t *testing.T, h *started) (families map[string]*family, text string) {
	t.Helper()
	resp, text := servertest.Do(t, "GET", h.Ops+"/metrics", "")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the metrics are %d %s", resp.StatusCode, text)
	}
	families = map[string]*family{}
	var f *family
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			f = &family{help: help, samples: map[string]float64{}}
			families[name] = f
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			_, f.kind, _ = strings.Cut(rest, " ")
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		f.samples[line[:i]] = v
	}
	return families, text
}

// The metrics are there for whoever reaches the address for operations: as the
// health, they name nobody and nothing.
func TestMetricsAreOpen(t *testing.T) {
	known, texts := tokens(t, "publish:*")
	h := start(t, Config{Callers: known})
	h.Publish("secret-name", bearer(texts[0])...)
	_, text := scrape(t, h)
	for _, name := range []string{"secret-name", "callera", "example.org"} {
		if strings.Contains(text, name) {
			t.Errorf("the metrics have %s", name)
		}
	}
	for _, want := range []string{"\nrshub_published_changes_total 1\n", "\ngo_goroutines ", "\nprocess_resident_memory_bytes ", `rshub_build_info{goversion="go`} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics have no %q", want)
		}
	}
	resp, text := servertest.Do(t, "GET", h.Ops+"/metrics", "", "Accept", "application/openmetrics-text;version=1.0.0")
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/openmetrics-text; version=1.0.0") || !strings.HasSuffix(text, "# EOF\n") {
		t.Errorf("OpenMetrics is %s, and ends with %q", resp.Header.Get("Content-Type"), text[max(0, len(text)-20):])
	}
	if resp, _ := servertest.Do(t, "POST", h.Ops+"/metrics", ""); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a POST is %d", resp.StatusCode)
	}
}

// Every answer counts once, where it belongs, also one that is given before the
// request gets there.
func TestResponses(t *testing.T) {
	known, texts := tokens(t, "publish:*,follow:*,operate", "anyone - follow:*")
	h := start(t, Config{Callers: known})
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
	families, _ := scrape(t, h)
	want := map[string]float64{
		"page 2xx": 1, "documents 2xx": 1, "documents 3xx": 1, "hub 2xx": 1, "sets 2xx": 1, "sets 3xx": 1, "sets 4xx": 1,
		"topic 101": 1, "topic 2xx": 2, "topic 4xx": 1, "subscriptions 2xx": 1, "subscriptions 4xx": 1, "status 4xx": 1, "other 4xx": 1,
	}
	for sample, v := range families["rshub_http_responses_total"].samples {
		code, route := label(sample, "code"), label(sample, "route")
		if v != want[route+" "+code] {
			t.Errorf("%s %s: %v answers, want %v", route, code, v, want[route+" "+code])
		}
		delete(want, route+" "+code)
	}
	if len(want) > 0 {
		t.Errorf("not there: %v", want)
	}
}

var labelForm = regexp.MustCompile(`(\w+)="([^"]*)"`)

func label(sample, name string) string {
	for _, m := range labelForm.FindAllStringSubmatch(sample, -1) {
		if m[1] == name {
			return m[2]
		}
	}
	return ""
}

// What a hub serves on the disk, and on Redis with NATS, keeps to the
// conventions of Prometheus, and docs/operate.md has it all. With -update the
// table there is written.
func TestMetricsTable(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	pair := certtest.New(t)
	disk := start(t, Config{TLSCertFile: pair.Cert, TLSKeyFile: pair.Key})
	all, text := scrape(t, disk)
	disk.Stop()
	shared := start(t, Config{RedisURL: "redis://" + redis.Addr, BaseURL: "http://127.0.0.1:1", NATSURL: "nats://127.0.0.1:1"})
	more, sharedText := scrape(t, shared)
	for name, f := range more {
		if old := all[name]; old != nil {
			maps.Copy(f.samples, old.samples)
		}
		all[name] = f
	}
	for _, text := range []string{text, sharedText} {
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if strings.HasPrefix(p.Metric, "rshub_") {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
	}
	var table strings.Builder
	table.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if f := all[name]; strings.HasPrefix(name, "rshub_") {
			fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", name, f.kind, f.labels(name), operatetest.Cell(f.help))
		}
	}
	operatetest.Check(t, "../docs/operate.md", "metrics", table.String())
}

// labels names a family's labels, each with its values where the code has them
// all.
func (f *family) labels(name string) string {
	values := map[string]map[string]bool{}
	for sample := range f.samples {
		for _, m := range labelForm.FindAllStringSubmatch(sample, -1) {
			if m[1] == "le" {
				continue // of a histogram
			}
			if values[m[1]] == nil {
				values[m[1]] = map[string]bool{}
			}
			values[m[1]][m[2]] = true
		}
	}
	var all []string
	for _, label := range slices.Sorted(maps.Keys(values)) {
		text := "`" + label + "`"
		if name != "rshub_build_info" {
			text += ": " + strings.Join(slices.Sorted(maps.Keys(values[label])), ", ")
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}
