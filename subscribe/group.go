package subscribe

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
)

// A groupKey says which connections a group has.
type groupKey struct {
	set string
	wire
	shard int // groups are split so that all cores write
}

// A group follows a set for live connections of one wire. Live connections are those
// that are up to date. The group's goroutine writes new changes to each of them without
// waiting. A connection whose socket is full is detached from the group and catches up by
// itself. So a delivery to a connection costs one system call, a slow connection delays
// nobody, and an idle connection needs no goroutine for its output. A change costs nothing
// for connections whose filter it does not pass.
type group struct {
	// Set when the group is founded.
	key    groupKey
	server *Server
	cancel context.CancelFunc

	// Only the group's goroutine (run) uses these: scratch space for a delivery.
	writer directWriter
	chunk  chunk
	tally  tally

	// What the live connections with a filter have, if they were not written to since; nil: no
	// more than they were written.
	passed atomic.Pointer[feed.Cursor]

	mu        sync.Mutex
	ended     bool        // the group has no connections and takes no more
	cursor    feed.Cursor // where the newest delivery ends; nobody who is behind it may join
	audiences audiences
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
	g := &group{key: c.key, server: s, cancel: cancel, cursor: after}
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
	if c.audience == nil {
		g.audiences.add(c)
	}
	return true, false
}

// removeLocked takes c out of the group, if c is in it. A group without connections
// ends.
func (g *group) removeLocked(c *conn) {
	if c.audience == nil {
		return
	}
	g.audiences.remove(c)
	if g.audiences.Unfiltered() == nil && !g.audiences.HasFiltered() {
		g.ended = true
		g.cancel()
	}
}

// run follows the set for the group until the group has no connections.
func (s *Server) run(ctx context.Context, g *group, after feed.Cursor) {
	defer s.forget(g)
	for batches, err := range s.follower.Follow(ctx, g.key.set, after) {
		if err != nil {
			s.fail(g, err)
			return
		}
		begun := time.Now()
		all, filtered := g.begin(batches)
		if all {
			chunks(&g.chunk, g.key.wire, batches, func(ch *chunk) { g.deliver(ch) })
		}
		if filtered {
			for _, b := range batches {
				g.deliverFiltered(b)
			}
		}
		if took := time.Since(begun); took > restFrom {
			time.Sleep(min(took, restMost))
		}
	}
}

// A group that delivers for longer than restFrom rests for as long, up to restMost. What comes
// meanwhile is then delivered with one write to each connection, not with one for each publish.
// That halves the cost under load, so that changes arrive sooner although they wait.
const (
	restFrom = 500 * time.Microsecond
	restMost = 16 * time.Millisecond
)

// begin begins the delivery of batches to the connections that the group has now: from here
// on it takes none that lacks them. It reports whether the group has connections without a
// filter, and with one.
func (g *group) begin(batches []*feed.Batch) (all, filtered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cursor = batches[len(batches)-1].Cursor
	return g.audiences.Unfiltered() != nil, g.audiences.HasFiltered()
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
	g.mu.Lock()
	var conns []*conn
	for a := range g.audiences.All() {
		conns = append(conns, a.Members.conns...)
	}
	for _, c := range conns {
		c.audience = nil
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

// deliver writes a chunk to every live connection without a filter.
func (g *group) deliver(ch *chunk) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.audiences.Unfiltered(); a != nil {
		g.deliverTo(a, ch.end(), ch.diverged, func(feed.Cursor) *chunk { return ch })
	}
	g.server.count(g.key.kind(), g.key.set, &g.tally)
}

// deliverTo writes a chunk to the live connections of an audience. pick chooses the chunk
// by the cursor of the connection's last message. All chunks end at the cursor end.
func (g *group) deliverTo(a *audience, end feed.Cursor, diverged bool, pick func(told feed.Cursor) *chunk) {
	for i := len(a.Members.conns) - 1; i >= 0; i-- { // backwards, because removeLocked moves the last connection to i
		if c := a.Members.conns[i]; !c.deliver(&g.writer, &g.tally, end, diverged, pick) {
			g.removeLocked(c)
		}
	}
}

// maxVariants bounds how many variants of one batch deliverFiltered keeps.
const maxVariants = 64

// deliverFiltered delivers to each live connection with a filter the entries that pass. It
// does not touch connections of which nothing passes. A message begins where the last
// message to the same connection ended. So it covers the entries that the filter left out
// since. Connections whose last messages ended at different cursors get different variants.
// Mostly one variant serves all of an audience.
func (g *group) deliverFiltered(b *feed.Batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	end := b.Cursor // a copy, because passed must not keep the batch
	if b.Diverged { // all connections have to be told, so none of them passes anything until then
		g.passed.Store(nil)
	}
	for a, entries := range g.audiences.wanting(b) {
		variants := map[feed.Cursor]*chunk{}
		g.deliverTo(a, end, b.Diverged, func(told feed.Cursor) *chunk {
			if b.Diverged {
				told = b.After
			}
			ch := variants[told]
			if ch == nil {
				if len(variants) == maxVariants {
					clear(variants)
				}
				ch = &chunk{after: b.After}
				m := &feed.Batch{Set: b.Set, After: told, Cursor: end, Entries: entries, Diverged: b.Diverged}
				ch.add(g.key.wire, m.Encode(g.key.format), m)
				variants[told] = ch
			}
			return ch
		})
	}
	g.passed.Store(&end)
	g.server.count(g.key.kind(), g.key.set, &g.tally)
}

// closeCode returns the code and the reason with which a WebSocket is closed after an
// error. For feed.ErrGone the code is 4410, as the HTTP status would be 410. Any other
// error means that the hub failed, or cannot go on now.
func closeCode(err error) (code int, reason string) {
	if errors.Is(err, feed.ErrGone) {
		return closeGone, goneReason
	}
	if e, ok := errors.AsType[*feed.Error](err); ok && e.RetryAfter > 0 {
		return websocket.CloseTryAgainLater, e.Text
	}
	return websocket.CloseInternalServerErr, "the hub failed"
}
