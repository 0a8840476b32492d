package live

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics count what a Live has done. For its present values see newGauges.
type metrics struct {
	commits                prometheus.Counter
	duration               prometheus.Histogram
	lists                  prometheus.Counter
	failed, fallen, unheld prometheus.Counter    // see newMetrics
	reads, refused         [2]prometheus.Counter // by reader
}

// newMetrics returns metrics that are registered, unless r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "rshub_inventory_" + name, Help: help})
	}
	failures := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_inventory_failures_total",
		Help: "Failures of inventories. late: an update failed and is retried. lost: an inventory is no longer complete, because changes were lost or removed before it had them. unheld: retention did not wait for an inventory, because it was stuck for a day or the store was nearly full.",
	}, []string{"kind"})
	reads := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_inventory_reads_total",
		Help: "Reads of baselines, and of states for audits and listings: begun, or refused with 429 because of too many.",
	}, []string{"reader", "outcome"})
	by := func(outcome string) [2]prometheus.Counter {
		return [2]prometheus.Counter{states: reads.WithLabelValues("state", outcome), baselines: reads.WithLabelValues("baseline", outcome)}
	}
	return &metrics{
		commits: counter("commits_total", "Roots of inventories committed by this hub."),
		lists:   counter("lists_total", "Resource Lists made by this hub."),
		duration: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "rshub_inventory_commit_duration_seconds", Help: "Duration of inventory commits in seconds.",
			Buckets: []float64{.001, .005, .025, .1, .5, 2.5, 10, 60},
		}),
		failed: failures.WithLabelValues("late"), fallen: failures.WithLabelValues("lost"), unheld: failures.WithLabelValues("unheld"),
		reads: by("begun"), refused: by("refused"),
	}
}

// A present is the state of the inventories that this hub makes, for the
// metrics.
type present struct {
	sets       int
	lagChanges uint64 // the most changes of one set that are in no root
	since      int64  // the datetime of the oldest change that is in no root, in microseconds; 0: there is none
	resources  uint64
	pages      uint64
	bytes      uint64
	roots      int
	waiting    int // bytes of changes that wait for a commit
}

// tell updates the values for the metrics.
func (m *maker) tell() {
	p := present{waiting: m.waiting}
	for _, j := range m.jobs {
		if j.head == nil || j.state.NoInventory || !m.live.Mine(j.set) {
			continue
		}
		p.sets++
		p.resources += j.root.Tally.Count
		p.pages += j.root.Pages
		p.bytes += j.root.Bytes
		p.roots += len(j.head.Roots)
		head, at := j.state.Head.Position, j.root.Cursor.Position
		if head <= at {
			continue
		}
		p.lagChanges = max(p.lagChanges, head-at)
		since := j.since
		if since == 0 {
			since = j.moved.UnixMicro()
		}
		if p.since == 0 || since < p.since {
			p.since = since
		}
	}
	m.mu.Lock()
	m.present = p
	m.mu.Unlock()
}

// newGauges registers the present values of a Live.
func newGauges(r prometheus.Registerer, l *Live) {
	auto := promauto.With(r)
	gauge := func(name, help string, labels prometheus.Labels, mu *sync.Mutex, value func() float64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "rshub_inventory_" + name, Help: help, ConstLabels: labels}, func() float64 {
			mu.Lock()
			defer mu.Unlock()
			return value()
		})
	}
	made := func(name, help string, value func(p *present) float64) {
		gauge(name, help, nil, &l.maker.mu, func() float64 { return value(&l.maker.present) })
	}
	made("sets", "Sets whose inventory this hub maintains.", func(p *present) float64 { return float64(p.sets) })
	made("lag_changes", "Largest number of changes of a set that are not in its newest root yet, among sets maintained by this hub.", func(p *present) float64 { return float64(p.lagChanges) })
	made("lag_seconds", "Age of the oldest change that is in no root yet, in seconds, among sets maintained by this hub. Ten minutes are normal in a large set.", func(p *present) float64 {
		if p.since == 0 {
			return 0
		}
		return max(0, time.Since(time.UnixMicro(p.since)).Seconds())
	})
	made("resources", "Resources in the newest roots of the sets maintained by this hub.", func(p *present) float64 { return float64(p.resources) })
	made("pages", "Pages of these roots.", func(p *present) float64 { return float64(p.pages) })
	made("bytes", "Bytes of these pages, without overhead of the store.", func(p *present) float64 { return float64(p.bytes) })
	made("roots", "Existing roots of the sets maintained by this hub, at its last check.", func(p *present) float64 { return float64(p.roots) })
	made("waiting_bytes", "Memory of changes pending a commit, in bytes.", func(p *present) float64 { return float64(p.waiting) })
	for kind, name := range [...]string{states: "state", baselines: "baseline"} {
		gauge("readers", "Baselines and states being read from this hub.", prometheus.Labels{"reader": name}, &l.mu, func() float64 { return float64(l.reading[kind]) })
	}
	gauge("snapshots", "Roots in use by this hub's readers, now or recently.", nil, &l.mu, func() float64 {
		n := 0
		for _, v := range l.views {
			n += len(v.snapshots)
		}
		return float64(n)
	})
	gauge("kept_bytes", "Approximate memory of states cached for returning readers, in bytes.", nil, &l.mu, func() float64 { return float64(l.bytes) })
}
