package indexnow

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/feed"
)

// metrics count what a Publisher has done. How far it is now is looked at when somebody asks: see
// standing.
type metrics struct {
	urls, others, refused, gaps prometheus.Counter
	requests                    *prometheus.CounterVec // by outcome
}

// newMetrics returns metrics that are registered, unless r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "rshub_indexnow_" + name, Help: help})
	}
	m := &metrics{
		urls:    counter("urls_total", "URLs that an engine of IndexNow took."),
		others:  counter("other_changes_total", "Changes that no engine of IndexNow was told of, because they have no URL of HTTP, or one of another host than that of the key."),
		refused: counter("refused_urls_total", "URLs that were left out, because an engine of IndexNow found them malformed."),
		gaps:    counter("gaps_total", "Times that no engine of IndexNow was told of changes, because the memory had removed them."),
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rshub_indexnow_requests_total", Help: "Requests to the endpoint of IndexNow, by what came of them.",
		}, []string{"outcome"}),
	}
	for _, outcome := range []string{"success", "failure"} {
		m.requests.WithLabelValues(outcome)
	}
	return m
}

// kind tells sets of which engines are told from the other followers, which other packages count
// under the same names.
var kind = prometheus.Labels{"kind": "indexnow"}

// A standing is how far engines are told of the sets that this hub tells them of.
type standing struct {
	follower Follower

	failing, followers, lagChanges, lagSeconds *prometheus.Desc

	mu   sync.Mutex
	sets map[string]*stand
}

// A stand is that of one set.
type stand struct {
	at      *feed.Cursor // nil: it is not known yet
	failing bool         // the last attempt failed
}

func newStanding(f Follower) *standing {
	shared := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("rshub_"+name, help, nil, kind)
	}
	return &standing{
		follower:   f,
		failing:    prometheus.NewDesc("rshub_indexnow_failing", "Sets of which this hub tells engines of IndexNow, and whose last attempt failed.", nil, nil),
		followers:  shared("followers", "Followers of this hub."),
		lagChanges: shared("follower_lag_changes", "Changes that the slowest follower of this hub has not got yet."),
		lagSeconds: shared("follower_lag_seconds", "Age of the oldest change that a follower of this hub has not got yet."),
		sets:       map[string]*stand{},
	}
}

// begins and ends say that this hub tells engines of a set, and that it does not any more.
func (s *standing) begins(set string) { s.change(set, func(*stand) {}) }

func (s *standing) ends(set string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sets, set)
}

// reached says how far the set is told.
func (s *standing) reached(set string, at feed.Cursor) {
	s.change(set, func(is *stand) { is.at = &at })
}

// fails says whether the last attempt failed.
func (s *standing) fails(set string, failing bool) {
	s.change(set, func(is *stand) { is.failing = failing })
}

func (s *standing) change(set string, do func(*stand)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sets[set] == nil {
		s.sets[set] = &stand{}
	}
	do(s.sets[set])
}

// Describe and Collect make it a prometheus.Collector.
func (s *standing) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.failing, s.followers, s.lagChanges, s.lagSeconds} {
		to <- d
	}
}

// Collect looks at all sets.
func (s *standing) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	followers, failing, reached := len(s.sets), 0, map[string]feed.Cursor{}
	for set, is := range s.sets {
		if is.failing {
			failing++
		}
		if is.at != nil {
			reached[set] = *is.at
		}
	}
	s.mu.Unlock()
	most, lag := uint64(0), time.Duration(0)
	for set, at := range reached {
		if changes, oldest := s.follower.Behind(set, at); changes > 0 {
			most = max(most, changes)
			lag = max(lag, time.Since(time.UnixMicro(oldest)))
		}
	}
	for d, v := range map[*prometheus.Desc]float64{
		s.failing: float64(failing), s.followers: float64(followers), s.lagChanges: float64(most), s.lagSeconds: lag.Seconds(),
	} {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
}
