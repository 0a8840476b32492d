package subscribe

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/changelog"
)

// What a WebSocket is closed with, besides the codes of RFC 6455. The reason
// begins with the cursor to resume from.
const (
	closeTooSlow = 4408
	closeGone    = 4410 // without a cursor

	goneReason = "gone from the change memory: read the resources of the source anew, then follow from start"
)

// A conn is a WebSocket that follows a set. It is in one of these states:
//
//   - live: its group writes to it, and whoever else holds mu. A socket that is
//     full, or something to say that takes more than a moment, makes it
//   - on its own (detach): a goroutine, catchup.go's follow, owns its output and
//     catches up. It ends by joining the group (release: live again), or by
//   - leaving, once bye is set: the close frame is written and the client's
//     awaited, until
//   - closed: its reader has ended, which every path leads to.
//
// Locks are taken in the order Server.mu, group.mu, conn.mu.
type conn struct {
	server *Server
	key    groupKey
	filter changelog.Filter
	nc     net.Conn
	raw    syscall.RawConn // nil: it cannot be written to without waiting
	slot   int             // in the wheel
	heard  atomic.Int64    // when the client last gave a sign of life, in nanoseconds of the server's age
	index  int             // in group.conns, guarded by group.mu; -1: not in it

	mu        sync.Mutex
	live      bool
	closed    bool               // nothing can be written any more
	group     *group             // that it was in last
	cursor    changelog.Cursor   // behind what was written or begun; only the own goroutine moves it while there is one
	told      changelog.Cursor   // the cursor of the last message; earlier when a filter left out what came since
	control   []byte             // frames that the own goroutine has to write between others
	due       bool               // so is a heartbeat
	bye       *closing           // c is to be closed; nothing but a close frame follows
	why       reason             // c is closed, as far as is known
	interrupt context.CancelFunc // ends the own goroutine's waiting
}

// closing is what a connection is closed with.
type closing struct {
	code   int
	reason string
}

// deliver writes what pick chooses, as its group. It reports whether c stays in
// the group, and adds to t what it wrote.
func (c *conn) deliver(w *directWriter, t *tally, end changelog.Cursor, diverged bool, pick func(told changelog.Cursor) *chunk) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.live {
		return false
	}
	if !diverged && (c.cursor == end || c.cursor.Position > end.Position) {
		return true // it came to the group with more than the group had
	}
	ch := pick(c.told)
	if ch == nil {
		c.cursor = end
		return true
	}
	offset, ok := ch.from(c.cursor)
	if !ok { // it is in the middle of a batch, or of another history: its own following finds out
		c.detach()
		return false
	}
	n, err := w.write(c.raw, ch.buf[offset:])
	if err != nil {
		c.live, c.closed = false, true
		_ = c.nc.Close() // its reader notices
		return false
	}
	ch.tally(t, offset, offset+n)
	if offset+n < len(ch.buf) {
		var head, rest []byte
		if n > 0 {
			c.cursor, head, rest = ch.cut(offset + n)
			c.told = c.cursor
		}
		c.detach(head, rest)
		return false
	}
	c.cursor, c.told = end, end
	return true
}

// detach gives c a goroutine of its own, which first writes pending, the rest
// of a frame. mu is held.
func (c *conn) detach(pending ...[]byte) {
	c.live = false
	c.server.wg.Go(func() { c.follow(pending) })
}

// release makes c live in a group, unless there is something to write first.
func (c *conn) release(g *group) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.bye != nil || c.due || len(c.control) > 0 {
		return false
	}
	_ = c.nc.SetWriteDeadline(time.Time{}) // it would hold for the group's writes too
	c.live, c.group, c.interrupt = true, g, nil
	return true
}

// wake makes the own goroutine look at what there is to do. mu is held.
func (c *conn) wake() {
	switch {
	case c.live:
		c.detach()
	case c.interrupt != nil:
		c.interrupt()
	}
}

// goodbye has c closed with a code, and a reason behind the cursor to resume
// from. The first one counts. It does not block.
func (c *conn) goodbye(code int, text string) { c.part(closeReason(code), code, text) }

// part is goodbye for another reason than the code's.
func (c *conn) part(why reason, code int, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.bye != nil {
		return
	}
	c.bye = &closing{code, text}
	if c.why == byClient { // else it was closed already
		c.why = why
	}
	if !c.live { // a write that is under way gets no more time than the close frame
		_ = c.nc.SetWriteDeadline(time.Now().Add(lingering))
	}
	c.wake()
}

// because notes why c is closed without a goodbye, unless there was one.
func (c *conn) because(why reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bye == nil {
		c.why = why
	}
}

// maxControl bounds the control frames that wait: a client that pings without
// reading the answers gets no more of them.
const maxControl = 4096

// pong writes the answer to a ping, now or when the own goroutine gets to it.
func (c *conn) pong(frame []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed || c.bye != nil:
		return net.ErrClosed
	case c.live:
		return c.writeLive(&directWriter{}, frame)
	case len(c.control)+len(frame) <= maxControl:
		c.control = append(c.control, frame...)
		c.wake()
	}
	return nil
}

// writeLive writes whole frames to a live connection. mu is held.
func (c *conn) writeLive(w *directWriter, frames []byte) error {
	n, err := w.write(c.raw, frames)
	if err == nil && n < len(frames) {
		c.detach(append([]byte(nil), frames[n:]...))
	}
	return err
}

// heartbeat pings the client, and tells it the cursor if a filter moved that
// silently. A client that has given no sign of life for too long is given up.
func (c *conn) heartbeat(w *directWriter, patience time.Duration) {
	if c.server.age()-time.Duration(c.heard.Load()) > patience {
		c.because(silent)
		_ = c.nc.Close() // its reader notices
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed || c.bye != nil:
	case !c.live:
		c.due = true
		c.wake()
	default:
		if err := c.writeLive(w, c.beat()); err != nil {
			_ = c.nc.Close()
		}
	}
}

// beat returns the frames of a heartbeat. mu is held.
func (c *conn) beat() (frames []byte) {
	if c.cursor != c.told {
		b := &changelog.Batch{Set: c.key.set, After: c.told, Cursor: c.cursor}
		frames = appendFrame(frames, websocket.TextMessage, message(c.key.protocol, b))
		c.told = c.cursor
	}
	return appendFrame(frames, websocket.PingMessage, nil)
}

// hear notes a sign of life.
func (c *conn) hear() { c.heard.Store(int64(c.server.age())) }
