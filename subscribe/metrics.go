package subscribe

import (
	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// A kind is a transport.
type kind uint8

const (
	byWebSocket kind = iota
	byEventStream
	byLongPoll // pages; a poll without a wait counts as a delivery but not as a follower
	kinds
)

var kindNames = [kinds]string{"websocket", "eventstream", "longpoll"}

// A reason is the reason why a connection was closed, as in the metrics.
type reason uint8

const (
	byClient reason = iota // the client left, broke off, or violated the protocol, or the reason is unknown
	tooSlow
	silent
	gone
	hubStops
	hubFailed
	noRight
	reasons
)

var reasonNames = [reasons]string{"client", "slow", "silent", "gone", "stopping", "error", "right"}

// closeReason returns the reason for a WebSocket's close code.
func closeReason(code int) reason {
	switch code {
	case closeTooSlow:
		return tooSlow
	case closeGone:
		return gone
	case closeNoRight:
		return noRight
	case websocket.CloseGoingAway:
		return hubStops
	case websocket.CloseInternalServerErr, websocket.CloseTryAgainLater:
		return hubFailed
	}
	return byClient
}

// metrics are the counters of a Server.
type metrics struct {
	delivered [kinds]deliveryCounters
	baselines [kinds]struct{ resources, bytes prometheus.Counter } // resources and bytes of baselines
	closed    [kinds][reasons]prometheus.Counter                   // nil for long polls, which end by themselves
}

// deliveryCounters count what followers of one kind received.
type deliveryCounters struct {
	messages, changes, bytes prometheus.Counter
}

// A tally counts deliveries since the last call of deliveryCounters.count.
type tally struct {
	messages, changes, bytes int
}

// add counts one message with its changes and bytes. A message without changes only has a
// cursor, and does not count.
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

// count adds a tally to the counters, and resets it. A group counts once for all its
// connections, because incrementing the counters for each connection would cost more than the
// rest of a delivery in this package.
func (d *deliveryCounters) count(t *tally) {
	if t.messages > 0 {
		d.messages.Add(float64(t.messages))
		d.changes.Add(float64(t.changes))
		d.bytes.Add(float64(t.bytes))
		*t = tally{}
	}
}

// count counts a tally of followers of a set, and resets it.
func (s *Server) count(k kind, set string, t *tally) {
	if t.changes > 0 && s.opts.Deliveries != nil {
		s.opts.Deliveries.Delivered(set, t.changes)
	}
	s.metrics.delivered[k].count(t)
}

// countBaseline counts a part or a page of a baseline.
func (s *Server) countBaseline(k kind, resources, bytes int) {
	s.metrics.baselines[k].resources.Add(float64(resources))
	s.metrics.baselines[k].bytes.Add(float64(bytes))
}

// newMetrics returns metrics that are registered with r, unless r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	auto := promauto.With(r)
	m := &metrics{}
	ended := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_followers_closed_total",
		Help: "Ended connections of followers: the client left or broke off (client), read too slowly (slow), did not respond (silent), " +
			"asked for changes that are gone (gone), lost the right to follow (right); the hub stopped (stopping) or failed (error).",
	}, []string{"kind", "reason"})
	for k, name := range kindNames {
		counter := func(metric, help string) prometheus.Counter {
			return auto.NewCounter(prometheus.CounterOpts{Name: "rshub_" + metric, Help: help, ConstLabels: prometheus.Labels{"kind": name}})
		}
		m.delivered[k] = deliveryCounters{
			messages: counter("deliveries_total", "Messages, events, pages and requests with changes delivered to followers."),
			bytes:    counter("delivered_bytes_total", "Bytes delivered to followers."),
			changes:  counter("delivered_changes_total", "Changes delivered to followers."),
		}
		m.baselines[k].resources = counter("baseline_resources_total", "Resources sent in baselines.")
		m.baselines[k].bytes = counter("baseline_bytes_total", "Bytes of baselines sent to clients.")
		if kind(k) == byLongPoll {
			continue
		}
		for i, why := range reasonNames {
			m.closed[k][i] = ended.WithLabelValues(name, why)
		}
	}
	return m
}
