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

// What is shipped.
const (
	alertsFile    = "../../deploy/helm/rshub/files/alerts.yaml"
	dashboardFile = "../../deploy/grafana/rshub.json"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

// A hubs knows the metrics of a hub on the disk and of one on Redis.
type hubs map[string]bool

func start(t *testing.T) hubs {
	there := hubs{"up": true}
	for _, h := range []*hubtest.Hub{hubtest.StartHub(t), hubtest.StartCluster(t, 1).Hubs[0]} {
		hubtest.Publish(t, h, "shown", hubtest.Changes("shown", 10))
		a := hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+"/metrics", nil)
		for line := range strings.Lines(string(a.Body)) {
			if name, _, ok := strings.Cut(line, " "); ok && name != "#" {
				name, _, _ = strings.Cut(name, "{")
				there[name] = true
			}
		}
	}
	return there
}

// asks holds that an expression is one, and that hubs have each metric that it names.
func (there hubs) asks(t *testing.T, what, text string) {
	t.Helper()
	expr, err := parser.ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	named := 0
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		if named++; !there[v.Name] {
			t.Errorf("%s: no hub has the metric %s", what, v.Name)
		}
		return nil
	})
	if named == 0 {
		t.Errorf("%s names no metric", what)
	}
}

// TestAlerts holds that the rules are such, that hubs have the metrics, and that
// docs/operate.md says of each alert what to do, and of no other.
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
	there := start(t)
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			names = append(names, r.Alert)
			there.asks(t, r.Alert, r.Expr)
			if r.Labels["severity"] != "critical" && r.Labels["severity"] != "warning" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" ||
				!strings.HasSuffix(r.Annotations["runbook_url"], "/docs/operate.md#"+strings.ToLower(r.Alert)) {
				t.Errorf("%s has the labels %v and the annotations %v", r.Alert, r.Labels, r.Annotations)
			}
		}
	}
	if !slices.Equal(names, headings) {
		t.Errorf("docs/operate.md has headings for %q, and the alerts are %q", headings, names)
	}
}

// TestDashboard holds that the queries of the dashboard are such, and that hubs have the
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
	there, queries := start(t), 0
	macros := strings.NewReplacer("$__rate_interval", "2m")
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			queries++
			there.asks(t, p.Title, macros.Replace(target.Expr))
		}
	}
	if queries < 50 {
		t.Errorf("there are only %d queries", queries)
	}
}
