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
	var scratch chunk
	err := c.finish(pending...)
	for err == nil {
		if err = c.between(); err != nil {
			break
		}
		if s.join(c) {
			return
		}
		ctx, cancel := c.waiting()
		for batches, ferr := range s.follower.Follow(ctx, c.key.set, c.cursor) {
			if ferr != nil {
				s.logFailure(c.key.set, ferr)
				c.goodbye(closeCode(ferr))
				break
			}
			if err = c.send(&scratch, batches); err != nil {
				break
			}
			if s.join(c) {
				cancel()
				return
			}
		}
		cancel()
	}
	if errors.Is(err, errTooSlow) {
		c.goodbye(closeTooSlow, "too slow: the connection took nothing for too long")
		err = errBye
	}
	if errors.Is(err, errBye) {
		c.leave()
	} else {
		_ = c.nc.Close() // its reader notices
	}
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

// send writes batches, and waits for the socket to take them.
func (c *conn) send(scratch *chunk, batches []*changelog.Batch) (err error) {
	if c.filter.IsZero() {
		chunks(scratch, c.key.protocol, batches, func(ch *chunk) bool {
			err = c.write(ch)
			return err == nil
		})
		return err
	}
	for _, b := range batches {
		told := c.told
		if b.Diverged {
			told = b.After
		}
		passed := c.filter.Apply(b)
		if len(passed.Entries) == 0 && !b.Diverged {
			c.moveTo(b.Cursor, told)
			continue
		}
		scratch.reset(b.After)
		scratch.add(message(c.key.protocol, retold(passed, told)), b)
		if err := c.write(scratch); err != nil {
			return err
		}
	}
	return c.between()
}

// write writes a chunk, and what waits to be written at its end.
func (c *conn) write(ch *chunk) error {
	n, err := c.push(ch.buf)
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
