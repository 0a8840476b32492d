package xmpp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

var (
	// errPrivate means that the set is private. Who may read a node is not for the hub to
	// say, so a private set is not published.
	errPrivate = errors.New("the set is private, so it is not published over XMPP")

	// errAnew means that what was to be published has to be cut again.
	errAnew = errors.New("the notification is cut again")
)

// A line is the way of one set to its node. One notification is under way at a time.
type line struct {
	// Set by newLine, never changed.
	session *session
	set     string
	node    string
	cutter  cutter
	logger  *slog.Logger

	// Only the goroutine of run uses these. The session does while run does not run.
	known    bool          // cursor was read
	cursor   feed.Cursor   // as it is kept: all before it was acknowledged
	pending  *notification // that was sent and not acknowledged; it is sent again as it is
	room     int           // for a stanza
	failures int           // since the last success
	said     string        // what was logged last of a failure

	mu sync.Mutex
	// Guarded by mu, for the metrics.
	at      *feed.Cursor // a copy of cursor; nil: it is not known
	failing bool
}

func newLine(s *session, set string) *line {
	p := s.publisher
	return &line{
		session: s, set: set, node: p.node(set), cutter: cutter{set, links(p.base, set)}, logger: s.logger.With("set", set, "node", p.node(set)),
		room: p.opts.MaxStanza,
	}
}

// run publishes over a connection, until ctx is done or the connection ends. What is under way
// goes on until calls is done.
func (l *line) run(ctx, calls context.Context, c *component) {
	for ctx.Err() == nil {
		err := l.work(ctx, calls, c)
		if ctx.Err() != nil || c.failure() != nil {
			return // the session says why
		}
		if err != nil && !errors.Is(err, errAnew) {
			l.failed(err)
			backoff.Wait(ctx, pause(l.failures, err))
		}
	}
}

