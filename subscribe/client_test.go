package subscribe_test

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/zst"
)

// A message is a message of any transport.
type message struct {
	Set      string
	After    string
	From     string
	Until    string
	Cursor   string
	Diverged bool
	Next     string
	Changes  []entry
}

type entry struct {
	Loc      string
	Change   string
	Position uint64
	Datetime string
}

func parseJSON(b []byte) (m message, err error) {
	err = json.Unmarshal(b, &m)
	return m, err
}

func parseXML(b []byte) (m message, err error) {
	type md struct {
		After    string `xml:"https://github.com/rshub/rshub/terms/ after,attr"`
		Cursor   string `xml:"https://github.com/rshub/rshub/terms/ cursor,attr"`
		Diverged bool   `xml:"https://github.com/rshub/rshub/terms/ diverged,attr"`
		Position uint64 `xml:"https://github.com/rshub/rshub/terms/ position,attr"`
		Change   string `xml:"change,attr"`
		Datetime string `xml:"datetime,attr"`
		From     string `xml:"from,attr"`
		Until    string `xml:"until,attr"`
	}
	var doc struct {
		MD  md `xml:"http://www.openarchives.org/rs/terms/ md"`
		URL []struct {
			Loc string `xml:"loc"`
			MD  md     `xml:"http://www.openarchives.org/rs/terms/ md"`
		} `xml:"url"`
	}
	err = xml.Unmarshal(b, &doc)
	m = message{After: doc.MD.After, Cursor: doc.MD.Cursor, Diverged: doc.MD.Diverged, From: doc.MD.From, Until: doc.MD.Until}
	for _, u := range doc.URL {
		m.Changes = append(m.Changes, entry{Loc: u.Loc, Change: u.MD.Change, Position: u.MD.Position, Datetime: u.MD.Datetime})
	}
	return m, err
}

func position(cursor string) uint64 {
	c, err := feed.ParseCursor(cursor)
	if err != nil {
		return 1 << 62
	}
	return c.Position
}

// A chain checks that messages are consecutive.
type chain struct {
	cursor   string // cursor of the last message
	filtered bool
	entries  int
	last     uint64 // position of the last entry
}

func (c *chain) add(m message) error {
	first := c.cursor == ""
	switch {
	case m.After == "" || m.Cursor == "":
		return fmt.Errorf("got a message without a cursor: %+v", m)
	case first && (len(m.Changes) > 0 || m.After != m.Cursor):
		return fmt.Errorf("got changes in the first message: %+v", m)
	case !first && !m.Diverged && m.After != c.cursor:
		return fmt.Errorf("got a message after %[2]s, want one after %[1]s", c.cursor, m.After)
	}
	if first || m.Diverged {
		c.last = position(m.After)
	}
	for _, e := range m.Changes {
		if e.Position <= c.last || !c.filtered && e.Position != c.last+1 || e.Position > position(m.Cursor) {
			return fmt.Errorf("got position %d after %d in a message from %s to %s", e.Position, c.last, m.After, m.Cursor)
		}
		c.last = e.Position
	}
	if !c.filtered && position(m.Cursor) != c.last {
		return fmt.Errorf("got the cursor %s, want one at position %d", m.Cursor, c.last)
	}
	c.cursor, c.entries = m.Cursor, c.entries+len(m.Changes)
	return nil
}

// A client is a WebSocket to the set a.
type client struct {
	testing.TB
	ws *websocket.Conn
	chain
	bytes int // size of the frames with changes
}

// A dialer configures the connection of a client.
type dialer struct {
	protocol   string
	readBuffer int
	slow       *throttle
	control    func(network, address string, c syscall.RawConn) error
}

func (s *site) dial(query string, d dialer) *client {
	s.Helper()
	c, resp, err := s.tryDial(query, d)
	if err != nil {
		s.Fatal("dial:", err, resp)
	}
	if c.ws.Subprotocol() != d.protocol {
		s.Fatalf("got subprotocol %q, want %q", c.ws.Subprotocol(), d.protocol)
	}
	return c
}

// follow dials, and reads the first message.
func (s *site) follow(query string, d dialer) *client {
	s.Helper()
	c := s.dial(query, d)
	c.next()
	return c
}

