package subscribe

import (
	"context"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
)

// wheelSlots is the number of slots of a heartbeat interval. In each slot some of the connections
// get their heartbeats, so one timer serves all connections without bursts.
const wheelSlots = 32

// Run sends heartbeats to all connections until ctx is done.
func (s *Server) Run(ctx context.Context) {
	tick := time.NewTicker(max(s.opts.Heartbeat/wheelSlots, time.Millisecond))
	defer tick.Stop()
	var w directWriter
	var conns []connection
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

// heartbeat sends a heartbeat, over a WebSocket a ping. If the filter moved the cursor without a
// message, it sends the cursor, too. It closes a WebSocket whose client has been silent for
// longer than patience.
func (c *conn) heartbeat(w *directWriter, patience time.Duration) {
	if c.key.kind() == byWebSocket && c.server.uptime()-time.Duration(c.lastActive.Load()) > patience {
		c.setReason(silent)
		c.closeSocket() // the reader notices, and ends c
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
			c.closeSocket() // the reader notices, and ends c
		}
	}
}

// beatLocked returns the frames of a heartbeat. In an event stream it is a comment, unless
// there is a cursor to tell. No empty line follows the comment, because some clients take it
// for the end of an event.
func (c *conn) beatLocked() (frames []byte) {
	c.passLocked()
	moved := c.cursor != c.lastSent
	if moved {
		b := &feed.Batch{Set: c.key.set, After: c.lastSent, Cursor: c.cursor}
		frames = c.key.append(frames, b.Encode(c.key.format))
		c.lastSent = c.cursor
	}
	switch {
	case c.key.kind() == byWebSocket:
		frames = appendFrame(frames, websocket.PingMessage, nil)
	case !moved:
		frames = c.key.append(frames, []byte(":\n"))
	}
	return frames
}

// noteActivity records a sign of life of the client.
func (c *conn) noteActivity() { c.lastActive.Store(int64(c.server.uptime())) }

// uptime returns the time since New. Setting the system's clock does not change it.
func (s *Server) uptime() time.Duration { return time.Since(s.created) }
