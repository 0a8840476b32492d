package subscribe

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/changelog"
)

// maxMessage bounds what a client may send in one message. It has nothing to say.
const maxMessage = 4096

// serveWebSocket follows over a WebSocket. It returns as soon as that is
// connected, so that net/http's buffers are free.
func (s *Server) serveWebSocket(w http.ResponseWriter, r *http.Request, set string) error {
	q := r.URL.Query()
	filter, err := changelog.ParseFilter(q)
	if err != nil {
		return err
	}
	if asked := websocket.Subprotocols(r); len(asked) > 0 && !slices.Contains(asked, protocolJSON) && !slices.Contains(asked, protocolXML) {
		return changelog.Invalid("subprotocol %.40q: it is %s or %s, or none", asked[0], protocolJSON, protocolXML)
	}
	begin, err := s.begin.Find(r.Context(), set, q.Get("since"))
	gone := errors.Is(err, changelog.ErrGone)
	if err != nil && !gone {
		return err
	}
	if gone { // a browser cannot read the status of a handshake
		begin = &changelog.Batch{Set: set}
	}
	c := &conn{server: s, filter: filter, index: -1, cursor: begin.Cursor, told: begin.Cursor}
	hijacker := &wireHijacker{ResponseWriter: w, conn: c}
	ws, err := s.upgrader.Upgrade(hijacker, r, nil)
	if err != nil {
		return nil // Upgrade has answered
	}
	ws.SetReadLimit(maxMessage)
	c.key = groupKey{set: set, protocol: ws.Subprotocol(), filter: filter.Key()}
	if c.key.protocol == "" {
		c.key.protocol = protocolJSON
	}
	c.hear()
	c.control = appendFrame(nil, websocket.TextMessage, message(c.key.protocol, begin))
	if gone {
		c.goodbye(closeGone, goneReason)
	}
	if !s.register(c, ws) {
		c.goodbye(websocket.CloseGoingAway, stopping)
		c.leave()
		_ = c.nc.Close()
	}
	return nil
}

// register takes c in, in a slot of the wheel and a shard, and begins to write
// to it and to read from it. It reports whether the server takes connections.
func (s *Server) register(c *conn, ws *websocket.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.next++
	c.key.shard = s.next % runtime.GOMAXPROCS(0)
	c.slot = s.next % wheelSlots
	s.wheel[c.slot][c] = struct{}{}
	s.wg.Go(func() { c.follow(nil) })
	s.wg.Go(func() { c.read(ws) })
	return true
}

// read reads until the client is gone: its answers to pings, and its close. It
// ends the connection.
func (c *conn) read(ws *websocket.Conn) {
	ws.SetPongHandler(func(string) error {
		c.hear()
		return nil
	})
	for {
		if _, _, err := ws.NextReader(); err != nil {
			break
		}
		c.hear()
		c.goodbye(websocket.ClosePolicyViolation, "changes are published with POST, not here")
	}
	// What gorilla does not like, it has said goodbye to. To close with something
	// unread would reset the connection, and the client would miss why.
	c.goodbye(websocket.CloseProtocolError, "")
	_, _ = io.Copy(io.Discard, c.nc)
	c.end()
}

// end takes c out of everything.
func (c *conn) end() {
	s := c.server
	c.mu.Lock()
	c.live, c.closed = false, true
	g, why := c.group, c.why
	c.wake()
	c.mu.Unlock()
	_ = c.nc.Close()
	if g != nil {
		g.mu.Lock()
		g.remove(c)
		g.mu.Unlock()
	}
	s.mu.Lock()
	delete(s.wheel[c.slot], c)
	s.mu.Unlock()
	s.metrics.closed[byWebSocket][why].Inc()
}

// wheelSlots is into how many parts a heartbeat is divided: one timer for all
// connections, and no burst of pings.
const wheelSlots = 32

// Run sends heartbeats until ctx is done.
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

// A wireHijacker gives gorilla/websocket a connection whose writes, once the
// handshake is through, go through the conn: what gorilla sends by itself,
// answers to pings and closes, must not fall into the middle of a frame.
type wireHijacker struct {
	http.ResponseWriter
	conn *conn
}

func (h *wireHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	nc, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.conn.nc = nc
	if sc, ok := nc.(syscall.Conn); ok { // else each write goes by a goroutine
		h.conn.raw, _ = sc.SyscallConn()
	}
	return &wire{Conn: nc, conn: h.conn}, rw, nil
}

type wire struct {
	net.Conn
	conn   *conn
	shaken bool // the answer to the handshake, the first write, is through
}

func (w *wire) Write(p []byte) (int, error) {
	if !w.shaken {
		w.shaken = true
		return w.Conn.Write(p)
	}
	var err error
	if p[0]&0xf == websocket.CloseMessage { // two bytes of header, two of code, the reason
		code := websocket.CloseNoStatusReceived
		if len(p) >= 4 {
			code = int(binary.BigEndian.Uint16(p[2:]))
		}
		w.conn.part(byClient, code, string(p[min(len(p), 4):])) // the code may be the client's own
	} else {
		err = w.conn.pong(p)
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// SetWriteDeadline does nothing: writes do not block, and a deadline would hold
// for those of the group.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
