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

// A state says who writes to a connection. These are the ways from one state to
// another, and each is taken by one function:
//
//	from               to          by             when
//	-                  catchingUp  register       the handshake is through
//	catchingUp         live        releaseLocked  it has what its group has, and nothing waits to be written
//	live               catchingUp  detachLocked   its socket is full, or its cursor is not where the group's chunk begins
//	catchingUp, live   leaving     leaveLocked    the hub or the client said goodbye
//	any                closed      closeLocked    its end is written next, a write failed, or the client is gone
//
// From leaving, the only way is to closed. From closed there is no way. Every path
// ends with the reader: it alone takes a connection out of the server (end).
type state uint8

const (
	catchingUp state = iota // its own goroutine (follow) writes to it what the group has written to others
	live                    // it has no goroutine for its output: its group writes to it, and so may any goroutine that holds its mu
	leaving                 // its own goroutine finishes the frame that it has begun, and then writes the end: for a WebSocket, the close frame
	closed                  // nobody writes to it any more
)

// The close codes of a WebSocket, besides those of RFC 6455. The reason
// begins with the cursor to resume from.
const (
	closeNoRight = 4401 // the caller's right to follow has ended
	closeTooSlow = 4408
	closeGone    = 4410 // without a cursor

	goneReason = "gone from the change memory: begin anew with since=baseline, or read the resources of the source anew"
)

// A conn is a WebSocket, or an event stream, that follows a set. It has a goroutine that
// reads, and another one for its output (its own goroutine) unless it is live or closed.
//
// Locks are taken in the order Server.mu, group.mu, conn.mu.
type conn struct {
	// Set before its goroutines start.
	server *Server
	key    groupKey
	filter feed.Filter
	nc     net.Conn
	raw    syscall.RawConn // nil: the socket cannot be written to without waiting
	slot   int             // in Server.wheel

	release func() // undoes what start has begun

	// The first bytes of a frame of the client, which only the goroutine that reads uses. A
	// frame is no shorter, so these are of one frame.
	begun [minFrame]byte

	// What c reads first; nil: nothing, or it was read. Once c's goroutines run, only its
	// own goroutine uses it.
	baseline *baseline

	// When the client last gave a sign of life, in nanoseconds of the server's
	// age. Its goroutines set it, and the heartbeat reads it, without a lock.
	heard atomic.Int64

	// Where it is in a group, guarded by group.mu; audience nil: it is in none. A live
	// connection is in its group. One that was detached by a heartbeat or a pong stays
	// there, without being written to, until the group's next delivery to its audience
	// takes it out, or until it is released to the group again.
	audience *audience
	index    int // in audience.Members.conns

	mu sync.Mutex

	// Guarded by mu.
	state state
	group *group      // that it was released to last
	bye   *closeFrame // what it leaves with; nil: there was no goodbye
	why   reason      // why it ends, as far as is known

	// Guarded by mu. Other goroutines leave these for c's own goroutine, and call
	// interruptLocked so that it looks. It writes them when it is at the end of a
	// frame.
	control   []byte             // control frames
	due       bool               // a heartbeat
	interrupt context.CancelFunc // ends the wait for changes; nil: c has not waited yet, or is live

	// How far the client is. Both are written only with mu held. While c has its own
	// goroutine, only that goroutine writes them, so it may read them without mu.
	// While c is live, any goroutine that holds mu may write them. All others read
	// them with mu held.
	cursor feed.Cursor // of the last batch that was written, or begun; see passLocked
	told   feed.Cursor // of the last message; earlier than cursor if the filter left out the changes since
	place  string      // in a baseline, the place behind the last part; empty: the client resumes from cursor
}

// A closeFrame is what a WebSocket is closed with. Of an event stream's end, it says why.
type closeFrame struct {
	code   int
	reason string
	err    error // of following; nil: that went on
}

// passLocked moves the cursor of a live connection past what its group has left out for its
// filter. The group does not touch the connections that want nothing of a change.
func (c *conn) passLocked() {
	if c.state != live || c.filter.IsZero() {
		return
	}
	if at := c.group.passed.Load(); at != nil && at.Position > c.cursor.Position {
		c.cursor = *at
	}
}

