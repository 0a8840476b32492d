package subscribe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
)

// serveWebSocket serves a WebSocket. It returns as soon as the handshake is complete, so that
// net/http's buffers are freed.
func (s *Server) serveWebSocket(w http.ResponseWriter, r *http.Request, set string) error {
	if err := checkHandshake(r); err != nil {
		return err
	}
	joinLines(r.Header, "Sec-Websocket-Protocol") // gorilla reads only the first line
	q := r.URL.Query()
	if err := refuseResumption(q); err != nil {
		return err
	}
	filter, err := feed.ParseFilter(q)
	if err != nil {
		return err
	}
	format, err := s.messageFormat(r)
	if err != nil {
		return err
	}
	c := &conn{server: s, filter: filter, key: groupKey{set: set, wire: wire{format, webSocketFrames}}}
	if format.Single {
		c.key.framing = preframed
	}
	first, err := c.setStart(r.Context(), q.Get("since"))
	isGone := errors.Is(err, feed.ErrGone) // reported by a close frame, because a browser cannot read the status of a handshake
	if err != nil && !isGone {
		return err
	}
	var header http.Header
	if r.Header.Get("Sec-Websocket-Protocol") != "" {
		header = http.Header{"Sec-Websocket-Protocol": {format.Name}}
	}
	ws, err := s.upgrader.Upgrade(w, r, header)
	if err != nil {
		c.endBaseline()
		return nil // Upgrade has answered
	}
	c.nc = ws.NetConn() // gorilla/websocket is used only for the handshake
	if first != nil {
		c.control = c.key.append(nil, first.Encode(format))
	}
	if isGone {
		c.goodbye(closeGone, goneReason)
	}
	c.start(r.Context())
	return nil
}

// setStart moves c to the position since. It returns the batch of the first message, or nil if c
// starts with a baseline.
func (c *conn) setStart(ctx context.Context, since string) (first *feed.Batch, err error) {
	if isBaseline(since) {
		return nil, c.beginBaseline(ctx, since)
	}
	if first, err = c.server.startFinder.Find(ctx, c.key.set, since); err != nil {
		return nil, err
	}
	c.cursor, c.lastSent = first.Cursor, first.Cursor
	return first, nil
}

// start starts the goroutines of c. c.nc must be set. ctx is the context of the request.
func (c *conn) start(ctx context.Context) {
	s := c.server
	c.findSocket()
	c.noteActivity()
	leave := s.follower.Retain(c.key.set)
	ended := s.watchRights(ctx, c.key.set, func(why error) { c.goodbye(closeNoRight, why.Error()) })
	c.release = func() { ended(); leave() }
	if !s.register(c) {
		c.release()
		c.endBaseline()
		c.goodbye(websocket.CloseGoingAway, stopping)
		c.writeClose()
		c.closeSocket()
	}
}

// register adds c to the server, assigns a slot of the wheel and a shard, and starts the
// goroutines of c. If the server is closing, it does nothing and returns false.
func (s *Server) register(c *conn) bool {
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
	s.wg.Go(c.read)
	return true
}

// read is the reader of c. It waits for a frame of the client, usually a pong, and handles it.
// Then a new goroutine waits for the next frame: waiting needs only the smallest stack, whereas
// handling a frame grows the stack, and Go does not shrink it promptly. When the client leaves,
// read ends the connection. Over an event stream, anything received before that, such as further
// requests, is ignored.
func (c *conn) read() {
	n, err := c.nc.Read(c.frameStart[:])
	switch {
	case n > 0 && c.key.kind() == byWebSocket:
		err = c.readFrame(c.frameStart[:n])
	case n > 0:
		_, _ = io.Copy(io.Discard, c.nc)
		err = io.EOF
	}
	if err != nil {
		c.finishRead(err)
		return
	}
	c.server.wg.Go(c.read)
}

// readFrame reads the rest of a frame that starts with begun, and handles it. It returns an error
// if no further frame may follow.
func (c *conn) readFrame(begun []byte) error {
	opcode, payload, err := readControl(io.MultiReader(bytes.NewReader(begun), c.nc))
	if err != nil {
		return err
	}
	c.noteActivity()
	switch opcode {
	case websocket.PingMessage:
		return c.pong(appendFrame(nil, websocket.PongMessage, payload))
	case websocket.CloseMessage:
		code, err := readClose(payload)
		if err == nil {
			c.sendGoodbye(byClient, &closeFrame{code: code}) // not closeReason(code): the client chose the code
			err = io.EOF
		}
		return err
	}
	return nil
}

// finishRead ends the connection when no further frame may come from the client, because of err.
func (c *conn) finishRead(err error) {
	if r, ok := errors.AsType[*refusal](err); ok {
		c.goodbye(r.code, r.reason)
	}
	if errors.Is(err, errTooSlow) {
		c.setReason(tooSlow)
	}
	c.goodbye(websocket.CloseProtocolError, "") // unless there was another goodbye
	// A socket that is closed with unread data is reset, and the client then misses the close
	// frame.
	_, _ = io.Copy(io.Discard, c.nc)
	c.end()
}

// isWebSocket reports whether r is intended as a WebSocket handshake, even if a proxy removed a
// part of it.
func isWebSocket(r *http.Request) bool {
	return websocket.IsWebSocketUpgrade(r) || r.Header.Get("Sec-Websocket-Key") != ""
}

// version is the only version of the protocol (RFC 6455 section 4.2.2).
const version = "13"

// checkHandshake returns an error for a handshake that is incomplete, perhaps because of a proxy,
// or has another version.
func checkHandshake(r *http.Request) error {
	if !websocket.IsWebSocketUpgrade(r) {
		return upgradeRequired(r, "websocket", "a WebSocket handshake needs Connection: Upgrade and Upgrade: websocket over HTTP/1.1; proxies must pass both")
	}
	for v := range strings.SplitSeq(strings.Join(r.Header.Values("Sec-Websocket-Version"), ","), ",") {
		if strings.TrimSpace(v) == version {
			return nil
		}
	}
	return upgradeRequired(r, "websocket-version", "Sec-WebSocket-Version: want "+version+" (RFC 6455)")
}

// upgradeRequired returns the problem for an invalid handshake. HTTP/2 has no upgrades, so over
// HTTP/2 it is a bad request.
func upgradeRequired(r *http.Request, name, detail string) error {
	if r.ProtoMajor > 1 {
		return problem.New(http.StatusBadRequest, name, detail)
	}
	p := problem.New(http.StatusUpgradeRequired, name, detail)
	p.Header = http.Header{"Sec-Websocket-Version": {version}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	return p
}

// joinLines joins the lines of a header, which are one list (RFC 9110 section 5.3).
func joinLines(h http.Header, name string) {
	if lines := h.Values(name); len(lines) > 1 {
		h.Set(name, strings.Join(lines, ", "))
	}
}