func (s *site) tryDial(query string, d dialer) (*client, *http.Response, error) {
	wd := websocket.Dialer{HandshakeTimeout: patience}
	if d.protocol != "" {
		wd.Subprotocols = []string{d.protocol}
	}
	wd.NetDialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return s.connect(ctx, network, addr, d)
	}
	ws, resp, err := wd.Dial("ws"+strings.TrimPrefix(s.url(query), "http"), nil)
	if err != nil {
		return nil, resp, err
	}
	s.Cleanup(func() { ws.Close() })
	filtered := slices.ContainsFunc([]string{"prefix=", "change=", "type=", "collection="}, func(s string) bool { return strings.Contains(query, s) })
	return &client{TB: s, ws: ws, chain: chain{filtered: filtered}}, resp, nil
}

// connect opens a connection as configured by d.
func (s *site) connect(ctx context.Context, network, addr string, d dialer) (net.Conn, error) {
	dial := (&net.Dialer{Control: d.control}).DialContext
	if s.dials != nil {
		dial = s.dials
	}
	nc, err := dial(ctx, network, addr)
	if err == nil && d.readBuffer > 0 && s.dials == nil {
		err = nc.(*net.TCPConn).SetReadBuffer(d.readBuffer)
	}
	if err == nil && d.slow != nil {
		d.slow.Reader = nc
		nc = throttledConn{Conn: nc, throttle: d.slow}
	}
	return nc, err
}

// readMessage reads a message, and returns its text and its size on the wire.
func readMessage(ws *websocket.Conn) (text []byte, n int, err error) {
	kind, b, err := ws.ReadMessage()
	if err != nil {
		return nil, 0, err
	}
	zipped := ws.Subprotocol() == "rs.json+zstd"
	if (kind == websocket.BinaryMessage) != zipped {
		return nil, 0, fmt.Errorf("got a message of kind %d", kind)
	}
	if !zipped {
		return b, len(b), nil
	}
	decoded, err := zst.Decode(b)
	return []byte(decoded), len(b), err
}

// read reads a message and checks that it follows the previous one.
func (c *client) read() (message, error) {
	_ = c.ws.SetReadDeadline(time.Now().Add(patience))
	b, n, err := readMessage(c.ws)
	if err != nil {
		return message{}, err
	}
	parse := parseJSON
	if c.ws.Subprotocol() == "rs.xml" {
		parse = parseXML
	}
	m, err := parse(b)
	if err != nil {
		return m, fmt.Errorf("%w: %.200s", err, b)
	}
	if len(m.Changes) > 0 {
		c.bytes += n + 2 // a header has 2 bytes, from 126 bytes to 64 KiB 4
		if n > 125 {
			c.bytes += 2
		}
	}
	return m, c.add(m)
}

func (c *client) next() message {
	c.Helper()
	m, err := c.read()
	if err != nil {
		c.Fatal("read:", err)
	}
	return m
}

// nextChanges skips messages without changes.
func (c *client) nextChanges() message {
	c.Helper()
	for {
		if m := c.next(); len(m.Changes) > 0 {
			return m
		}
	}
}

// readTo reads until the given cursor.
func (c *client) readTo(cur feed.Cursor) {
	c.Helper()
	for c.cursor != cur.String() {
		c.next()
	}
}

// closed reads until the connection is closed with a code, and closes its socket.
func (c *client) closed(code int) (reason string) {
	c.Helper()
	for {
		_, err := c.read()
		if err == nil {
			continue
		}
		ce, ok := errors.AsType[*websocket.CloseError](err)
		if !ok || ce.Code != code {
			c.Fatalf("got %v, want a close with %d", err, code)
		}
		_ = c.ws.Close() // otherwise the hub waits for it
		return ce.Text
	}
}

// A throttle pauses after every step bytes.
type throttle struct {
	io.Reader
	step, n, paused int
	pause           time.Duration
}

func (r *throttle) Read(p []byte) (int, error) {
	if r.n >= r.step {
		r.n = 0
		r.paused++
		<-time.After(r.pause)
	}
	n, err := r.Reader.Read(p[:min(len(p), 4000)])
	r.n += n
	return n, err
}

