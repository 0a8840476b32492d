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

// A groupKey identifies the group of a connection.
type groupKey struct {
	set string
	wire
	shard int // splits groups so that all cores write
}

// A group follows a set for the live connections of one wire, that is, connections that are up
// to date. The group's goroutine writes new changes to each of them without waiting. A
// connection whose socket is full is detached from the group and catches up on its own. So a
// delivery to a connection costs one system call, a slow connection delays no other, and an
// idle connection needs no goroutine for output. A change costs nothing for connections whose
// filter does not match it.
type group struct {
	// Set when the group is created.
	key    groupKey
	server *Server
	cancel context.CancelFunc

	// Only the group's goroutine (run) uses these: scratch space for a delivery.
	writer directWriter
	chunk  chunk
	tally  tally

	// cursor up to which live connections with a filter have everything, because their filters
	// did not match later changes; nil if it is not known
	passed atomic.Pointer[feed.Cursor]

	mu        sync.Mutex
	ended     bool        // the group has no connections and accepts no more
	cursor    feed.Cursor // end of the newest delivery; connections behind it must not join
	audiences audiences
}

// join releases c to its group if c is up to date, and reports whether it did. Only the output
// goroutine of c calls it. If join returns true, that goroutine must no longer touch c.
func (s *Server) join(c *conn) bool {
	state, err := s.memory.State(s.ctx, c.key.set)
	if err != nil && !errors.Is(err, feed.ErrNoSet) {
		return false // Follow will wait for the memory, or return the error
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

// group returns the existing group of c. If there is none, group creates it with c as the
// first member, unless c has pending output; found is then nil, and founded reports whether
// the group was created.
func (s *Server) group(c *conn) (found *group, founded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.groups[c.key]; g != nil {
		return g, false
	}
	ctx, cancel := context.WithCancel(s.ctx)
	after := c.cursor
	g := &group{key: c.key, server: s, cancel: cancel, cursor: after}
	if joined, _ := g.join(c); !joined { // a group without connections would never end
		cancel()
		return nil, false
	}
	s.groups[c.key] = g
	s.wg.Go(func() { s.run(ctx, g, after) })
	return nil, true
}

// join adds c to the group, unless the group has ended, or c is behind the group or has
// pending output; c then continues on its own.
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

// removeLocked removes c from the group, if it is a member. The last removal ends the group.
// The caller must hold g.mu.
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

// run follows the set and delivers to the group until the group has no connections.
func (s *Server) run(ctx context.Context, g *group, after feed.Cursor) {
	defer s.forget(g)
	for batches, err := range s.follower.Follow(ctx, g.key.set, after) {
		if err != nil {
			s.fail(g, err)
			return
		}
		begun := time.Now()
		all, filtered := g.startDelivery(batches)
		if all {
			chunks(&g.chunk, g.key.wire, batches, func(ch *chunk) { g.deliver(ch) })
		}
		if filtered {
			for _, b := range batches {
				g.deliverFiltered(b)
			}
		}
		if took := time.Since(begun); took > pauseThreshold {
			time.Sleep(min(took, maxPause))
		}
	}
}

// After a delivery that took longer than pauseThreshold, a group pauses for as long, up to maxPause.
// Changes that arrive in the pause are delivered with one write to each connection instead of
// one for each publish. This halves the cost under load, so changes arrive sooner although they
// wait.
const (
	pauseThreshold = 500 * time.Microsecond
	maxPause       = 16 * time.Millisecond
)

// startDelivery starts the delivery of batches. From then on, connections that lack the batches cannot
// join. It reports whether the group has connections without a filter, and with one.
func (g *group) startDelivery(batches []*feed.Batch) (all, filtered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cursor = batches[len(batches)-1].Cursor
	return g.audiences.Unfiltered() != nil, g.audiences.HasFiltered()
}

// forget removes a group that ended. The next connection with the same key creates another one.
func (s *Server) forget(g *group) {
	g.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[g.key] == g {
		delete(s.groups, g.key)
	}
}

// fail closes every connection of a group after an error of Follow.
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

// logFailure logs an error of Follow, except feed.ErrGone: a request for changes that are gone
// is not a failure of the hub.
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

// deliverTo writes a chunk to the live connections of an audience. pick returns the chunk for
// the cursor of a connection's last message. All chunks end at the cursor end. The caller must
// hold g.mu.
func (g *group) deliverTo(a *audience, end feed.Cursor, diverged bool, pick func(told feed.Cursor) *chunk) {
	for i := len(a.Members.conns) - 1; i >= 0; i-- { // backwards, because removeLocked moves the last connection to i
		if c := a.Members.conns[i]; !c.deliver(&g.writer, &g.tally, end, diverged, pick) {
			g.removeLocked(c)
		}
	}
}

// maxVariants is the number of variants of one batch that deliverFiltered caches.
const maxVariants = 64

// deliverFiltered delivers the matching entries of a batch to each live connection with a
// filter. It does not touch connections without matching entries. A message starts where the
// previous message to the connection ended, and so covers the entries that the filter left out
// since then. Connections whose last messages ended at different cursors get different variants
// of the message; usually one variant serves a whole audience.
func (g *group) deliverFiltered(b *feed.Batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	end := b.Cursor // a copy, so that passed does not retain the batch
	if b.Diverged { // all connections must be notified, so none may skip ahead until then
		g.passed.Store(nil)
	}
	for a, entries := range g.audiences.matching(b) {
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

// closeCode returns the code and the reason for closing a WebSocket after an error. For
// feed.ErrGone the code is 4410, like the HTTP status 410. Any other error means that the hub
// failed or is temporarily unavailable.
func closeCode(err error) (code int, reason string) {
	if errors.Is(err, feed.ErrGone) {
		return closeGone, goneReason
	}
	if e, ok := errors.AsType[*feed.Error](err); ok && e.RetryAfter > 0 {
		return websocket.CloseTryAgainLater, e.Text
	}
	return websocket.CloseInternalServerErr, "the hub failed"
}
