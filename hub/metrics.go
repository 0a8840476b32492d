package hub

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/problem"
)

// metrics count what a Hub does, and show what is in its memory.
type metrics struct {
	changes                             prometheus.Counter
	accepted, replayed, refused, failed prometheus.Counter // publishes
	duration                            prometheus.Histogram

	sets, kept, oldest prometheus.Gauge
	newest             atomic.Int64 // datetime in microseconds
	doubt              atomic.Bool  // whether the clock is in doubt
	removed            prometheus.Counter

	hits, misses prometheus.Counter
	repaired     prometheus.Counter
}

// newMetrics returns metrics that are registered with r, unless r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "rshub_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return auto.NewGauge(prometheus.GaugeOpts{Name: "rshub_" + name, Help: help})
	}
	publishes := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_publishes_total",
		Help: "Batches that were sent to be published: accepted, replayed (the memory had them already), refused (the publisher's fault) or failed (the hub's fault).",
	}, []string{"outcome"})
	reads := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_window_reads_total",
		Help: "Reads of followers that the window of recent batches answered (hit), or the change memory (miss).",
	}, []string{"outcome"})
	m := &metrics{
		changes:  counter("published_changes_total", "Changes that were accepted: the memory holds them. Replays do not count."),
		accepted: publishes.WithLabelValues("accepted"), replayed: publishes.WithLabelValues("replayed"),
		refused: publishes.WithLabelValues("refused"), failed: publishes.WithLabelValues("failed"),
		duration: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "rshub_publish_duration_seconds", Help: "Time from when a batch was read until the memory held it durably. Only accepted batches count.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		sets:     gauge("log_sets", "Sets in the memory, as of the last look, each minute."),
		kept:     gauge("log_changes", "Changes that the memory keeps, of all sets, as of the last look, each minute."),
		oldest:   gauge("log_oldest_timestamp_seconds", "When the oldest change that the memory keeps was accepted, of all sets, as of the last look, each minute; 0 while there are no changes."),
		removed:  counter("retention_removed_changes_total", "Changes that this hub removed because of their age or number."),
		hits:     reads.WithLabelValues("hit"),
		misses:   reads.WithLabelValues("miss"),
		repaired: counter("announcements_repaired_total", "Times that this hub found changes of other hubs by reading the memory, because no announcement brought them."),
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rshub_log_newest_timestamp_seconds",
		Help: "When the newest change was accepted: by this hub, or as of the last look, each minute, by any; 0 while there are no changes.",
	}, func() float64 { return seconds(m.newest.Load()) })
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rshub_clock_doubtful",
		Help: "1 while retention removes no changes by age, because the clock went ahead by more than an hour: it may be wrong, or no hub ran for so long. Else 0.",
	}, func() float64 {
		if m.doubt.Load() {
			return 1
		}
		return 0
	})
	return m
}

// seconds converts microseconds to the seconds that Prometheus uses.
func seconds(micros int64) float64 { return float64(micros) / 1e6 }

// published counts a publish by how it ended.
func (m *metrics) published(a changelog.Appended, err error, took time.Duration) {
	switch {
	case err == nil && a.Replayed:
		m.replayed.Inc()
	case err == nil:
		m.accepted.Inc()
		m.changes.Add(float64(a.Count))
		m.duration.Observe(took.Seconds())
	case errors.Is(err, context.Canceled), problem.From(err).Status < http.StatusInternalServerError: // the publisher went away, or made a mistake
		m.refused.Inc()
	default:
		m.failed.Inc()
	}
}

// appended notes the datetime of an entry that this hub appended.
func (m *metrics) appended(micros int64) {
	for {
		old := m.newest.Load()
		if micros <= old || m.newest.CompareAndSwap(old, micros) {
			return
		}
	}
}

// looked notes what is in the memory. before is what newest was when the states
// were asked for: what was appended since is newer than they are.
func (m *metrics) looked(states []feed.State, before int64) {
	var kept uint64
	var oldest, newest int64
	sets := 0
	for i := range states {
		s := &states[i]
		if feed.IsFramework(s.Set) {
			continue // it is no set, and what it has are no changes
		}
		sets++
		if s.Head.Position == s.Floor.Position {
			continue
		}
		kept += s.Head.Position - s.Floor.Position
		newest = max(newest, s.Head.Micros)
		if oldest == 0 || s.Floor.Micros < oldest {
			oldest = s.Floor.Micros
		}
	}
	m.sets.Set(float64(sets))
	m.kept.Set(float64(kept))
	m.oldest.Set(seconds(oldest))
	m.newest.CompareAndSwap(before, newest)
}

// busMetrics count what a Bus does.
type busMetrics struct {
	sent, received, lost, refused prometheus.Counter
}

// newBusMetrics returns metrics that are registered with r, unless r is nil.
// connected says whether there is a connection.
func newBusMetrics(r prometheus.Registerer, connected func() bool) *busMetrics {
	auto := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "rshub_announcements_" + name, Help: help})
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rshub_nats_connected", Help: "Whether there is a connection to NATS, 1 or 0; only where RSHUB_NATS_URL is set.",
	}, func() float64 {
		if connected() {
			return 1
		}
		return 0
	})
	return &busMetrics{
		sent:     counter("sent_total", "Announcements that were given to NATS; only where RSHUB_NATS_URL is set."),
		received: counter("received_total", "Announcements that came, the refused ones too; only where RSHUB_NATS_URL is set."),
		lost:     counter("lost_total", "Announcements that could not be sent, and times that NATS dropped announcements because this hub read too slowly; only where RSHUB_NATS_URL is set."),
		refused:  counter("refused_total", "Announcements that came and were refused: they were made without the secret of this memory, by another version of rshub, or too long ago; only where RSHUB_NATS_URL is set."),
	}
}
