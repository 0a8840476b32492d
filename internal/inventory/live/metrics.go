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
		Help: "Failures of inventories. late: one could not be made up to date, and is tried again. lost: one is no longer complete, because changes were lost or removed before it had them. unheld: retention did not wait for one, because it was stuck for a day or the store had little room.",
	}, []string{"kind"})
	reads := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_inventory_reads_total",
		Help: "Baselines, and reads of states for audits and listings: begun, or refused with 429 because too many were under way.",
	}, []string{"reader", "outcome"})
	by := func(outcome string) [2]prometheus.Counter {
		return [2]prometheus.Counter{states: reads.WithLabelValues("state", outcome), baselines: reads.WithLabelValues("baseline", outcome)}
	}
	return &metrics{
		commits: counter("commits_total", "Roots of inventories that this hub made."),
		lists:   counter("lists_total", "Resource Lists that this hub made."),
		duration: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "rshub_inventory_commit_duration_seconds", Help: "Time that it took to make a root.",
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
	made("sets", "Sets whose inventory this hub makes.", func(p *present) float64 { return float64(p.sets) })
	made("lag_changes", "Changes that are not in the newest root of a set yet, for the set with the most of them, of the sets made by this hub.", func(p *present) float64 { return float64(p.lagChanges) })
	made("lag_seconds", "Age of the oldest change that is in no root yet, of all sets made by this hub. Ten minutes are normal in a large set.", func(p *present) float64 {
		if p.since == 0 {
			return 0
		}
		return max(0, time.Since(time.UnixMicro(p.since)).Seconds())
	})
	made("resources", "Resources in the newest roots of the sets made by this hub.", func(p *present) float64 { return float64(p.resources) })
	made("pages", "Pages of these roots.", func(p *present) float64 { return float64(p.pages) })
	made("bytes", "Bytes of these pages, without what the store adds.", func(p *present) float64 { return float64(p.bytes) })
	made("roots", "Roots that exist, of the sets made by this hub, as it last saw them.", func(p *present) float64 { return float64(p.roots) })
	made("waiting_bytes", "Bytes in memory of the changes that wait for a commit.", func(p *present) float64 { return float64(p.waiting) })
	for kind, name := range [...]string{states: "state", baselines: "baseline"} {
		gauge("readers", "Baselines and states that are being read from this hub now.", prometheus.Labels{"reader": name}, &l.mu, func() float64 { return float64(l.reading[kind]) })
	}
	gauge("snapshots", "Roots that this hub's readers use, or used a short while ago.", nil, &l.mu, func() float64 {
		n := 0
		for _, v := range l.views {
			n += len(v.snapshots)
		}
		return float64(n)
	})
	gauge("kept_bytes", "Bytes in memory, about, of the states that this hub keeps for readers who come back.", nil, &l.mu, func() float64 { return float64(l.bytes) })
}
