package subscribe

import (
	"errors"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/changelog"
)

// A kind is a way to follow.
type kind uint8

const (
	byWebSocket kind = iota
	byEventStream
	byLongPoll // also a page that nobody waits for, but that is no follower
	kinds
)

var kindNames = [kinds]string{"websocket", "eventstream", "longpoll"}

// A reason is why a connection was closed.
type reason uint8

const (
	byClient reason = iota // it left, or broke off, or did what it must not; as long as nothing else is known
	tooSlow
	silent
	gone
	hubStops
	hubFailed
	reasons
)

var reasonNames = [reasons]string{"client", "slow", "silent", "gone", "stopping", "error"}

// closeReason is the reason that a WebSocket is closed with a code for.
func closeReason(code int) reason {
	switch code {
	case closeTooSlow:
		return tooSlow
	case closeGone:
		return gone
	case websocket.CloseGoingAway:
		return hubStops
	case websocket.CloseInternalServerErr:
		return hubFailed
	}
	return byClient
}

// metrics are what a Server has done.
type metrics struct {
	delivered [kinds]delivered
	closed    [kinds][reasons]prometheus.Counter // of long polls none: they end by themselves
}

// delivered is what followers of a kind got.
type delivered struct {
	messages, changes, bytes prometheus.Counter
}

// A tally is what was delivered since it was counted last.
type tally struct {
	messages, changes, bytes int
}

// add adds a message of bytes. One without changes, which only says where the
// follower is, does not count.
func (t *tally) add(changes, bytes int) {
	if changes > 0 {
		t.plus(tally{1, changes, bytes})
	}
}

func (t *tally) plus(u tally) {
	t.messages += u.messages
	t.changes += u.changes
	t.bytes += u.bytes
}

// count counts what is in a tally, and empties it. A group counts once for all
// its connections: a counter for each delivery would cost more than the rest of
// what is done for it here.
func (d *delivered) count(t *tally) {
	if t.messages > 0 {
		d.messages.Add(float64(t.messages))
		d.changes.Add(float64(t.changes))
		d.bytes.Add(float64(t.bytes))
		*t = tally{}
	}
}

// newMetrics returns metrics that are registered, unless r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	m := &metrics{}
	closed := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_followers_closed_total",
		Help: "Connections of followers that ended: the client left or broke off (client), took too little (slow), gave no sign of life (silent), " +
			"was behind what the memory keeps (gone); the hub stopped (stopping) or failed (error).",
	}, []string{"kind", "reason"})
	for k, name := range kindNames {
		counter := func(name, help string) prometheus.Counter {
			return auto.NewCounter(prometheus.CounterOpts{Name: "rshub_" + name, Help: help, ConstLabels: prometheus.Labels{"kind": kindNames[k]}})
		}
		m.delivered[k] = delivered{
			messages: counter("deliveries_total", "Messages, events, pages and requests with changes that were delivered to followers."),
			bytes:    counter("delivered_bytes_total", "Bytes of what was delivered to followers."),
			changes:  counter("delivered_changes_total", "Changes that were delivered to followers."),
		}
		if kind(k) == byLongPoll {
			continue
		}
		for i, why := range reasonNames {
			m.closed[k][i] = closed.WithLabelValues(name, why)
		}
	}
	return m
}

// A place is where a follower that is no WebSocket is in the log of a set.
type place struct {
	kind kind
	set  string

	mu     sync.Mutex
	cursor changelog.Cursor // behind what it was sent
}

func (p *place) moveTo(cursor changelog.Cursor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cursor = cursor
}

func (p *place) at() changelog.Cursor {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cursor
}

// enter takes in a follower, until leave is called.
func (s *Server) enter(k kind, set string, cursor changelog.Cursor) (p *place, leave func()) {
	p = &place{kind: k, set: set, cursor: cursor}
	s.mu.Lock()
	s.places[p] = struct{}{}
	s.mu.Unlock()
	return p, func() {
		s.mu.Lock()
		delete(s.places, p)
		s.mu.Unlock()
	}
}

// streamClosed counts the end of an event stream.
func (s *Server) streamClosed(r *http.Request, err error) {
	why := byClient
	switch {
	case errors.Is(err, changelog.ErrGone):
		why = gone
	case errors.Is(err, errFollow):
		why = hubFailed
	case errors.Is(err, os.ErrDeadlineExceeded):
		why = tooSlow
	case r.Context().Err() == nil && s.ctx.Err() != nil: // the client's leaving, and a failed write, end the former
		why = hubStops
	}
	s.metrics.closed[byEventStream][why].Inc()
}

// A present is what followers of a kind are like now.
type present struct {
	followers  int
	lagChanges uint64        // of the one that has most before it
	lag        time.Duration // of the one that is furthest behind
}

// present looks at every follower.
func (s *Server) present() (all [kinds]present) {
	s.mu.Lock()
	places := make([]*place, 0, len(s.places))
	for p := range s.places {
		places = append(places, p)
	}
	s.mu.Unlock()
	now := s.opts.Now()
	add := func(k kind, set string, cursor changelog.Cursor) {
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
	for _, p := range places {
		add(p.kind, p.set, p.at())
	}
	return all
}

// gauges tell what followers are like, as a prometheus.Collector.
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
	for k, p := range g.server.present() {
		gauge := func(d *prometheus.Desc, v float64) { to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
		gauge(g.followers[k], float64(p.followers))
		gauge(g.lagChanges[k], float64(p.lagChanges))
		gauge(g.lagSeconds[k], p.lag.Seconds())
	}
}
