package subscribe

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/feed"
)

// A progress is the position of a long poll. For other followers, the conn has the position.
type progress struct {
	set    string
	cursor atomic.Pointer[feed.Cursor] // cursor of the last entry examined
}

func (p *progress) moveTo(cursor feed.Cursor) { p.cursor.Store(&cursor) }

// addPoll registers a long poll at a cursor. The caller must call leave when it ends.
func (s *Server) addPoll(set string, cursor feed.Cursor) (p *progress, leave func()) {
	p = &progress{set: set}
	p.moveTo(cursor)
	s.mu.Lock()
	s.progress[p] = struct{}{}
	s.mu.Unlock()
	return p, func() {
		s.mu.Lock()
		delete(s.progress, p)
		s.mu.Unlock()
	}
}

// census calls add for every follower with the number of changes that it has not received, and
// the age of the oldest of them.
func (s *Server) census(add func(k kind, set string, changes uint64, lag time.Duration)) {
	s.mu.Lock()
	others := make([]*progress, 0, len(s.progress))
	for p := range s.progress {
		others = append(others, p)
	}
	s.mu.Unlock()
	now := s.opts.Now()
	look := func(k kind, set string, cursor feed.Cursor) {
		lag := time.Duration(0)
		changes, oldest := s.follower.Behind(set, cursor)
		if changes > 0 {
			lag = max(now.Sub(time.UnixMicro(oldest)), 0)
		}
		add(k, set, changes, lag)
	}
	for _, c := range s.conns() {
		c.census(look)
	}
	for _, p := range others {
		look(byLongPoll, p.set, *p.cursor.Load())
	}
}

// A Following summarizes the followers of a set at this hub.
type Following struct {
	Followers int           // number of followers
	Changes   uint64        // changes that the slowest follower has not received
	Lag       time.Duration // age of the oldest change that a follower has not received
}

// Following returns a summary of each set with followers. Its cost depends only on the number
// of followers.
func (s *Server) Following() map[string]Following {
	all := map[string]Following{}
	s.census(func(_ kind, set string, changes uint64, lag time.Duration) {
		f := all[set]
		all[set] = Following{f.Followers + 1, max(f.Changes, changes), max(f.Lag, lag)}
	})
	return all
}

// gauges is a prometheus.Collector that takes a census on each scrape.
type gauges struct{ server *Server }

func (g gauges) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, to) }

func (g gauges) Collect(to chan<- prometheus.Metric) {
	var all [kinds]Following
	g.server.census(func(k kind, _ string, changes uint64, lag time.Duration) {
		p := &all[k]
		*p = Following{p.Followers + 1, max(p.Changes, changes), max(p.Lag, lag)}
	})
	for k, p := range all {
		gauge := func(name, help string, v float64) {
			of := prometheus.NewDesc("rshub_"+name, help, nil, prometheus.Labels{"kind": kindNames[k]})
			to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, v)
		}
		gauge("followers", "Followers of this hub.", float64(p.Followers))
		gauge("follower_lag_changes", "Changes that the slowest follower of this hub has not received yet.", float64(p.Changes))
		gauge("follower_lag_seconds", "Age of the oldest change that a follower of this hub has not received yet, in seconds.", p.Lag.Seconds())
	}
}
