package subscribe

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// A groupKey says which connections have a group together.
type groupKey struct {
	set      string
	kind     kind
	format   *feed.Format
	filtered bool // they have filters
	shard    int  // groups are split so that all cores write
}

// A group follows a set for all live connections that get the same bytes, or the same
// but for what their filters leave out. Live connections are those that are up to date.
// The group's goroutine writes new changes to each of them without waiting. A connection
// whose socket is full is detached from the group and catches up by itself. So a delivery
// to a connection costs one system call, a slow connection delays nobody, and an idle
// connection needs no goroutine for its output.
//
// A connection whose filter leaves out all of a batch is not touched. Its cursor then
// stays behind what it has seen, until somebody needs to know it (conn.settleLocked).
type group struct {
	// Set when the group is founded.
	key       groupKey
	cancel    context.CancelFunc
	delivered func(*tally) // counts

	// Only the group's goroutine (run) uses these: scratch space for a delivery.
	writer directWriter
	chunk  chunk
	tally  tally

	mu        sync.Mutex
	ended     bool        // the group has no connections and takes no more
	cursor    feed.Cursor // where the last delivery ended; no connection is behind it
	audiences audiences

	// The cursor, for who does not hold mu; nil: no connection has a filter.
	seen atomic.Pointer[feed.Cursor]
}

// join releases c to its group if c is up to date, and reports whether it did. Only
// c's own goroutine calls it. If join returns true, that goroutine must not touch c
// any more.
func (s *Server) join(c *conn) bool {
	state, err := s.memory.State(s.ctx, c.key.set)
	if err != nil && !errors.Is(err, feed.ErrNoSet) {
		return false // Follow waits for the memory, or says what is wrong
	}
	waits := c.cursor.IsZero() && state.Head.Position == 0
	if c.cursor != state.Head && !waits {
		return false
	}
	for {
		g, joined := s.group(c)
		if g == nil {
			return joined
		}
		if joined, ended := g.join(c); !ended {
			return joined
		}
		s.forget(g)
	}
}

// group returns the group that c belongs to, if there is one. If not, c founds the
// group and is its first member; found is then nil. But while something waits to be
// written to c, c founds no group, and founded is false.
func (s *Server) group(c *conn) (found *group, founded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.groups[c.key]; g != nil {
		return g, false
	}
	ctx, cancel := context.WithCancel(s.ctx)
	after := c.cursor
	g := &group{key: c.key, cancel: cancel, cursor: after, delivered: func(t *tally) { s.count(c.key.kind, c.key.set, t) }}
	if c.key.filtered {
		g.seen.Store(&after)
	}
	if joined, _ := g.join(c); !joined { // an empty group would never end
		cancel()
		return nil, false
	}
	s.groups[c.key] = g
	s.wg.Go(func() { s.run(ctx, g, after) })
	return nil, true
}

// join takes c into the group, unless the group has ended. It does not take a
// connection that is behind the group, or that has something to write: that one goes
// on by itself.
func (g *group) join(c *conn) (joined, ended bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return false, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cursor.Position < g.cursor.Position || !c.idleLocked() {
		return false, false
	}
	c.releaseLocked(g)
	if c.index < 0 {
		a := g.audiences.of(c.filter)
		c.audience, c.index = a, len(a.conns)
		a.conns = append(a.conns, c)
	}
	return true, false
}

// removeLocked takes c out of the group, if c is in it. A group without connections
// ends.
func (g *group) removeLocked(c *conn) {
	if c.index < 0 {
		return
	}
	a := c.audience
	n := len(a.conns) - 1
	last := a.conns[n]
	a.conns[c.index], last.index = last, c.index
	a.conns[n] = nil
	a.conns = a.conns[:n]
	c.audience, c.index = nil, -1
	if n == 0 {
		g.audiences.remove(a)
	}
	if len(g.audiences.byKey) == 0 {
		g.ended = true
		g.cancel()
	}
}

// run follows the set for the group until the group has no connections.
func (s *Server) run(ctx context.Context, g *group, after feed.Cursor) {
	defer s.forget(g)
	var p pace
	for batches, err := range s.follower.Follow(ctx, g.key.set, after) {
		p.begin(time.Now())
		switch {
		case err != nil:
			s.fail(g, err)
			return
		case !g.key.filtered:
			chunks(&g.chunk, g.key, batches, func(ch *chunk) {
				g.deliver(ch.end(), ch.diverged, func(feed.Cursor) *chunk { return ch })
			})
		default:
			for _, b := range batches {
				g.deliverFiltered(b)
			}
		}
		backoff.Wait(ctx, p.end(time.Now()))
	}
}

