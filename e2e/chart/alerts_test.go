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

// rulesOf returns the rules that the chart installs, by the name of their alert.
func rulesOf(t *testing.T, values string) map[string]monitoringv1.Rule {
	t.Helper()
	i := install(t, parse(t, values), installed)
	object := find[*monitoringv1.PrometheusRule](i, "rshub")
	if object == nil {
		t.Fatal("got no PrometheusRule")
	}
	rules := map[string]monitoringv1.Rule{}
	for _, g := range object.Spec.Groups {
		for _, r := range g.Rules {
			rules[r.Alert] = r
		}
	}
	return rules
}

// TestAlerts checks that all alerts of the file are installed, and that each can be changed or disabled.
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
				t.Errorf("rule %s = %+v, want the one of the file", r.Alert, got)
			}
			if r.Alert != "" {
				name = r.Alert
			}
		}
	}
	if name == "" {
		t.Fatal("found no alert")
	}
	changed := rulesOf(t, fmt.Sprintf("prometheusRule: {enabled: true, matchers: 'job=\"rshub\",namespace=\"hubs\"', alertLabels: {team: data}, alerts: {%s: {for: 17m, labels: {severity: none}}}}", name))[name]
	if changed.For == nil || *changed.For != "17m" || changed.Labels["severity"] != "none" || changed.Labels["team"] != "data" || changed.Expr != rules[name].Expr {
		t.Errorf("changed rule %s = %+v, want the values", name, changed)
	}
	// Another rule ensures that the group is not empty.
	fewer := rulesOf(t, fmt.Sprintf("prometheusRule: {enabled: true, matchers: 'job=\"rshub\",namespace=\"hubs\"', alerts: {%s: {enabled: false}}, extraGroups: [{name: ours, rules: [{alert: Ours, expr: up == 0}]}]}", name))
	if _, ok := fewer[name]; ok || len(fewer) != len(rules) {
		t.Errorf("got %[2]d rules without %[1]s, want %[3]d", name, len(fewer), len(rules))
	}
}

var metric = regexp.MustCompile(`\b(?:rshub_[a-z_]+|up)\b(.{0,60})`)

// TestAlertMatchers checks that each metric in an alert has the configured matchers. TestAlerts
// covers the default matchers.
func TestAlertMatchers(t *testing.T) {
	for name, rule := range rulesOf(t, `{prometheusRule: {enabled: true, matchers: 'job="a", cluster=~"b.*"'}}`) {
		metrics := metric.FindAllStringSubmatch(rule.Expr.String(), -1)
		if len(metrics) == 0 {
			t.Errorf("alert %s has no metric: %s", name, rule.Expr.String())
		}
		for _, m := range metrics {
			if !strings.HasPrefix(m[1], `{job="a", cluster=~"b.*"`) {
				t.Errorf("alert %s: got metric without the matchers: %s", name, m[0])
			}
		}
	}
}
