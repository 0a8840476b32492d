package subscribe

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/changelog"
)

// lingering is how long a connection that is being closed has for its close
// frame, and then for the client's own.
const lingering = 2 * time.Second

// Why the own goroutine of a connection ends.
var (
	errTooSlow = errors.New("too slow")
	errStuck   = errors.New("too slow in the middle of a frame") // so it cannot be told
	errBye     = errors.New("to be closed")
)

// follow writes to c until it can go to its group, or has to be closed. It runs
// in the goroutine that owns c's output.
func (c *conn) follow(pending [][]byte) {
	s := c.server
	var next chunk
	err := c.finish(pending...)
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
	if errors.Is(err, errTooSlow) {
		c.goodbye(closeTooSlow, "too slow: the connection took nothing for too long")
		err = errBye
	}
	switch {
	case errors.Is(err, errBye):
		c.leave()
		return
	case errors.Is(err, errStuck):
		c.because(tooSlow)
	}
	_ = c.nc.Close() // its reader notices
}

// catchUp waits for what follows c's cursor, or for something else to do. It
// puts the first chunk of it into next, and reports whether there was no more.
// Then it has let go of the batches: writing may take long, and they are large.
func (c *conn) catchUp(next *chunk) (all bool) {
	next.reset(c.cursor)
	ctx, cancel := c.waiting()
	defer cancel()
	for batches, err := range c.server.follower.Follow(ctx, c.key.set, c.cursor) {
		if err != nil {
			c.server.logFailure(c.key.set, err)
			c.goodbye(closeCode(err))
			break
		}
		return c.take(next, batches) == len(batches)
	}
	return true
}

// take puts batches into a chunk as long as they fit in, and returns how many
// it took. What a filter leaves out moves the cursor.
func (c *conn) take(next *chunk, batches []*changelog.Batch) int {
	for i, b := range batches {
		told := c.told
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
			passed = retold(passed, told)
			next.addCopy(message(c.key.protocol, passed), passed)
			return i + 1 // the next message begins where this one ends
		}
		body := message(c.key.protocol, b)
		if next.full(len(body)) {
			return i
		}
		if len(next.frames) == 0 {
			next.reset(b.After) // a set that was not made has another beginning than 0-0
		}
		next.addCopy(body, b)
	}
	return len(batches)
}

// waiting returns the context to follow with. It is done as soon as there is
// something else to do.
func (c *conn) waiting() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.server.ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupt = cancel
	if c.closed || c.bye != nil || c.due || len(c.control) > 0 {
		cancel()
	}
	return ctx, cancel
}

// write writes a chunk, and what waits to be written at its end.
func (c *conn) write(ch *chunk) error {
	n, err := c.push(ch.buf)
	var t tally
	ch.tally(&t, 0, n)
	c.server.metrics.delivered[byWebSocket].count(&t)
	switch {
	case err == nil:
		c.moveTo(ch.end(), ch.end())
		return c.between()
	case !errors.Is(err, errTooSlow) || n == 0:
		return err
	}
	cursor, head, rest := ch.cut(n)
	c.moveTo(cursor, cursor)
	if err := c.finish(head, rest); err != nil {
		return err
	}
	return errTooSlow
}

func (c *conn) moveTo(cursor, told changelog.Cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cursor, c.told = cursor, told
}

// finish writes the rest of a frame. A client that is too slow for it has as
// long again, so that it can be told.
func (c *conn) finish(parts ...[]byte) (slow error) {
	for _, p := range parts {
		n, err := c.push(p)
		if errors.Is(err, errTooSlow) && slow == nil {
			slow = err
			_, err = c.push(p[n:])
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

// push writes p. A client may be slow, but one that takes nothing for the write
// timeout is too slow. The kernel wakes a writer only when a third of its
// buffer is free, so push looks at half-time whether there is room.
func (c *conn) push(p []byte) (n int, err error) {
	for idle := 0; n < len(p); {
		last := c.setDeadline()
		m, err := c.nc.Write(p[n:])
		n += m
		switch {
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return n, err
		case m > 0:
			idle = 0
			c.hear()
		default:
			idle++
		}
		if err != nil && (last || idle == 2) {
			return n, errTooSlow
		}
	}
	return n, nil
}

// setDeadline sets the deadline of the next write, and reports whether it is
// the last, because c is to be closed.
func (c *conn) setDeadline() (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.server.opts.WriteTimeout / 2
	if c.bye != nil {
		d = lingering
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(d))
	return c.bye != nil
}

// between writes the control frames that wait, at the end of a frame. Its error
// says that nothing more is to be written.
func (c *conn) between() error {
	for {
		if c.server.ctx.Err() != nil {
			c.goodbye(websocket.CloseGoingAway, stopping)
		}
		c.mu.Lock()
		control, closed, bye := c.control, c.closed, c.bye
		if c.due && !closed && bye == nil {
			control = append(control, c.beat()...)
		}
		c.control, c.due = nil, false
		c.mu.Unlock()
		switch {
		case closed:
			return net.ErrClosed
		case bye != nil:
			return errBye
		case len(control) == 0:
			return nil
		}
		if err := c.finish(control); err != nil {
			return err
		}
	}
}

// leave writes the close frame and gives the client a moment to answer, in
// which its reader goes on.
func (c *conn) leave() {
	c.mu.Lock()
	if c.closed { // by its reader
		c.mu.Unlock()
		return
	}
	text := c.bye.reason
	if c.bye.code != closeGone {
		text = strings.TrimSpace(c.cursor.String() + " " + text)
	}
	frame := appendFrame(nil, websocket.CloseMessage, websocket.FormatCloseMessage(c.bye.code, text[:min(len(text), 123)]))
	c.closed = true
	c.mu.Unlock()
	_ = c.nc.SetDeadline(time.Now().Add(lingering))
	if _, err := c.nc.Write(frame); err != nil {
		_ = c.nc.Close()
		return
	}
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
