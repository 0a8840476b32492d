package subscribe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/feed"
)

// A census says how many followers of one kind there are now, and how far they are
// behind.
type census struct {
	followers  int
	lagChanges uint64        // number of changes that the slowest of them has not got
	lag        time.Duration // age of the oldest change that one of them has not got
}

// census looks at every follower, and returns a census for each kind.
func (s *Server) census() (all [kinds]census) {
	s.mu.Lock()
	others := make([]*progress, 0, len(s.progress))
	for p := range s.progress {
		others = append(others, p)
	}
	s.mu.Unlock()
	now := s.opts.Now()
	add := func(k kind, set string, cursor feed.Cursor) {
		p := &all[k]
		p.followers++
		if changes, oldest := s.opts.Behind(set, cursor); changes > 0 {
			p.lagChanges = max(p.lagChanges, changes)
			p.lag = max(p.lag, now.Sub(time.UnixMicro(oldest)))
		}
	}
	for _, c := range s.conns() {
		c.mu.Lock()
		cursor := c.cursor
		c.mu.Unlock()
		add(byWebSocket, c.key.set, cursor)
	}
	for _, p := range others {
		add(p.kind, p.set, p.at())
	}
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
	for k, p := range g.server.census() {
		gauge := func(d *prometheus.Desc, v float64) { to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
		gauge(g.followers[k], float64(p.followers))
		gauge(g.lagChanges[k], float64(p.lagChanges))
		gauge(g.lagSeconds[k], p.lag.Seconds())
	}
}
