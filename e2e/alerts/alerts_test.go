package alerts

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// The shipped files.
const (
	alertsFile    = "../../deploy/helm/rshub/files/alerts.yaml"
	dashboardFile = "../../deploy/grafana/rshub.json"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

// A metricSet is the set of metrics of a hub on disk and of one with Redis.
type metricSet map[string]bool

func start(t *testing.T) metricSet {
	metrics := metricSet{"up": true}
	for _, h := range []*hubtest.Hub{hubtest.StartHub(t), hubtest.StartCluster(t, 1).Hubs[0]} {
		hubtest.Publish(t, h, "shown", hubtest.Changes("shown", 10))
		a := hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+"/metrics", nil)
		for line := range strings.Lines(string(a.Body)) {
			if name, _, ok := strings.Cut(line, " "); ok && name != "#" {
				name, _, _ = strings.Cut(name, "{")
				metrics[name] = true
			}
		}
	}
	return metrics
}

// check checks that an expression is valid, and that hubs have each metric in it.
func (m metricSet) check(t *testing.T, what, text string) {
	t.Helper()
	expr, err := parser.ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	count := 0
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		if count++; !m[v.Name] {
			t.Errorf("%s: hubs have no metric %s", what, v.Name)
		}
		return nil
	})
	if count == 0 {
		t.Errorf("%s: got no metric in the expression", what)
	}
}

// TestAlerts checks that the rules are valid, that hubs have their metrics, and that
// docs/operate.md has a section for each alert, and for no other.
func TestAlerts(t *testing.T) {
	groups, errs := rulefmt.ParseFile(alertsFile, false)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	text, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	var headings, names []string
	for _, m := range regexp.MustCompile(`(?m)^### (Rshub\S*)$`).FindAllStringSubmatch(string(text), -1) {
		headings = append(headings, m[1])
	}
	metrics := start(t)
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			names = append(names, r.Alert)
			metrics.check(t, r.Alert, r.Expr)
			if r.Labels["severity"] != "critical" && r.Labels["severity"] != "warning" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" ||
				!strings.HasSuffix(r.Annotations["runbook_url"], "/docs/operate.md#"+strings.ToLower(r.Alert)) {
				t.Errorf("%s: got labels %v and annotations %v, want severity, summary, description and runbook_url", r.Alert, r.Labels, r.Annotations)
			}
		}
	}
	if !slices.Equal(names, headings) {
		t.Errorf("headings in docs/operate.md = %q, want %q", headings, names)
	}
}

// TestDashboard checks that the queries of the dashboard are valid, and that hubs have their
// metrics.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	metrics, queries := start(t), 0
	macros := strings.NewReplacer("$__rate_interval", "2m")
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			queries++
			metrics.check(t, p.Title, macros.Replace(target.Expr))
		}
	}
	if queries < 50 {
		t.Errorf("got %d queries, want at least 50", queries)
	}
}
