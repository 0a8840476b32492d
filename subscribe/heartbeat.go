package subscribe

import (
	"context"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
)

// wheelSlots is the number of parts into which the time between heartbeats is
// divided. In each part the connections of one slot get their pings. So one timer
// serves all connections, and the pings do not come in one burst.
const wheelSlots = 32

// Run sends heartbeats to all WebSockets until ctx is done. Then it returns nil.
func (s *Server) Run(ctx context.Context) error {
	tick := time.NewTicker(max(s.opts.Heartbeat/wheelSlots, time.Millisecond))
	defer tick.Stop()
	var w directWriter
	var conns []*conn
	for i := 0; ; i = (i + 1) % wheelSlots {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
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

// heartbeat pings the client. If the filter has moved the cursor without a message,
// heartbeat tells the client the cursor, too. It closes a connection whose client has
// given no sign of life for longer than patience.
func (c *conn) heartbeat(w *directWriter, patience time.Duration) {
	if c.server.age()-time.Duration(c.heard.Load()) > patience {
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

// beatLocked returns the frames of a heartbeat.
func (c *conn) beatLocked() (frames []byte) {
	c.passLocked()
	if c.cursor != c.told {
		b := &feed.Batch{Set: c.key.set, After: c.told, Cursor: c.cursor}
		frames = appendMessage(frames, c.key.format, b.In(c.key.format))
		c.told = c.cursor
	}
	return appendFrame(frames, websocket.PingMessage, nil)
}

// hear notes a sign of life.
func (c *conn) hear() { c.heard.Store(int64(c.server.age())) }

// age returns the time since New. Setting the system's clock does not change it.
func (s *Server) age() time.Duration { return time.Since(s.begun) }
