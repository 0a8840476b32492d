package subscribe

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
)

// lingering is the time limit for writing the close frame of a leaving connection, and then for
// receiving the client's close frame.
const lingering = 2 * time.Second

// Reasons why the output goroutine stops catching up.
var (
	errTooSlow = errors.New("too slow")
	errStuck   = errors.New("too slow in the middle of a frame") // a close frame must not follow, so the client cannot be notified
	errLeaving = errors.New("leaving")
)

// follow is the output goroutine of c. It writes to c until c is released to its group, or
// leaves. No other goroutine writes to c in that time.
func (c *conn) follow(pending [][]byte) {
	s := c.server
	var next chunk
	err := c.finish(pending...)
	if c.baseline != nil {
		err = c.sendBaseline(err)
	}
	for all := true; err == nil; {
		if err = c.between(); err != nil {
			break
		}
		if all && s.join(c) {
			return
		}
		if all = c.catchUp(&next); len(next.frames) > 0 {
			err = c.write(&next)
		}
	}
	if errors.Is(err, errTooSlow) && c.key.kind() == byWebSocket {
		c.goodbye(closeTooSlow, "too slow: the client accepted no data for too long")
		err = errLeaving
	}
	switch {
	case errors.Is(err, errLeaving):
		c.writeClose()
		return
	case errors.Is(err, errTooSlow), errors.Is(err, errStuck):
		c.setReason(tooSlow)
	}
	c.closeSocket() // the reader notices, and ends c
}

// catchUp waits for changes after c's cursor, or for other work. It puts the first chunk of the
// changes into next, and reports whether these were all changes. It retains no batch, because
// writing may take long and batches are large.
func (c *conn) catchUp(next *chunk) (all bool) {
	next.reset(c.cursor)
	ctx, cancel := c.waiting()
	defer cancel()
	for batches, err := range c.server.follower.Follow(ctx, c.key.set, c.cursor) {
		if err != nil {
			c.server.logFailure(c.key.set, err)
			c.fail(err)
			break
		}
		return c.fillChunk(next, batches) == len(batches)
	}
	return true
}

// fillChunk adds batches to a chunk as long as they fit, and returns the number of batches added. If
// the filter leaves out a whole batch, fillChunk moves the cursor past it.
func (c *conn) fillChunk(next *chunk, batches []*feed.Batch) int {
	for i, b := range batches {
		told := c.lastSent
		if b.Diverged {
			told = b.After
		}
		if !c.filter.IsZero() {
			passed := c.filter.Apply(b)
			if len(passed.Entries) == 0 && !b.Diverged {
				c.moveTo(b.Cursor, told)
				continue
			}
			next.reset(b.After)
			passed.After = told // passed is not shared
			next.addCopy(c.key.wire, passed.Encode(c.key.format), passed)
			return i + 1 // the next message starts where this one ends
		}
		body := b.Encode(c.key.format)
		if next.full(len(body)) {
			return i
		}
		if len(next.frames) == 0 {
			next.reset(b.After) // the first batch of a new set does not start at 0-0
		}
		next.addCopy(c.key.wire, body, b)
	}
	return len(batches)
}

// waiting returns the context for a wait for changes. It is canceled when there is other work.
func (c *conn) waiting() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.server.ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupt = cancel
	if !c.idleLocked() {
		cancel()
	}
	return ctx, cancel
}

// write writes a chunk, and then pending control frames.
func (c *conn) write(ch *chunk) error {
	n, err := push(c, c.nc, c.server.opts.WriteTimeout, ch.buf)
	var t tally
	ch.tally(&t, 0, n)
	c.server.count(c.key.kind(), c.key.set, &t)
	switch {
	case err == nil:
		c.moveTo(ch.end(), ch.end())
		return c.between()
	case !errors.Is(err, errTooSlow) || n == 0:
		return err
	}
	cursor, rest := ch.split(n)
	c.moveTo(cursor, cursor)
	if err := c.finish(rest...); err != nil {
		return err
	}
	return errTooSlow
}

