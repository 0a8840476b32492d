package subscribe

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rshub/rshub/feed"
)

// A state determines who writes to a connection. These are the transitions, each made by one
// function:
//
//	from               to          by             when
//	-                  catchingUp  register       the handshake is complete
//	catchingUp         live        releaseLocked  it has everything that its group has, and no pending output
//	live               catchingUp  detachLocked   its socket is full, or its cursor is not in the group's chunk
//	catchingUp, live   leaving     leaveLocked    the hub or the client said goodbye
//	any                closed      closeLocked    its end is about to be written, a write failed, or the client left
//
// A leaving connection can only become closed, and a closed one does not change. In the end,
// only the reader removes a connection from the server (end).
type state uint8

const (
	catchingUp state = iota // its output goroutine (follow) writes the changes that the group has written to others
	live                    // it has no output goroutine; its group writes to it, and so may any goroutine that holds mu
	leaving                 // its output goroutine finishes the current frame, then writes the end, for a WebSocket the close frame
	closed                  // nothing is written to it
)

// Close codes of a WebSocket in addition to RFC 6455. The reason starts with the
// cursor to resume from.
const (
	closeNoRight = 4401 // the caller's right to follow has ended
	closeTooSlow = 4408
	closeGone    = 4410 // without a cursor

	goneReason = "the changes are gone; start over with since=baseline, or read all resources of the source"
)

// A conn is a WebSocket or an event stream that follows a set. It has a goroutine that reads
// (the reader), and unless it is live or closed, one that writes (the output goroutine).
//
// The lock order is Server.mu, group.mu, conn.mu.
type conn struct {
	// Set before the goroutines start.
	server *Server
	key    groupKey
	filter feed.Filter
	nc     net.Conn
	raw    syscall.RawConn // nil if the socket cannot be written to without waiting
	slot   int             // in Server.wheel

	release func() // releases what start acquired

	// first bytes of a client's frame, used by the reader only; no frame is shorter, so they are
	// never of two frames
	frameStart [minFrame]byte

	// baseline to send first; nil if there is none, or it was sent. Once the goroutines run,
	// only the output goroutine uses it.
	baseline *baseline

	// time of the last sign of life of the client, in nanoseconds since New; set by the
	// goroutines of c and read by the heartbeat
	lastActive atomic.Int64

	// place in a group, guarded by group.mu; audience is nil if c is in none. A live connection
	// is in its group. One that was detached by a heartbeat or a pong stays there, without
	// being written to, until the group's next delivery to its audience removes it, or until it
	// is released to the group again.
	audience *audience
	index    int // in audience.Members.conns

	mu sync.Mutex

	// Guarded by mu.
	state state
	group *group      // group that it was last released to
	bye   *closeFrame // close frame to leave with; nil before a goodbye
	why   reason      // reason of the end, as far as it is known

	// Guarded by mu. Other goroutines set these for the output goroutine, and call
	// interruptLocked to wake it. It writes them at the end of a frame.
	control   []byte             // pending control frames
	due       bool               // a heartbeat is due
	interrupt context.CancelFunc // ends the wait for changes; nil if c has not waited yet, or is live

	// Progress of the client. Writes require mu. While c has an output goroutine, only that
	// goroutine writes them, so it may read them without mu. While c is live, any goroutine that
	// holds mu may write them. All other reads require mu.
	cursor     feed.Cursor // cursor of the last batch written, at least in part; see passLocked
	lastSent   feed.Cursor // cursor of the last message; earlier than cursor if the filter left out later changes
	resumeFrom string      // in a baseline, the cursor after the last part; empty if the client resumes from cursor
}

// A closeFrame is the close frame of a WebSocket, or the reason for the end of an event stream.
type closeFrame struct {
	code   int
	reason string
	err    error // error of Follow, or nil
}

// passLocked moves the cursor of a live connection past the changes that did not match its
// filter, because the group does not touch the connection for those. The caller must hold c.mu.
func (c *conn) passLocked() {
	if c.state != live || c.filter.IsZero() {
		return
	}
	if at := c.group.passed.Load(); at != nil && at.Position > c.cursor.Position {
		c.cursor = *at
	}
}

// detachLocked starts the output goroutine of a live connection, which first writes pending,
// the rest of a frame.
func (c *conn) detachLocked(pending ...[]byte) {
	c.passLocked()
	c.state = catchingUp
	c.server.wg.Go(func() { c.follow(pending) })
}

// idleLocked reports whether the output goroutine has nothing to do but wait for changes.
func (c *conn) idleLocked() bool {
	return c.state == catchingUp && !c.due && len(c.control) == 0
}

// releaseLocked hands an idle connection over to a group. The output goroutine must no longer
// touch it.
func (c *conn) releaseLocked(g *group) {
	_ = c.nc.SetWriteDeadline(time.Time{}) // otherwise the deadline would apply to the group's writes, too
	c.state, c.group, c.interrupt = live, g, nil
}