// forget ends a group. The next connection with the same key founds another group.
func (s *Server) forget(g *group) {
	g.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[g.key] == g {
		delete(s.groups, g.key)
	}
}

// fail closes every connection of a group that cannot go on.
func (s *Server) fail(g *group, err error) {
	var conns []*conn
	g.mu.Lock()
	for _, a := range g.audiences.byKey {
		conns = append(conns, a.conns...)
	}
	for _, c := range conns {
		c.audience, c.index = nil, -1
	}
	g.ended, g.audiences = true, audiences{}
	g.mu.Unlock()
	s.logFailure(g.key.set, err)
	for _, c := range conns {
		c.fail(err)
	}
}

// logFailure logs why following ended. It does not log feed.ErrGone: a client that
// asks for changes that are gone is no failure of the hub.
func (s *Server) logFailure(set string, err error) {
	if !errors.Is(err, feed.ErrGone) {
		s.opts.Logger.Error("follow failed", "set", set, "err", err)
	}
}

// deliver writes a chunk to every live connection. pick chooses the chunk by the
// cursor of the connection's last message. All chunks end at the cursor end.
func (g *group) deliver(end feed.Cursor, diverged bool, pick func(told feed.Cursor) *chunk) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.audiences.byKey {
		g.deliverLocked(a, end, diverged, pick)
	}
	g.movedLocked(end)
}

// deliverLocked writes a chunk to every live connection of an audience.
func (g *group) deliverLocked(a *audience, end feed.Cursor, diverged bool, pick func(told feed.Cursor) *chunk) {
	for i := len(a.conns) - 1; i >= 0; i-- { // backwards, because removeLocked moves the last connection to i
		if c := a.conns[i]; !c.deliver(&g.writer, &g.tally, end, diverged, pick) {
			g.removeLocked(c)
		}
	}
}

// movedLocked ends a delivery.
func (g *group) movedLocked(end feed.Cursor) {
	g.cursor = end
	if g.key.filtered {
		g.seen.Store(&end)
	}
	g.delivered(&g.tally)
}

// deliverFiltered delivers to each audience the entries that pass its filter. That the
// log has lost its tail everybody is told, also those whose filters let nothing pass.
func (g *group) deliverFiltered(b *feed.Batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.Diverged {
		for _, a := range g.audiences.byKey {
			g.deliverPassedLocked(a, a.filter.Apply(b))
		}
	} else {
		g.audiences.sift(b, g.deliverPassedLocked)
	}
	g.movedLocked(b.Cursor)
}

// maxVariants bounds how many variants of one batch deliverPassedLocked keeps.
const maxVariants = 64

// deliverPassedLocked delivers the entries of a batch that have passed the filter of an
// audience. A message begins where the last message to the same connection ended. So it
// covers the entries that the filter left out since. Connections whose last messages
// ended at different cursors get different variants. Mostly one variant serves all.
func (g *group) deliverPassedLocked(a *audience, passed *feed.Batch) {
	variants := map[feed.Cursor]*chunk{}
	g.deliverLocked(a, passed.Cursor, passed.Diverged, func(told feed.Cursor) *chunk {
		if passed.Diverged {
			told = passed.After
		}
		ch := variants[told]
		if ch == nil {
			if len(variants) == maxVariants {
				clear(variants)
			}
			ch = &chunk{after: passed.After}
			m := retold(passed, told)
			ch.add(g.key.format, m.In(g.key.format), m)
			variants[told] = ch
		}
		return ch
	})
}

// retold returns a copy of b that begins after another cursor.
func retold(b *feed.Batch, after feed.Cursor) *feed.Batch {
	return &feed.Batch{Set: b.Set, After: after, Cursor: b.Cursor, Entries: b.Entries, Diverged: b.Diverged}
}

// closeCode returns the code and the reason with which a WebSocket is closed after an
// error. For feed.ErrGone the code is 4410, as the HTTP status would be 410. Any other
// error means that the hub failed, or cannot go on now.
func closeCode(err error) (code int, reason string) {
	if errors.Is(err, feed.ErrGone) {
		return closeGone, goneReason
	}
	if e, ok := errors.AsType[*feed.Error](err); ok && e.Retry > 0 {
		return websocket.CloseTryAgainLater, e.Text
	}
	return websocket.CloseInternalServerErr, "the hub failed"
}
