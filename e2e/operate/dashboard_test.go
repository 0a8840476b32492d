package operate

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// dashboardFile is what is shipped.
const dashboardFile = "../../deploy/grafana/rshub.json"

// A dashboard is one of Grafana's, as far as it is looked at.
type dashboard struct {
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ UID string }
	GridPos                  struct{ H, W, X, Y int }
	Targets                  []struct {
		RefID, Expr, LegendFormat string
		Datasource                struct{ UID string }
	}
}

var (
	legendLabel    = regexp.MustCompile(`\{\{(\w+)\}\}`)
	labelValues    = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	grafanaMacro   = strings.NewReplacer("$__rate_interval", "2m", "$job", ".+", "$instance", ".+")
	alwaysSelected = `{job=~"$job", instance=~"$instance"`
)

// TestDashboard has Prometheus' engine answer each query of the dashboard over what a hub on
// the disk and one on Redis say. Each returns something, with the labels that its legend
// names, and the metrics that it names are there.
func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	queries, labels := queriesOf(t, &d)

	disk, shared := hubtest.StartHub(t), hubtest.StartCluster(t, 1).Hubs[0]
	w := &alertWatch{hubs: []*hubtest.Hub{disk, shared}}
	w.look(t)
	for _, h := range w.hubs {
		hubtest.Publish(t, h, "shown", hubtest.Changes("shown", 10))
	}
	w.look(t)
	there := map[string]bool{}
	for _, seen := range w.looks[1] {
		for series := range seen {
			name, _, _ := strings.Cut(series, "{")
			there[name] = true
		}
	}
	for i, r := range evaluateQueries(t, queries, w.series(t)) {
		for _, name := range r.Metrics {
			if !there[name] {
				t.Errorf("%s: no hub has the metric %s", r.Query, name)
			}
		}
		if len(r.Metrics) == 0 || len(r.Labels) == 0 {
			t.Errorf("%s: it names %q and returns %d series", r.Query, r.Metrics, len(r.Labels))
		}
		for _, has := range r.Labels {
			for _, label := range labels[i] {
				if has[label] == "" {
					t.Errorf("%s: no label %s in %v", r.Query, label, has)
				}
			}
		}
	}
}

// queriesOf returns the queries of a dashboard, and of each the labels that are shown of
// what it returns. It looks at what Grafana would not complain about.
func queriesOf(t *testing.T, d *dashboard) (queries []string, labels [][]string) {
	t.Helper()
	add := func(query string, shown ...string) {
		queries, labels = append(queries, grafanaMacro.Replace(query)), append(labels, shown)
	}
	variables := map[string]bool{}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
		if v.Type == "datasource" {
			continue
		}
		m := labelValues.FindStringSubmatch(v.Definition)
		if m == nil {
			t.Fatalf("the variable %s is %s", v.Name, v.Definition)
		}
		add(m[1], m[2])
	}
	for _, name := range []string{"datasource", "job", "instance"} {
		if !variables[name] {
			t.Errorf("there is no variable %s", name)
		}
	}
	ids, place := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d, %q, is there twice, or has no title", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := place[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q has a place of %q's, or outside", p.Title, other)
				}
				place[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("%q has no description, no query or another data source: %+v", p.Title, p)
		}
		for _, target := range p.Targets {
			if n := strings.Count(target.Expr, "{job"); n == 0 || n != strings.Count(target.Expr, alwaysSelected) || target.Datasource.UID != "${datasource}" || target.RefID == "" {
				t.Errorf("%q asks other hubs, or another data source: %+v", p.Title, target)
			}
			var shown []string
			for _, m := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				shown = append(shown, m[1])
			}
			add(target.Expr, shown...)
		}
	}
	if len(queries) < 50 {
		t.Errorf("there are only %d queries", len(queries))
	}
	return queries, labels
}

// A queryResult is what Prometheus' engine says of a query.
type queryResult struct {
	Query   string
	Metrics []string
	Labels  []map[string]string
}

// evaluateQueries evaluates queries at the end of series.
func evaluateQueries(t *testing.T, queries []string, series []byte) (all []queryResult) {
	t.Helper()
	text, err := json.Marshal(queries)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "queries.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(buildAlerts(t), "-queries", file)
	cmd.Stdin = bytes.NewReader(series)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%s", exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	hubtest.Decode(t, out, &all)
	if len(all) != len(queries) {
		t.Fatalf("%d queries have %d answers", len(queries), len(all))
	}
	return all
}
