package subscribe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/feed"
)

// census calls add for every follower, with how far it is behind: the number of changes
// that it has not received, and the age of the oldest of them.
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
		c.mu.Lock()
		c.passLocked()
		cursor := c.cursor
		c.mu.Unlock()
		look(c.key.kind(), c.key.set, cursor)
	}
	for _, p := range others {
		look(byLongPoll, p.set, p.at())
	}
}

// A Following says who follows a set at this hub.
type Following struct {
	Followers int
	Changes   uint64        // that the slowest of them has not received
	Lag       time.Duration // age of the oldest change that one of them has not received
}

// Following returns a Following for each set that has followers. It looks at every
// follower, and at nothing else.
func (s *Server) Following() map[string]Following {
	all := map[string]Following{}
	s.census(func(_ kind, set string, changes uint64, lag time.Duration) {
		f := all[set]
		all[set] = Following{f.Followers + 1, max(f.Changes, changes), max(f.Lag, lag)}
	})
	return all
}

// gauges are a prometheus.Collector that takes a census at each reading.
type gauges struct {
	server *Server

	followers, lagChanges, lagSeconds [kinds]*prometheus.Desc
}

func newGauges(s *Server) *gauges {
	g := &gauges{server: s}
	for k, name := range kindNames {
		desc := func(what, help string) *prometheus.Desc {
			return prometheus.NewDesc("rshub_"+what, help, nil, prometheus.Labels{"kind": name})
		}
		g.followers[k] = desc("followers", "Followers of this hub.")
		g.lagChanges[k] = desc("follower_lag_changes", "Changes that the slowest follower of this hub has not got yet.")
		g.lagSeconds[k] = desc("follower_lag_seconds", "Age of the oldest change that a follower of this hub has not got yet.")
	}
	return g
}

func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for k := range kinds {
		to <- g.followers[k]
		to <- g.lagChanges[k]
		to <- g.lagSeconds[k]
	}
}

func (g *gauges) Collect(to chan<- prometheus.Metric) {
	var all [kinds]Following
	g.server.census(func(k kind, _ string, changes uint64, lag time.Duration) {
		p := &all[k]
		*p = Following{p.Followers + 1, max(p.Changes, changes), max(p.Lag, lag)}
	})
	for k, p := range all {
		gauge := func(d *prometheus.Desc, v float64) { to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
		gauge(g.followers[k], float64(p.Followers))
		gauge(g.lagChanges[k], float64(p.Changes))
		gauge(g.lagSeconds[k], p.Lag.Seconds())
	}
}