// leaveLocked makes the output goroutine write the rest of the current frame, then the end, and
// nothing else.
func (c *conn) leaveLocked(bye *closeFrame) {
	if c.state == live {
		c.detachLocked()
	} else { // a write in progress gets no more time than the close frame
		_ = c.nc.SetWriteDeadline(time.Now().Add(lingering))
	}
	c.state, c.bye = leaving, bye
	c.interruptLocked()
}

// closeLocked stops all writing to c.
func (c *conn) closeLocked() {
	c.state = closed
	c.interruptLocked()
}

// interruptLocked ends the wait of the output goroutine for changes, so that it checks for other
// work.
func (c *conn) interruptLocked() {
	if c.interrupt != nil {
		c.interrupt()
	}
}

// goodbye closes c with a code and a text. The close frame has the cursor to resume from,
// followed by the text. Only the first goodbye has an effect. It does not block.
func (c *conn) goodbye(code int, text string) {
	c.sendGoodbye(closeReason(code), &closeFrame{code: code, reason: text})
}

// fail closes c after an error of Follow.
func (c *conn) fail(err error) {
	code, text := closeCode(err)
	c.sendGoodbye(closeReason(code), &closeFrame{code, text, err})
}

// sendGoodbye is like goodbye, with the reason that the metrics count.
func (c *conn) sendGoodbye(why reason, bye *closeFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == leaving || c.state == closed {
		return
	}
	if c.why == byClient { // byClient is also the value of an unknown reason
		c.why = why
	}
	c.leaveLocked(bye)
}

// setReason sets the reason for closing c without a goodbye. The reason of a goodbye takes
// precedence.
func (c *conn) setReason(why reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bye == nil {
		c.why = why
	}
}

// deliver writes the chunk that pick returns to c. It adds what it wrote to t, and reports
// whether c stays in its group.
func (c *conn) deliver(w *directWriter, t *tally, end feed.Cursor, diverged bool, pick func(told feed.Cursor) *chunk) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != live {
		return false
	}
	c.passLocked()
	if !diverged && (c.cursor == end || c.cursor.Position > end.Position && c.cursor.Micros > end.Micros) {
		return true // c joined with a later cursor than the group's
	}
	ch := pick(c.lastSent)
	offset, ok := ch.from(c.cursor)
	if !ok { // c's cursor is inside a batch, or of another history: the output goroutine must read the memory
		c.detachLocked()
		return false
	}
	n, err := w.write(c.raw, ch.buf[offset:])
	if err != nil {
		c.closeLocked()
		c.closeSocket() // the reader notices, and ends c
		return false
	}
	ch.tally(t, offset, offset+n)
	if offset+n < len(ch.buf) {
		var rest [][]byte
		if n > 0 {
			c.cursor, rest = ch.split(offset + n)
			c.lastSent = c.cursor
		}
		c.detachLocked(rest...)
		return false
	}
	c.cursor, c.lastSent = end, end
	return true
}

// maxControl is the maximum size of pending control frames in bytes. A client that pings
// without reading gets no further pongs.
const maxControl = 4096

// pong writes the answer to a ping, or leaves it to the output goroutine.
func (c *conn) pong(frame []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state {
	case live:
		return c.writeLiveLocked(&directWriter{}, frame)
	case catchingUp:
		if len(c.control)+len(frame) <= maxControl {
			c.control = append(c.control, frame...)
			c.interruptLocked()
		}
		return nil
	default:
		return net.ErrClosed
	}
}

// writeLiveLocked writes whole frames to a live connection. The caller must hold c.mu.
func (c *conn) writeLiveLocked(w *directWriter, frames []byte) error {
	n, err := w.write(c.raw, frames)
	if err == nil && n < len(frames) {
		c.detachLocked(append([]byte(nil), frames[n:]...))
	}
	return err
}

// end closes c and removes it from its group and from the server. Only the reader calls it,
// once.
func (c *conn) end() {
	s := c.server
	c.mu.Lock()
	c.closeLocked()
	g, why := c.group, c.why
	c.mu.Unlock()
	c.closeSocket()
	c.release()
	if g != nil {
		g.mu.Lock()
		g.removeLocked(c)
		g.mu.Unlock()
	}
	s.mu.Lock()
	delete(s.wheel[c.slot], c)
	s.mu.Unlock()
	s.metrics.closed[c.key.kind()][why].Inc()
}

// census implements connection.
func (c *conn) census(look func(k kind, set string, cursor feed.Cursor)) {
	c.mu.Lock()
	c.passLocked()
	cursor := c.cursor
	c.mu.Unlock()
	look(c.key.kind(), c.key.set, cursor)
}
