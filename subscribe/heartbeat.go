package subscribe

import (
	"context"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
)

// wheelSlots is the number of parts into which the time between heartbeats is
// divided. In each part the connections of one slot get their heartbeats. So one timer
// serves all connections, and the heartbeats do not come in one burst.
const wheelSlots = 32

// Run sends heartbeats to all connections until ctx is done.
func (s *Server) Run(ctx context.Context) {
	tick := time.NewTicker(max(s.opts.Heartbeat/wheelSlots, time.Millisecond))
	defer tick.Stop()
	var w directWriter
	var conns []*conn
	for i := 0; ; i = (i + 1) % wheelSlots {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		conns = conns[:0]
		for c := range s.wheel[i] {
			conns = append(conns, c)
		}
		s.mu.Unlock()
		for _, c := range conns {
			c.heartbeat(&w, s.opts.Heartbeat*5/2)
		}
		clear(conns)
	}
}

// heartbeat sends a sign of life, which is a ping over a WebSocket. If the filter has moved
// the cursor without a message, heartbeat tells the client the cursor, too. It closes a
// WebSocket whose client has given no sign of life for longer than patience.
func (c *conn) heartbeat(w *directWriter, patience time.Duration) {
	if c.key.kind() == byWebSocket && c.server.age()-time.Duration(c.heard.Load()) > patience {
		c.because(silent)
		c.cut() // c's reader notices, and ends c
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state {
	case catchingUp:
		c.due = true
		c.interruptLocked()
	case live:
		if err := c.writeLiveLocked(w, c.beatLocked()); err != nil {
			c.cut() // c's reader notices, and ends c
		}
	}
}

// beatLocked returns the frames of a heartbeat. In an event stream it is a comment, unless
// there is a cursor to tell. No empty line follows the comment, because some clients take it
// for the end of an event.
func (c *conn) beatLocked() (frames []byte) {
	c.passLocked()
	moved := c.cursor != c.told
	if moved {
		b := &feed.Batch{Set: c.key.set, After: c.told, Cursor: c.cursor}
		frames = c.key.append(frames, b.Encode(c.key.format))
		c.told = c.cursor
	}
	switch {
	case c.key.kind() == byWebSocket:
		frames = appendFrame(frames, websocket.PingMessage, nil)
	case !moved:
		frames = c.key.append(frames, []byte(":\n"))
	}
	return frames
}

// hear notes a sign of life.
func (c *conn) hear() { c.heard.Store(int64(c.server.age())) }

// age returns the time since New. Setting the system's clock does not change it.
func (s *Server) age() time.Duration { return time.Since(s.begun) }
