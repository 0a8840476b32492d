package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

// rulesOf returns the rules that the chart installs, by the names of their alerts.
func rulesOf(t *testing.T, values string) map[string]monitoringv1.Rule {
	t.Helper()
	i := install(t, parse(t, values), installed)
	object := find[*monitoringv1.PrometheusRule](i, "rshub")
	if object == nil {
		t.Fatal("there is no PrometheusRule")
	}
	rules := map[string]monitoringv1.Rule{}
	for _, g := range object.Spec.Groups {
		for _, r := range g.Rules {
			rules[r.Alert] = r
		}
	}
	return rules
}

// All alerts of the file are installed, and each may be changed or left out.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "files/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file monitoringv1.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		t.Fatal(err)
	}
	rules := rulesOf(t, "{serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}")
	var name string
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if got := rules[r.Alert]; got.Expr.String() != strings.ReplaceAll(r.Expr.String(), `job=~".+"`, `job="rshub",namespace="hubs"`) || fmt.Sprint(got.Annotations) != fmt.Sprint(r.Annotations) || fmt.Sprint(got.Labels) != fmt.Sprint(r.Labels) {
				t.Errorf("%s is installed as %+v", r.Alert, got)
			}
			if r.Alert != "" {
				name = r.Alert
			}
		}
	}
	if name == "" {
		t.Fatal("there is no alert")
	}
	changed := rulesOf(t, fmt.Sprintf("prometheusRule: {enabled: true, matchers: 'job=\"rshub\",namespace=\"hubs\"', alertLabels: {team: data}, alerts: {%s: {for: 17m, labels: {severity: none}}}}", name))[name]
	if changed.For == nil || *changed.For != "17m" || changed.Labels["severity"] != "none" || changed.Labels["team"] != "data" || changed.Expr != rules[name].Expr {
		t.Errorf("%s is changed to %+v", name, changed)
	}
	// Another rule stays, so that there is a group.
	fewer := rulesOf(t, fmt.Sprintf("prometheusRule: {enabled: true, matchers: 'job=\"rshub\",namespace=\"hubs\"', alerts: {%s: {enabled: false}}, extraGroups: [{name: ours, rules: [{alert: Ours, expr: up == 0}]}]}", name))
	if _, ok := fewer[name]; ok || len(fewer) != len(rules) {
		t.Errorf("without %s there are %d rules, and were %d", name, len(fewer), len(rules))
	}
}

var metric = regexp.MustCompile(`\b(?:rshub_[a-z_]+|up)\b(.{0,60})`)

// An alert looks at the hubs that the values say, whichever metrics it has. TestAlerts has those of
// one release.
func TestAlertsOfRelease(t *testing.T) {
	for name, rule := range rulesOf(t, `{prometheusRule: {enabled: true, matchers: 'job="a", cluster=~"b.*"'}}`) {
		metrics := metric.FindAllStringSubmatch(rule.Expr.String(), -1)
		if len(metrics) == 0 {
			t.Errorf("%s looks at nothing: %s", name, rule.Expr.String())
		}
		for _, m := range metrics {
			if !strings.HasPrefix(m[1], `{job="a", cluster=~"b.*"`) {
				t.Errorf("%s looks at other hubs too: %s", name, m[0])
			}
		}
	}
}