func (c *conn) moveTo(cursor, told feed.Cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cursor, c.lastSent = cursor, told
}

// A writer writes to a connection whose client may be slow.
type writer interface {
	// setDeadline sets the deadline of the next write to d from now. It reports whether the
	// deadline is final, because the connection is leaving; it may then be earlier.
	setDeadline(d time.Duration) (last bool)
	// noteActivity notes that the client has accepted data.
	noteActivity()
}

// finish writes the rest of a frame to nc. A client that is too slow gets the same time once more,
// because it can be notified only at the end of a frame. The error is then errTooSlow, or
// errStuck if that time was not enough.
func finish(w writer, nc net.Conn, timeout time.Duration, parts ...[]byte) (slow error) {
	for _, p := range parts {
		n, err := push(w, nc, timeout, p)
		if errors.Is(err, errTooSlow) && slow == nil {
			slow = err
			_, err = push(w, nc, timeout, p[n:])
		}
		if errors.Is(err, errTooSlow) {
			return errStuck
		}
		if err != nil {
			return err
		}
	}
	return slow
}

// push writes p to nc. A client that accepts nothing for the timeout is too slow. The kernel
// wakes a writer only when a third of its buffer is free, so push retries after half of the
// timeout. On a fragile connection a write cannot be retried, so each write is short and has
// the whole timeout.
func push(w writer, nc net.Conn, timeout time.Duration, p []byte) (n int, err error) {
	fragile := isFragile(nc)
	if !fragile {
		timeout /= 2
	}
	for idle := 0; n < len(p); {
		last := w.setDeadline(timeout)
		piece := p[n:]
		if fragile {
			piece = piece[:min(len(piece), pieceSize)]
		}
		m, err := nc.Write(piece)
		n += m
		switch {
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return n, err
		case m > 0:
			idle = 0
			w.noteActivity()
		default:
			idle++
		}
		if err != nil && (last || fragile || idle == 2) {
			return n, errTooSlow
		}
	}
	return n, nil
}

func (c *conn) finish(parts ...[]byte) error {
	return finish(c, c.nc, c.server.opts.WriteTimeout, parts...)
}

// setDeadline implements writer.
func (c *conn) setDeadline(d time.Duration) (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last = c.state == leaving; last {
		d = lingering
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(d))
	return last
}

// between runs between two frames and writes pending control frames. After an error, no more
// changes may be written.
func (c *conn) between() error {
	for {
		if c.server.ctx.Err() != nil {
			c.goodbye(websocket.CloseGoingAway, stopping)
		}
		c.mu.Lock()
		now, control := c.state, c.control
		if c.due && now == catchingUp {
			control = append(control, c.beatLocked()...)
		}
		c.control, c.due = nil, false
		c.mu.Unlock()
		switch {
		case now == closed:
			return net.ErrClosed
		case now == leaving:
			return errLeaving
		case len(control) == 0:
			return nil
		}
		if err := c.finish(control); err != nil {
			return err
		}
	}
}

// writeClose writes the close frame of a leaving WebSocket, or the end of an event stream. The
// reader then waits for the client to answer or to close, for as long as lingering.
func (c *conn) writeClose() {
	c.mu.Lock()
	if c.state == closed { // closed by the reader
		c.mu.Unlock()
		return
	}
	last := c.key.end(c.bye, cmp.Or(c.resumeFrom, c.cursor.String()))
	c.closeLocked()
	c.mu.Unlock()
	writeLast(c.nc, last)
}

// writeLast writes the last bytes of a connection, and ends its writing side. After an error it closes
// the socket.
func writeLast(nc net.Conn, last []byte) {
	_ = nc.SetDeadline(time.Now().Add(lingering))
	if _, err := nc.Write(last); err != nil {
		closeSocket(nc)
		return
	}
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