type throttledConn struct {
	net.Conn
	*throttle
}

func (c throttledConn) Read(p []byte) (int, error) { return c.throttle.Read(p) }

// An event is an event of an event stream.
type event struct {
	id, name, data string
	comment        bool
}

// A stream reads events of the set a.
type stream struct {
	testing.TB
	resp   *http.Response
	r      *bufio.Reader
	cancel func()
	retry  string
	chain
}

func (s *site) stream(query string, header ...string) *stream {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url(query), nil)
	ok(s, err)
	r.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := s.transport().RoundTrip(r)
	ok(s, err)
	s.Cleanup(func() { resp.Body.Close() })
	return s.newStream(query, resp, cancel)
}

// streamOver opens a stream on a new connection, with a version of HTTP, and reads the first
// event.
func (s *site) streamOver(version, query string, d dialer) (*stream, net.Conn) {
	s.Helper()
	nc, err := s.connect(s.Context(), "tcp", s.http.Listener.Addr().String(), d)
	ok(s, err)
	_, err = fmt.Fprintf(nc, "GET /sets/a/changes%s %s\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n", query, version)
	ok(s, err)
	resp, err := http.ReadResponse(bufio.NewReaderSize(nc, 16), nil)
	ok(s, err)
	st := s.newStream(query, resp, func() { nc.Close() })
	st.next()
	return st, nc
}

func (s *site) newStream(query string, resp *http.Response, cancel func()) *stream {
	s.Helper()
	s.Cleanup(cancel) // before the body is closed, which reads to its end
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		s.Fatalf("%s: %s %s", query, resp.Status, b)
	}
	return &stream{TB: s, resp: resp, r: bufio.NewReader(resp.Body), cancel: cancel, chain: chain{filtered: strings.Contains(query, "prefix=")}}
}

// followEvents opens a stream, and reads the first event.
func (s *site) followEvents(query string) *stream {
	s.Helper()
	st := s.stream(query)
	st.next()
	return st
}

// event reads an event or a comment. It fails on an event without data, because many clients pass
// on an empty text then.
func (s *stream) event() (e event, err error) {
	for {
		line, err := s.r.ReadString('\n')
		if err != nil {
			return e, err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "\n" && e.data == "":
			return e, fmt.Errorf("got an event without data: %+v", e)
		case line == "\n":
			return e, nil
		case field == "":
			e.comment = true
			return e, nil
		case field == "id":
			e.id = value
		case field == "event":
			e.name = value
		case field == "data":
			e.data = value
		case field == "retry":
			s.retry = value
		default:
			return e, fmt.Errorf("got line %q, want a field of an event", line)
		}
	}
}

// next reads an event and checks that it follows the previous one.
func (s *stream) next() (event, message) {
	s.Helper()
	e, err := s.event()
	m := message{}
	if err == nil {
		m, err = s.check(e)
	}
	if err != nil {
		s.Fatal("read an event:", err)
	}
	return e, m
}

// read is next with an error instead of a failed test.
func (s *stream) read() (message, error) {
	e, err := s.event()
	if err != nil {
		return message{}, err
	}
	return s.check(e)
}

// check checks that an event follows the previous one.
func (s *stream) check(e event) (m message, err error) {
	if e.comment || e.name != "" {
		return m, nil
	}
	if m, err = parseJSON([]byte(e.data)); err != nil {
		return m, fmt.Errorf("%w: %.200s", err, e.data)
	}
	if m.Cursor != e.id {
		return m, fmt.Errorf("got id %s, want the cursor %s", e.id, m.Cursor)
	}
	return m, s.add(m)
}

// readTo reads until the given cursor.
func (s *stream) readTo(cur feed.Cursor) {
	s.Helper()
	for s.cursor != cur.String() {
		s.next()
	}
}

// nextChanges skips events without changes.
func (s *stream) nextChanges() (event, message) {
	s.Helper()
	for {
		if e, m := s.next(); len(m.Changes) > 0 {
			return e, m
		}
	}
}

// A reader reads messages of a client or a stream.
type reader interface{ read() (message, error) }

// readAll reads until there is an error.
func readAll(r reader) error {
	for {
		if _, err := r.read(); err != nil {
			return err
		}
	}
}
