package hub

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rshub/rshub/internal/backoff"
)

// A Bus of a hub that follows many sets has a single subscription to the announcements of all
// sets, because each subscription costs a goroutine, and is renewed when the connection breaks.
// The two numbers differ so that a Bus does not switch all the time.
const (
	wildcardSets = 1_000 // number of followed sets from which on there is a single subscription
	singleSets   = 500   // number of followed sets below which there is again one for each set
)

// wantsWildcard reports whether n sets should be followed by one subscription to all sets.
// active reports whether there is one already.
func wantsWildcard(n int, active bool) bool {
	return n >= wildcardSets || active && n >= singleSets
}

// subscriptions are the NATS subscriptions of a Bus to the announcements of followed sets. Its
// methods are safe for concurrent use.
type subscriptions struct {
	prefix string // start of every subject, before the name of the set
	logger *slog.Logger
	count  func() // called for each message about a followed set
	wakeup backoff.Wakeup

	mu        sync.Mutex
	receivers map[string]func(message []byte) // receiver of each followed set

	// Only run uses these.
	single   map[string]*nats.Subscription // subscriptions to one set each; nil if one failed
	wildcard *nats.Subscription            // subscription to all sets, or nil
	replaced []*nats.Subscription          // subscriptions that end when overlap fires
	overlap  <-chan time.Time              // nil if replaced is empty
}

func newSubscriptions(prefix string, logger *slog.Logger, count func()) *subscriptions {
	return &subscriptions{
		prefix: prefix + ".changes.", logger: logger, count: count, wakeup: backoff.NewWakeup(),
		receivers: map[string]func([]byte){}, single: map[string]*nats.Subscription{},
	}
}

// subject returns the NATS subject of a set's announcements. A dot separates the tokens of a
// subject, so the dots in a set's name are replaced by "~", which names do not contain.
func (s *subscriptions) subject(set string) string {
	return s.prefix + strings.ReplaceAll(set, ".", "~")
}

// set returns the set of a subject.
func (s *subscriptions) set(subject string) string {
	return strings.ReplaceAll(strings.TrimPrefix(subject, s.prefix), "~", ".")
}

// add implements Bus.subscribe.
func (s *subscriptions) add(set string, receive func(message []byte)) {
	s.mu.Lock()
	s.receivers[set] = receive
	s.mu.Unlock()
	s.wakeup.Wake()
}

// remove removes the receiver of a set.
func (s *subscriptions) remove(set string) {
	s.mu.Lock()
	delete(s.receivers, set)
	s.mu.Unlock()
	s.wakeup.Wake()
}

// deliver passes a message to the receiver of its set, if the set has one.
func (s *subscriptions) deliver(m *nats.Msg) {
	s.mu.Lock()
	receive := s.receivers[s.set(m.Subject)]
	s.mu.Unlock()
	if receive != nil {
		s.count()
		receive(m.Data)
	}
}

// run subscribes to the followed sets until done is closed. Only run makes these calls of
// nats.go, because they may block while nats.go connects.
func (s *subscriptions) run(conn *nats.Conn, done <-chan struct{}) {
	for {
		select {
		case <-s.wakeup:
			s.update(conn)
		case <-s.overlap:
			s.endReplaced()
			s.update(conn)
		case <-done:
			return
		}
	}
}

// update makes the subscriptions for the sets that are followed now. It does not switch between
// the two kinds again while the subscriptions of both exist.
func (s *subscriptions) update(conn *nats.Conn) {
	s.mu.Lock()
	wildcard := s.wildcard != nil
	if s.overlap == nil {
		wildcard = wantsWildcard(len(s.receivers), wildcard)
	}
	var followed map[string]func([]byte)
	if !wildcard {
		followed = maps.Clone(s.receivers)
	}
	s.mu.Unlock()
	switch {
	case !wildcard:
		s.updateSingle(conn, followed)
		if s.wildcard != nil {
			s.replace(conn, s.wildcard)
			s.wildcard = nil
		}
	case s.wildcard == nil:
		if s.wildcard = s.subscribe(conn, "*"); s.wildcard != nil {
			s.replace(conn, slices.Collect(maps.Values(s.single))...)
			clear(s.single)
		}
	}
}

// updateSingle makes the subscriptions to one set each.
func (s *subscriptions) updateSingle(conn *nats.Conn, followed map[string]func([]byte)) {
	for set := range followed {
		if _, ok := s.single[set]; !ok {
			s.single[set] = s.subscribe(conn, set)
		}
	}
	for set, sub := range s.single {
		if followed[set] == nil {
			_ = sub.Unsubscribe() // fails only if sub is nil or the connection is closed
			delete(s.single, set)
		}
	}
}

// overlapTime is how long the old subscriptions remain after the server has made those that
// replace them. A server may still deliver an announcement to the old ones only, because it
// determines the receivers of a message some time before it sends the message to them.
const overlapTime = time.Second

// flushTimeout is the timeout for the server to confirm that it has made new subscriptions.
const flushTimeout = 5 * time.Second

// replace ends subscriptions some time after the server has made new ones. In the meantime,
// announcements are delivered by an old subscription, a new one, or both.
func (s *subscriptions) replace(conn *nats.Conn, old ...*nats.Subscription) {
	_ = conn.FlushTimeout(flushTimeout) // without a connection there is nothing to lose
	s.replaced, s.overlap = old, time.After(overlapTime)
}

// endReplaced ends the subscriptions that others have replaced.
func (s *subscriptions) endReplaced() {
	for _, sub := range s.replaced {
		if pending, _, err := sub.Pending(); err == nil && pending > 0 {
			_ = sub.Drain() // Unsubscribe would drop the messages that have arrived
		} else {
			_ = sub.Unsubscribe()
		}
	}
	s.replaced, s.overlap = nil, nil
}

// subscribe subscribes to a set, or to all sets with "*". A failure is only logged:
// Hub.checkHeads finds unannounced changes.
func (s *subscriptions) subscribe(conn *nats.Conn, set string) *nats.Subscription {
	sub, err := conn.Subscribe(s.subject(set), s.deliver)
	if err != nil {
		s.logger.Warn("cannot subscribe to announcements", "set", set, "err", err)
	}
	return sub
}