// detachLocked gives a live connection a goroutine of its own, which first writes
// pending, the rest of a frame.
func (c *conn) detachLocked(pending ...[]byte) {
	c.passLocked()
	c.state = catchingUp
	c.server.wg.Go(func() { c.follow(pending) })
}

// idleLocked reports whether c's own goroutine has nothing to do but wait for
// changes.
func (c *conn) idleLocked() bool {
	return c.state == catchingUp && !c.due && len(c.control) == 0
}

// releaseLocked hands an idle connection over to a group. The connection's own
// goroutine must not touch it any more.
func (c *conn) releaseLocked(g *group) {
	_ = c.nc.SetWriteDeadline(time.Time{}) // the deadline would hold for the group's writes, too
	c.state, c.group, c.interrupt = live, g, nil
}

// leaveLocked makes c's own goroutine write the rest of the frame that it has begun,
// then its end, and nothing else.
func (c *conn) leaveLocked(bye *closeFrame) {
	if c.state == live {
		c.detachLocked()
	} else { // a write that is under way gets no more time than the close frame
		_ = c.nc.SetWriteDeadline(time.Now().Add(lingering))
	}
	c.state, c.bye = leaving, bye
	c.interruptLocked()
}

// closeLocked ends all writing to c.
func (c *conn) closeLocked() {
	c.state = closed
	c.interruptLocked()
}

// interruptLocked ends the wait of c's own goroutine for changes, if it waits, so
// that it looks for other work.
func (c *conn) interruptLocked() {
	if c.interrupt != nil {
		c.interrupt()
	}
}

// goodbye closes c with a code and a text. The close frame has the cursor to resume
// from, and then the text. Only the first goodbye counts. It does not block.
func (c *conn) goodbye(code int, text string) {
	c.leave(closeReason(code), &closeFrame{code: code, reason: text})
}

// fail is goodbye after an error of following.
func (c *conn) fail(err error) {
	code, text := closeCode(err)
	c.leave(closeReason(code), &closeFrame{code, text, err})
}

// leave is goodbye, with what the metrics count as the reason.
func (c *conn) leave(why reason, bye *closeFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == leaving || c.state == closed {
		return
	}
	if c.why == byClient { // byClient also stands while the reason is not known
		c.why = why
	}
	c.leaveLocked(bye)
}

// because notes why c is closed without a goodbye. If there was a goodbye, its reason
// stays.
func (c *conn) because(why reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bye == nil {
		c.why = why
	}
}

// deliver writes to c, for its group, the chunk that pick chooses. It adds what it wrote to
// t, and reports whether c stays in the group.
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
	ch := pick(c.told)
	offset, ok := ch.from(c.cursor)
	if !ok { // c's cursor is inside a batch, or of another history: c's own goroutine asks the memory
		c.detachLocked()
		return false
	}
	n, err := w.write(c.raw, ch.buf[offset:])
	if err != nil {
		c.closeLocked()
		c.cut() // c's reader notices, and ends c
		return false
	}
	ch.tally(t, offset, offset+n)
	if offset+n < len(ch.buf) {
		var rest [][]byte
		if n > 0 {
			c.cursor, rest = ch.cut(offset + n)
			c.told = c.cursor
		}
		c.detachLocked(rest...)
		return false
	}
	c.cursor, c.told = end, end
	return true
}

// maxControl bounds the control frames that wait. A client that pings without
// reading the answers gets no more of them.
const maxControl = 4096

// pong writes the answer to a ping now, or leaves it to c's own goroutine.
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

// writeLiveLocked writes whole frames to a live connection.
func (c *conn) writeLiveLocked(w *directWriter, frames []byte) error {
	n, err := w.write(c.raw, frames)
	if err == nil && n < len(frames) {
		c.detachLocked(append([]byte(nil), frames[n:]...))
	}
	return err
}

// end closes c and takes it out of its group and out of the server. Only c's reader
// calls it, once.
func (c *conn) end() {
	s := c.server
	c.mu.Lock()
	c.closeLocked()
	g, why := c.group, c.why
	c.mu.Unlock()
	c.cut()
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
