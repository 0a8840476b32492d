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

// lingering is how long a leaving connection may take to write its close frame, and
// then how long it waits for the client's close frame.
const lingering = 2 * time.Second

// Why a connection's own goroutine stops catching up.
var (
	errTooSlow = errors.New("too slow")
	errStuck   = errors.New("too slow in the middle of a frame") // no close frame may follow, so the client cannot be told
	errLeaving = errors.New("leaving")
)

// follow writes to c until c is released to its group, or leaves. It runs as c's own
// goroutine. Nobody else writes to c meanwhile.
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
		c.goodbye(closeTooSlow, "too slow: the connection took nothing for too long")
		err = errLeaving
	}
	switch {
	case errors.Is(err, errLeaving):
		c.writeClose()
		return
	case errors.Is(err, errTooSlow), errors.Is(err, errStuck):
		c.because(tooSlow)
	}
	c.cut() // c's reader notices, and ends c
}

// catchUp waits until there are changes after c's cursor, or something else to do. It
// puts the first chunk of the changes into next, and reports whether that was all of
// them. It keeps no batch, because writing may take long and batches are large.
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
		return c.take(next, batches) == len(batches)
	}
	return true
}

// take puts batches into a chunk as long as they fit, and returns how many it took.
// If the filter leaves out a whole batch, take moves the cursor past it.
func (c *conn) take(next *chunk, batches []*feed.Batch) int {
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
			passed.After = told // Apply has made passed for c alone
			next.addCopy(c.key.wire, passed.Encode(c.key.format), passed)
			return i + 1 // the next message begins where this one ends
		}
		body := b.Encode(c.key.format)
		if next.full(len(body)) {
			return i
		}
		if len(next.frames) == 0 {
			next.reset(b.After) // the first batch of a set that was just made does not begin at 0-0
		}
		next.addCopy(c.key.wire, body, b)
	}
	return len(batches)
}

// waiting returns the context for a wait for changes. The context is done as soon as
// there is something else to do.
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

// write writes a chunk, and then the frames that other goroutines have left for c.
func (c *conn) write(ch *chunk) error {
	n, err := c.push(ch.buf)
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
	cursor, rest := ch.cut(n)
	c.moveTo(cursor, cursor)
	if err := c.finish(rest...); err != nil {
		return err
	}
	return errTooSlow
}

func (c *conn) moveTo(cursor, told feed.Cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cursor, c.told = cursor, told
}

// finish writes the rest of a frame. A client that is too slow for it gets the same
// time once more, because it can be told only at the end of a frame. The error is then
// errTooSlow, or errStuck if that was not enough.
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
// timeout is too slow. The kernel wakes a writer only when a third of its buffer
// is free, so push tries again at half of the timeout. Over a fragile connection nothing can
// be tried again, so there each write is short, and has all of the timeout.
func (c *conn) push(p []byte) (n int, err error) {
	fragile := c.fragile()
	for idle := 0; n < len(p); {
		last := c.setDeadline(fragile)
		piece := p[n:]
		if fragile {
			piece = piece[:min(len(piece), pieceSize)]
		}
		m, err := c.nc.Write(piece)
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
		if err != nil && (last || fragile || idle == 2) {
			return n, errTooSlow
		}
	}
	return n, nil
}

// setDeadline sets the deadline of the next write. It reports whether this is the
// last deadline, because c is leaving.
func (c *conn) setDeadline(fragile bool) (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.server.opts.WriteTimeout
	if !fragile {
		d /= 2
	}
	last = c.state == leaving
	if last {
		d = lingering
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(d))
	return last
}

// between runs between two frames. It writes the frames that other goroutines have
// left for c. An error means that no more changes may be written.
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

// writeClose writes the close frame of a leaving WebSocket, or the end of an event stream.
// The client then has a moment to answer, or to close. c's reader waits for that.
func (c *conn) writeClose() {
	c.mu.Lock()
	if c.state == closed { // c's reader has closed it
		c.mu.Unlock()
		return
	}
	last := c.key.end(c.bye, cmp.Or(c.place, c.cursor.String()))
	c.closeLocked()
	c.mu.Unlock()
	_ = c.nc.SetDeadline(time.Now().Add(lingering))
	if _, err := c.nc.Write(last); err != nil {
		c.cut()
		return
	}
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
