package subscribe

import (
	"context"
	"errors"
	"sync"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/changelog"
)

// A groupKey says which connections get the same bytes.
type groupKey struct {
	set      string
	protocol string
	filter   string // changelog.Filter.Key
	shard    int    // groups are split so that all cores write
}

// A group is one follower for all the connections that are up to date with a
// set and want the same of it. Its goroutine writes what is new to each of them
// without waiting. A connection whose socket is full leaves the group: a
// goroutine of its own follows for it until it is up to date again. So a
// delivery costs one system call, a slow connection delays nobody, and an idle
// one needs no goroutine for its output.
type group struct {
	key    groupKey
	filter changelog.Filter
	cancel context.CancelFunc

	mu     sync.Mutex
	ended  bool             // it has no connections and takes no more
	cursor changelog.Cursor // up to which everybody here has everything, or is ahead
	conns  []*conn
	writer directWriter
	chunk  chunk
	tally  tally

	delivered *delivered // counts for all connections by WebSocket
}

// join puts c into its group if c is up to date, and reports whether it did.
// Then c's goroutine must not touch it any more.
func (s *Server) join(c *conn) bool {
	state, err := s.memory.State(s.ctx, c.key.set)
	if err != nil && !errors.Is(err, changelog.ErrNoSet) {
		return false // following goes on, or finds out what is wrong
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

// group returns c's group. If there is none, c founds it, unless c has to stay
// out of it.
func (s *Server) group(c *conn) (found *group, founded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.groups[c.key]; g != nil {
		return g, false
	}
	ctx, cancel := context.WithCancel(s.ctx)
	after := c.cursor
	g := &group{key: c.key, filter: c.filter, cancel: cancel, cursor: after, delivered: &s.metrics.delivered[byWebSocket]}
	if joined, _ := g.join(c); !joined { // an empty group would never end
		cancel()
		return nil, false
	}
	s.groups[c.key] = g
	s.wg.Go(func() { s.run(ctx, g, after) })
	return nil, true
}

func (g *group) join(c *conn) (joined, ended bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return false, true
	}
	// Who is behind has something to read, so its own following does not block.
	if c.cursor.Position < g.cursor.Position {
		return false, false
	}
	if !c.release(g) {
		return false, false
	}
	if c.index < 0 {
		c.index = len(g.conns)
		g.conns = append(g.conns, c)
	}
	return true, false
}

// remove takes c out, and ends the group with its last connection. g.mu is held.
func (g *group) remove(c *conn) {
	if c.index < 0 {
		return
	}
	n := len(g.conns) - 1
	last := g.conns[n]
	g.conns[c.index], last.index = last, c.index
	g.conns[n] = nil
	g.conns = g.conns[:n]
	c.index = -1
	if n == 0 {
		g.ended = true
		g.cancel()
	}
}

// run follows the set for the group until it has no connections.
func (s *Server) run(ctx context.Context, g *group, after changelog.Cursor) {
	defer s.forget(g)
	for batches, err := range s.follower.Follow(ctx, g.key.set, after) {
		switch {
		case err != nil:
			s.fail(g, err)
			return
		case g.filter.IsZero():
			chunks(&g.chunk, g.key.protocol, batches, func(ch *chunk) {
				g.deliver(ch.end(), ch.diverged, func(changelog.Cursor) *chunk { return ch })
			})
		default:
			for _, b := range batches {
				g.deliverFiltered(b)
			}
		}
	}
}

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
	conns := g.conns
	for _, c := range conns {
		c.index = -1
	}
	g.ended, g.conns = true, nil
	g.mu.Unlock()
	s.logFailure(g.key.set, err)
	for _, c := range conns {
		c.goodbye(closeCode(err))
	}
}

// logFailure logs why following ended, unless it is the client's affair.
func (s *Server) logFailure(set string, err error) {
	if !errors.Is(err, changelog.ErrGone) {
		s.opts.Logger.Error("follow failed", "set", set, "err", err)
	}
}

// deliver writes to every connection what pick chooses by what it was told
// last. end is the cursor behind it.
func (g *group) deliver(end changelog.Cursor, diverged bool, pick func(told changelog.Cursor) *chunk) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := len(g.conns) - 1; i >= 0; i-- { // backwards: remove moves the last one
		if c := g.conns[i]; !c.deliver(&g.writer, &g.tally, end, diverged, pick) {
			g.remove(c)
		}
	}
	g.cursor = end
	g.delivered.count(&g.tally)
}

// maxVariants bounds the memory that beginnings of one batch take.
const maxVariants = 64

// deliverFiltered delivers what passes the filter. What was left out since a
// connection's last message belongs to the interval of its next, so messages
// differ in their beginning; mostly all connections were told the same.
func (g *group) deliverFiltered(b *changelog.Batch) {
	passed := g.filter.Apply(b)
	if len(passed.Entries) == 0 && !b.Diverged {
		g.deliver(b.Cursor, false, func(changelog.Cursor) *chunk { return nil })
		return
	}
	variants := map[changelog.Cursor]*chunk{}
	g.deliver(b.Cursor, b.Diverged, func(told changelog.Cursor) *chunk {
		if b.Diverged {
			told = b.After
		}
		ch := variants[told]
		if ch == nil {
			if len(variants) == maxVariants {
				clear(variants)
			}
			ch = &chunk{after: b.After}
			m := retold(passed, told)
			ch.add(message(g.key.protocol, m), m)
			variants[told] = ch
		}
		return ch
	})
}

// retold returns b with another beginning.
func retold(b *changelog.Batch, after changelog.Cursor) *changelog.Batch {
	return &changelog.Batch{Set: b.Set, After: after, Cursor: b.Cursor, Entries: b.Entries, Diverged: b.Diverged}
}

// closeCode is what a WebSocket is closed with for an error: 4410 for gone, as
// a 410 would be, else that the hub failed.
func closeCode(err error) (code int, reason string) {
	if errors.Is(err, changelog.ErrGone) {
		return closeGone, goneReason
	}
	return websocket.CloseInternalServerErr, "the hub failed"
}
