package writer

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the metrics of a Writer. The gauges are about the sets that it updates.
type metrics struct {
	commits, lists     prometheus.Counter
	late, lost, unheld prometheus.Counter // failures, see newMetrics
	duration           prometheus.Histogram

	sets, lagChanges, resources, pages, bytes, roots, pending prometheus.Gauge
	oldest                                                    atomic.Int64 // datetime of the oldest change in no root, in microseconds since 1970, or zero
}

// newMetrics returns metrics, and registers them unless r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "rshub_inventory_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return auto.NewGauge(prometheus.GaugeOpts{Name: "rshub_inventory_" + name, Help: help})
	}
	failures := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_inventory_failures_total",
		Help: "Failures of inventories. late: an update failed and is retried. lost: an inventory is no longer complete, because changes were lost or removed before it had them. unheld: retention did not wait for an inventory, because it was stuck for a day or the store was nearly full.",
	}, []string{"kind"})
	m := &metrics{
		commits: counter("commits_total", "Roots of inventories committed by this hub."),
		lists:   counter("lists_total", "Resource Lists made by this hub."),
		duration: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "rshub_inventory_commit_duration_seconds", Help: "Duration of inventory commits in seconds.",
			Buckets: []float64{.001, .005, .025, .1, .5, 2.5, 10, 60},
		}),
		late: failures.WithLabelValues("late"), lost: failures.WithLabelValues("lost"), unheld: failures.WithLabelValues("unheld"),

		sets:       gauge("sets", "Sets whose inventory this hub maintains."),
		lagChanges: gauge("lag_changes", "Largest number of changes of a set that are not in its newest root yet, among sets maintained by this hub."),
		resources:  gauge("resources", "Resources in the newest roots of the sets maintained by this hub."),
		pages:      gauge("pages", "Pages of these roots."),
		bytes:      gauge("bytes", "Bytes of these pages, without overhead of the store."),
		roots:      gauge("roots", "Existing roots of the sets maintained by this hub, at its last check."),
		pending:    gauge("waiting_bytes", "Memory of changes pending a commit, in bytes."),
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rshub_inventory_lag_seconds",
		Help: "Age of the oldest change that is in no root yet, in seconds, among sets maintained by this hub. Ten minutes are normal in a large set.",
	}, func() float64 {
		if oldest := m.oldest.Load(); oldest > 0 {
			return max(0, time.Since(time.UnixMicro(oldest)).Seconds())
		}
		return 0
	})
	return m
}

// updateGauges sets the gauges. Only the goroutine of updateSets calls it.
func (w *Writer) updateGauges() {
	var sets, roots int
	var resources, pages, bytes, lag uint64
	var oldest int64
	for _, u := range w.sets {
		if u.head == nil || u.state.NoInventory {
			continue
		}
		sets, roots = sets+1, roots+len(u.head.Roots)
		resources, pages, bytes = resources+u.root.Tally.Count, pages+u.root.Pages, bytes+u.root.Bytes
		if head, at := u.state.Head.Position, u.root.Cursor.Position; head > at {
			lag = max(lag, head-at)
			if since := cmp.Or(u.oldest, u.changed.UnixMicro()); oldest == 0 || since < oldest {
				oldest = since
			}
		}
	}
	m := w.metrics
	m.sets.Set(float64(sets))
	m.roots.Set(float64(roots))
	m.resources.Set(float64(resources))
	m.pages.Set(float64(pages))
	m.bytes.Set(float64(bytes))
	m.lagChanges.Set(float64(lag))
	m.pending.Set(float64(w.pendingBytes))
	m.oldest.Store(oldest)
}
