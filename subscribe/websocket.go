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

// serveWebSocket lets a client follow over a WebSocket. It returns as soon as the
// WebSocket is connected, so that net/http's buffers are freed.
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
	c := &conn{server: s, filter: filter, key: groupKey{set: set, wire: wire{format, inFrames}}}
	if format.Single {
		c.key.framing = framed
	}
	first, err := c.begin(r.Context(), q.Get("since"))
	isGone := errors.Is(err, feed.ErrGone) // a browser cannot read the status of a handshake, so a close frame says it
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
	c.nc = ws.NetConn() // gorilla is needed only for the handshake
	if first != nil {
		c.control = c.key.append(nil, first.Encode(format))
	}
	if isGone {
		c.goodbye(closeGone, goneReason)
	}
	c.start(r.Context())
	return nil
}

// begin moves c to where the client asks to begin, and returns the batch of the first
// message; nil: c begins with a baseline.
func (c *conn) begin(ctx context.Context, since string) (first *feed.Batch, err error) {
	if isBaseline(since) {
		return nil, c.beginBaseline(ctx, since)
	}
	if first, err = c.server.begin.Find(ctx, c.key.set, since); err != nil {
		return nil, err
	}
	c.cursor, c.told = first.Cursor, first.Cursor
	return first, nil
}

// start makes c follow, once the client is connected and c.nc is set. ctx is of the request.
func (c *conn) start(ctx context.Context) {
	s := c.server
	c.findSocket()
	c.hear()
	leave := s.follower.Attend(c.key.set)
	ended := s.while(ctx, c.key.set, func(why error) { c.goodbye(closeNoRight, why.Error()) })
	c.release = func() { ended(); leave() }
	if !s.register(c) {
		c.release()
		c.endBaseline()
		c.goodbye(websocket.CloseGoingAway, stopping)
		c.writeClose()
		c.cut()
	}
}

// register adds c to the server, gives it a slot of the wheel and a shard, and starts
// the goroutines that write to it and read from it. It does nothing and returns false
// if the server takes no more connections.
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

// read waits for a frame of the client, mostly an answer to a ping, and does what the frame
// asks. Then a new goroutine waits for the next frame, because that needs only the smallest
// stack of a goroutine. What read does with a frame makes its stack grow, and Go does not
// shrink it again. When the client is gone, read ends the connection. In an event stream
// nothing comes before that but what does not count, such as further requests.
func (c *conn) read() {
	n, err := c.nc.Read(c.begun[:])
	switch {
	case n > 0 && c.key.kind() == byWebSocket:
		err = c.readFrame(c.begun[:n])
	case n > 0:
		_, _ = io.Copy(io.Discard, c.nc)
		err = io.EOF
	}
	if err != nil {
		c.ended(err)
		return
	}
	c.server.wg.Go(c.read)
}

// readFrame reads the rest of a frame that has begun, and does what it asks. It returns an
// error if no further frame may come.
func (c *conn) readFrame(begun []byte) error {
	opcode, payload, err := readControl(io.MultiReader(bytes.NewReader(begun), c.nc))
	if err != nil {
		return err
	}
	c.hear()
	switch opcode {
	case websocket.PingMessage:
		return c.pong(appendFrame(nil, websocket.PongMessage, payload))
	case websocket.CloseMessage:
		code, err := readClose(payload)
		if err == nil {
			c.leave(byClient, &closeFrame{code: code}) // the code may be one that stands for another reason
			err = io.EOF
		}
		return err
	}
	return nil
}

// ended ends the connection when no further frame may come from the client, and why.
func (c *conn) ended(err error) {
	if r, ok := errors.AsType[*refusal](err); ok {
		c.goodbye(r.code, r.reason)
	}
	if errors.Is(err, errTooSlow) {
		c.because(tooSlow)
	}
	c.goodbye(websocket.CloseProtocolError, "") // unless there was another goodbye
	// A socket that is closed while something is unread is reset, and then the
	// client does not see the close frame.
	_, _ = io.Copy(io.Discard, c.nc)
	c.end()
}

// isWebSocket reports whether r is meant as a WebSocket handshake, even if a proxy has
// removed a part of it.
func isWebSocket(r *http.Request) bool {
	return websocket.IsWebSocketUpgrade(r) || r.Header.Get("Sec-Websocket-Key") != ""
}

// version is the only version of the protocol (RFC 6455 section 4.2.2).
const version = "13"

// checkHandshake refuses a handshake from which a proxy has removed a part, and one of
// another version.
func checkHandshake(r *http.Request) error {
	if !websocket.IsWebSocketUpgrade(r) {
		return upgradeRequired(r, "websocket", "a WebSocket begins with Connection: Upgrade and Upgrade: websocket over HTTP/1.1; a proxy on the way must pass both")
	}
	for v := range strings.SplitSeq(strings.Join(r.Header.Values("Sec-Websocket-Version"), ","), ",") {
		if strings.TrimSpace(v) == version {
			return nil
		}
	}
	return upgradeRequired(r, "websocket-version", "this hub speaks version "+version+" of the WebSocket protocol (RFC 6455)")
}

// upgradeRequired returns the problem of a client that does not ask for the protocol
// that it means. HTTP/2 has no upgrades, so over HTTP/2 it is a bad request.
func upgradeRequired(r *http.Request, name, detail string) error {
	if r.ProtoMajor > 1 {
		return problem.New(http.StatusBadRequest, name, detail)
	}
	p := problem.New(http.StatusUpgradeRequired, name, detail)
	p.Header = http.Header{"Sec-Websocket-Version": {version}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	return p
}

// joinLines makes one line of a header's lines. They are one list (RFC 9110 section 5.3).
func joinLines(h http.Header, name string) {
	if lines := h.Values(name); len(lines) > 1 {
		h.Set(name, strings.Join(lines, ", "))
	}
}