// work publishes until something fails. The node is there when it begins.
func (l *line) work(ctx, calls context.Context, c *component) error {
	if err := l.begin(calls); err != nil {
		return err
	}
	if err := l.open(calls, c); err != nil {
		return err
	}
	if l.pending != nil {
		if err := l.publish(calls, c, l.pending); err != nil {
			return err
		}
	}
	for batches, err := range l.session.publisher.follower.Follow(ctx, l.set, l.cursor) {
		if errors.Is(err, feed.ErrGone) {
			return l.overrun(calls, c)
		} else if err != nil {
			return err
		}
		b := backlog{batches: batches, at: l.cursor}
		for ctx.Err() == nil {
			n := l.cutter.next(&b, l.payloadRoom())
			if n == nil {
				break
			}
			if err := l.publish(calls, c, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// payloadRoom returns how many bytes a payload may have.
func (l *line) payloadRoom() int {
	around := publication(l.node, widest.Cursor.String(), nil)
	return l.room - len(frame(&l.session.publisher.account, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-18446744073709551615", around))
}

// begin reads where to go on. A set that is published for the first time begins at its head, and
// that is kept before anything is published.
func (l *line) begin(ctx context.Context) error {
	if l.known {
		return nil
	}
	p := l.session.publisher
	at, ok, err := p.cursors.Get(ctx, l.set)
	if err != nil {
		return err
	}
	if !ok {
		st, err := p.log.State(ctx, l.set) // zero for a set that is not made
		if err != nil && !errors.Is(err, feed.ErrNoSet) {
			return err
		}
		at = st.Head
		if err := p.cursors.Put(ctx, l.session.hold.Claim, l.set, at); err != nil {
			return err
		}
		l.logger.Info("xmpp: a set is published from here on", "cursor", at.String())
	}
	l.known = true
	l.advance(at)
	return nil
}

// open makes the node, if it is not there. It may be there before the set, so that nobody who
// subscribes misses the first change.
func (l *line) open(ctx context.Context, c *component) error {
	st, err := l.session.publisher.log.State(ctx, l.set)
	switch {
	case err != nil && !errors.Is(err, feed.ErrNoSet):
		return err
	case st.Private:
		return errPrivate
	}
	// A component that may publish need not be one that may create nodes. Whether there is a
	// node is seen when something is published.
	err = l.create(ctx, c, st.Title)
	if f, ok := errors.AsType[*Failure](err); ok && !f.Stream {
		l.tell("xmpp: the node could not be created; if it is there, that does no harm", err)
		return nil
	}
	return err
}

// create makes the node. It returns nil if the node is there already.
func (l *line) create(ctx context.Context, c *component, title string) error {
	if title == "" {
		title = "Changes of " + l.set
	}
	err := c.ask(ctx, creation(l.node, title, false))
	f, ok := errors.AsType[*Failure](err)
	if ok && !f.Stream && slices.Contains([]string{"not-acceptable", "bad-request", "feature-not-implemented"}, f.Condition) {
		err = c.ask(ctx, creation(l.node, title, true)) // the service does not take the options
		f, ok = errors.AsType[*Failure](err)
	}
	if err == nil {
		l.logger.Info("xmpp: a node was created")
	}
	if ok && !f.Stream && f.Condition == "conflict" {
		return nil
	}
	return err
}

// overrun tells that the memory has removed changes that were not published, and goes on behind
// them.
func (l *line) overrun(ctx context.Context, c *component) error {
	st, err := l.session.publisher.log.State(ctx, l.set)
	if err != nil {
		return err // also of a set that was deleted, until it is made again
	}
	n := l.cutter.missing(l.cursor, st.Floor, false)
	if err := l.publish(ctx, c, n); err != nil {
		return err
	}
	return errAnew // Follow begins again
}

// publish publishes a notification, and keeps how far the set is published.
func (l *line) publish(ctx context.Context, c *component, n *notification) error {
	p := l.session.publisher
	again := l.pending != nil || l.failures > 0
	l.pending = n
	if !n.acknowledged {
		err := l.send(ctx, c, n)
		if f, ok := errors.AsType[*Failure](err); ok && !f.Stream && f.tooBig() && l.shrink(err) {
			return errAnew
		}
		if errors.Is(err, feed.ErrNoSet) {
			l.pending = nil // it was deleted, and nobody is to read it any more
		}
		if err != nil {
			return err
		}
		n.acknowledged = true
	}
	if err := p.cursors.Put(ctx, l.session.hold.Claim, l.set, n.cursor); err != nil {
		return err
	}
	l.pending = nil
	l.advance(n.cursor)
	l.succeeded(n)
	p.metrics.delivered(n, again)
	return nil
}

// send sends a notification to the node, and makes the node if it is gone.
func (l *line) send(ctx context.Context, c *component, n *notification) error {
	st, err := l.session.publisher.log.State(ctx, l.set)
	switch {
	case err != nil:
		return err
	case st.Private:
		return errPrivate
	case l.session.hold.Over():
		return fmt.Errorf("publish set %q: %w", l.set, claim.ErrLost)
	}
	content := publication(l.node, n.item(), n.payload)
	err = c.ask(ctx, content)
	if f, ok := errors.AsType[*Failure](err); ok && !f.Stream && f.Condition == "item-not-found" {
		if err := l.create(ctx, c, st.Title); err != nil {
			return err
		}
		err = c.ask(ctx, content)
	}
	return err
}

// shrink makes the room for stanzas smaller, after one was too big. It returns false if it is
// as small as it gets.
func (l *line) shrink(err error) bool {
	if l.room == MinStanza {
		return false
	}
	l.room = max(l.room/2, MinStanza)
	l.pending = nil
	l.logger.Warn("xmpp: a stanza was too big; smaller ones are sent from now on", "bytes", l.room, "err", err)
	return true
}

// disconnected says why the connection ended, after run.
func (l *line) disconnected(err error) {
	if f, ok := errors.AsType[*Failure](err); ok && f.tooBig() && l.pending != nil {
		l.shrink(err)
	}
}

// advance moves the cursor.
func (l *line) advance(to feed.Cursor) {
	l.cursor = to
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = &to
}

// failed notes a failure.
func (l *line) failed(err error) {
	l.failures++
	l.setFailing(true)
	l.session.publisher.metrics.failed(err)
	l.session.publisher.opts.Outcome(l.set, err)
	l.tell("xmpp: a set cannot be published", err)
}

// tell logs an error, unless it was logged last.
func (l *line) tell(what string, err error) {
	if said := what + err.Error(); l.said != said {
		l.said = said
		l.logger.Warn(what, "err", err)
	}
}

// succeeded notes that a notification was published.
func (l *line) succeeded(n *notification) {
	o := &l.session.publisher.opts
	if l.failures > 0 {
		l.logger.Info("xmpp: a set is published again", "failures", l.failures)
	}
	l.failures, l.said = 0, ""
	l.setFailing(false)
	if n.gap != "" {
		l.logger.Warn("xmpp: changes are not in the node: the memory had removed them, or one is larger than a stanza may be", "lost", n.gap)
	}
	o.Delivered(l.set, n.changes)
	o.Outcome(l.set, nil)
}

func (l *line) setFailing(failing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failing = failing
}
