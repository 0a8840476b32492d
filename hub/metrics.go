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
	"github.com/rshub/rshub/internal/problem"
)

// metrics are the metrics of a Hub and of its change memory.
type metrics struct {
	changes                             prometheus.Counter
	accepted, replayed, refused, failed prometheus.Counter // publishes by outcome
	duration                            prometheus.Histogram

	sets, changesStored, oldest prometheus.Gauge
	newest                      atomic.Int64 // datetime of the newest change, in microseconds since the epoch
	clockDoubtful               atomic.Bool  // whether retention by age is paused
	removed                     prometheus.Counter

	hits, shared, misses prometheus.Counter
	repaired             prometheus.Counter
}

// newMetrics returns metrics registered with r, unless r is nil.
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
		Help: "Published batches: accepted, replayed (a retry of an accepted batch), refused (the publisher's fault) or failed (the hub's fault).",
	}, []string{"outcome"})
	reads := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_window_reads_total",
		Help: "Reads of followers, answered by the window of recent batches (hit), by another follower's read (shared) or by the change memory (miss).",
	}, []string{"outcome"})
	m := &metrics{
		changes:  counter("published_changes_total", "Accepted changes, which are durable; without replays."),
		accepted: publishes.WithLabelValues("accepted"), replayed: publishes.WithLabelValues("replayed"),
		refused: publishes.WithLabelValues("refused"), failed: publishes.WithLabelValues("failed"),
		duration: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "rshub_publish_duration_seconds", Help: "Time from reading an accepted batch to its durable acceptance, in seconds.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		sets:          gauge("log_sets", "Sets in the memory; updated every minute."),
		changesStored: gauge("log_changes", "Changes in the memory, of all sets; updated every minute."),
		oldest:        gauge("log_oldest_timestamp_seconds", "Time of the oldest change of any set, in seconds since the epoch; updated every minute. 0 without changes."),
		removed:       counter("retention_removed_changes_total", "Changes removed by this hub because of their age or number."),
		hits:          reads.WithLabelValues("hit"),
		shared:        reads.WithLabelValues("shared"),
		misses:        reads.WithLabelValues("miss"),
		repaired:      counter("announcements_repaired_total", "Checks of the memory that found unannounced changes from other hubs, or changes announced without their content."),
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rshub_log_newest_timestamp_seconds",
		Help: "Time of the newest change accepted by any hub, in seconds since the epoch; changes from other hubs are counted every minute. 0 without changes.",
	}, func() float64 { return seconds(m.newest.Load()) })
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rshub_clock_doubtful",
		Help: "1 while retention by age is paused, because the clock jumped ahead by more than an hour or no hub ran for that long; otherwise 0.",
	}, func() float64 {
		if m.clockDoubtful.Load() {
			return 1
		}
		return 0
	})
	return m
}

// seconds converts microseconds to seconds.
func seconds(micros int64) float64 { return float64(micros) / 1e6 }

// countPublish counts a publish by its outcome.
func (m *metrics) countPublish(a changelog.Appended, err error, duration time.Duration) {
	switch {
	case err == nil && a.Replayed:
		m.replayed.Inc()
	case err == nil:
		m.accepted.Inc()
		m.changes.Add(float64(a.Count))
		m.duration.Observe(duration.Seconds())
	case errors.Is(err, context.Canceled), problem.From(err).Status < http.StatusInternalServerError: // the publisher disconnected or made a mistake
		m.refused.Inc()
	default:
		m.failed.Inc()
	}
}

// noteNewest notes the datetime of an entry that this hub appended.
func (m *metrics) noteNewest(micros int64) {
	for {
		old := m.newest.Load()
		if micros <= old || m.newest.CompareAndSwap(old, micros) {
			return
		}
	}
}

// setStates sets the gauges of the memory. previousNewest is the value of newest from before
// the states were read: if newest has changed since, an entry was appended that is newer than
// the states.
func (m *metrics) setStates(states []feed.State, previousNewest int64) {
	var changes uint64
	var oldest, newest int64
	for i := range states {
		s := &states[i]
		if s.Head.Position == s.Floor.Position {
			continue
		}
		changes += s.Head.Position - s.Floor.Position
		newest = max(newest, s.Head.Micros)
		if oldest == 0 || s.Floor.Micros < oldest {
			oldest = s.Floor.Micros
		}
	}
	m.sets.Set(float64(len(states)))
	m.changesStored.Set(float64(changes))
	m.oldest.Set(seconds(oldest))
	m.newest.CompareAndSwap(previousNewest, newest)
}

// busMetrics are the metrics of a Bus.
type busMetrics struct {
	sent, received, lost, refused prometheus.Counter
}

// newBusMetrics returns metrics registered with r, unless r is nil. connected reports whether
// the Bus is connected.
func newBusMetrics(r prometheus.Registerer, connected func() bool) *busMetrics {
	auto := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "rshub_announcements_" + name, Help: help})
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rshub_nats_connected", Help: "1 if connected to NATS, otherwise 0; only with RSHUB_NATS_URL.",
	}, func() float64 {
		if connected() {
			return 1
		}
		return 0
	})
	return &busMetrics{
		sent:     counter("sent_total", "Announcements sent to NATS; only with RSHUB_NATS_URL."),
		received: counter("received_total", "Announcements received, including refused ones; only with RSHUB_NATS_URL."),
		lost:     counter("lost_total", "Announcements that could not be sent, plus drops by NATS because this hub was too slow; only with RSHUB_NATS_URL."),
		refused:  counter("refused_total", "Received announcements that were refused: made without the secret of this memory, by another version of rshub, or too old; only with RSHUB_NATS_URL."),
	}
}
