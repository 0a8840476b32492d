package live

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics count what a Live has done. gauges reads the present values when they are
// collected.
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

// committed counts a root that was made.
func (m *metrics) committed(took time.Duration) {
	m.commits.Inc()
	m.duration.Observe(took.Seconds())
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

// gauges is the prometheus.Collector of a Live's present values.
type gauges struct {
	live *Live

	sets, lagChanges, lagSeconds, resources, pages, bytes, roots, waiting *prometheus.Desc
	readers, snapshots, kept                                              *prometheus.Desc
}

func newGauges(l *Live) *gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("rshub_inventory_"+name, help, labels, nil)
	}
	return &gauges{
		live:       l,
		sets:       desc("sets", "Sets whose inventory this hub makes."),
		lagChanges: desc("lag_changes", "Changes that are not in the newest root of a set yet, for the set with the most of them, of the sets made by this hub."),
		lagSeconds: desc("lag_seconds", "Age of the oldest change that is in no root yet, of all sets made by this hub. Ten minutes are normal in a large set."),
		resources:  desc("resources", "Resources in the newest roots of the sets made by this hub."),
		pages:      desc("pages", "Pages of these roots."),
		bytes:      desc("bytes", "Bytes of these pages, without what the store adds."),
		roots:      desc("roots", "Roots that exist, of the sets made by this hub, as it last saw them."),
		waiting:    desc("waiting_bytes", "Bytes in memory of the changes that wait for a commit."),
		readers:    desc("readers", "Baselines and states that are being read from this hub now.", "reader"),
		snapshots:  desc("snapshots", "Roots that this hub's readers use, or used a short while ago."),
		kept:       desc("kept_bytes", "Bytes in memory, about, of the states that this hub keeps for readers who come back."),
	}
}

func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		g.sets, g.lagChanges, g.lagSeconds, g.resources, g.pages, g.bytes, g.roots, g.waiting, g.readers, g.snapshots, g.kept,
	} {
		to <- d
	}
}

func (g *gauges) Collect(to chan<- prometheus.Metric) {
	l := g.live
	l.maker.mu.Lock()
	p := l.maker.present
	l.maker.mu.Unlock()
	lag := 0.0
	if p.since > 0 {
		lag = max(0, time.Since(time.UnixMicro(p.since)).Seconds())
	}
	l.mu.Lock()
	reading, kept, snapshots := l.reading, l.bytes, 0
	for _, v := range l.views {
		snapshots += len(v.snapshots)
	}
	l.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(g.sets, float64(p.sets))
	gauge(g.lagChanges, float64(p.lagChanges))
	gauge(g.lagSeconds, lag)
	gauge(g.resources, float64(p.resources))
	gauge(g.pages, float64(p.pages))
	gauge(g.bytes, float64(p.bytes))
	gauge(g.roots, float64(p.roots))
	gauge(g.waiting, float64(p.waiting))
	gauge(g.readers, float64(reading[states]), "state")
	gauge(g.readers, float64(reading[baselines]), "baseline")
	gauge(g.snapshots, float64(snapshots))
	gauge(g.kept, float64(kept))
}
