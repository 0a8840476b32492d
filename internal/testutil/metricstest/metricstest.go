// Package metricstest reads Prometheus metrics in tests.
//
// It reads a registry directly, without HTTP.
package metricstest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Values returns the current values of all metrics by name. The name of a metric with labels is
// name{label="value"}. The value of a histogram is its number of observations.
func Values(t testing.TB, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal("gather metrics:", err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.GetCounter() != nil:
				values[name] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				values[name] = m.GetGauge().GetValue()
			case m.GetHistogram() != nil:
				values[name] = float64(m.GetHistogram().GetSampleCount())
			default:
				t.Fatalf("metric %s is of type %v", name, f.GetType())
			}
		}
	}
	return values
}

// Check fails the test unless each metric in want has its value, and every other metric is 0.
func Check(t testing.TB, g prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	got := Values(t, g)
	for name, v := range want {
		if is, ok := got[name]; !ok || is != v {
			t.Errorf("%s is %v (there: %v), want %v", name, is, ok, v)
		}
	}
	for name, v := range got {
		if _, ok := want[name]; !ok && v != 0 {
			t.Errorf("%s is %v, and was not expected to move", name, v)
		}
	}
}
