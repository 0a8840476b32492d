package hubtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/e2e/internal/trial"
	"github.com/rshub/rshub/resourcesync"
)

// header returns the headers of the follower with an Accept header.
func (f *Follower) header(accept string) http.Header {
	h := http.Header{}
	for _, s := range f.Headers {
		name, value, _ := strings.Cut(s, ": ")
		h.Add(name, value)
	}
	if accept != "" {
		h.Set("Accept", accept)
	}
	return h
}

// URL returns the URL of the next connection.
func (f *Follower) URL() string {
	return f.Hub.Topic(f.Set) + "?since=" + url.QueryEscape(f.CurrentCursor()) + f.Query
}

// webSocket follows until the connection ends, and returns its error.
func (f *Follower) webSocket(ctx context.Context) error {
	u := "ws" + strings.TrimPrefix(f.URL(), "http")
	if f.Transport == BySession {
		u = "ws" + strings.TrimPrefix(f.Hub.URL, "http") + "/changes"
	}
	dialer := websocket.Dialer{TLSClientConfig: f.TLS}
	if f.Transport == ByXML {
		dialer.Subprotocols = []string{"rs.xml"}
	}
	conn, resp, err := dialer.DialContext(ctx, u, f.header(""))
	if err != nil {
		if resp != nil {
			b, _ := io.ReadAll(resp.Body)
			return fmt.Errorf("%w: %s: %s", err, resp.Status, b)
		}
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if f.Transport == BySession {
		if err := conn.WriteMessage(websocket.TextMessage, f.command()); err != nil {
			return err
		}
	}
	return f.ReadMessages(conn)
}

// command returns the message that makes a session follow the set.
func (f *Follower) command() []byte {
	m := map[string]any{"follow": f.Set, "since": f.CurrentCursor()}
	query, _ := url.ParseQuery(strings.TrimPrefix(f.Query, "&")) // tests have valid ones
	for name, values := range query {
		m[name] = values[0]
	}
	b, _ := json.Marshal(m) // strings only
	return b
}

// handleSessionMessage handles a message that only a session gets. ok is false for other messages.
func (f *Follower) handleSessionMessage(b []byte) (ok bool, err error) {
	var m struct {
		Cursors map[string]string
		Error   *struct{ Status int }
	}
	err = json.Unmarshal(b, &m)
	switch {
	case err != nil:
	case m.Error != nil && (m.Error.Status == http.StatusGone || m.Error.Status == http.StatusNotFound):
		err = fmt.Errorf("%w: %s", ErrGone, b)
	case m.Error != nil:
		err = fmt.Errorf("%s", b)
	case m.Cursors != nil:
		f.Mu.Lock()
		defer f.Mu.Unlock()
		f.Cursor = m.Cursors[f.Set]
		return true, nil
	}
	return false, err
}

// ReadMessages handles the messages of a WebSocket until it closes.
func (f *Follower) ReadMessages(conn *websocket.Conn) error {
	for first := true; ; first = false {
		_, b, err := conn.ReadMessage()
		if websocket.IsCloseError(err, 4410) {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
		if err != nil {
			return err
		}
		if f.Transport == BySession {
			ok, err := f.handleSessionMessage(b)
			if err != nil {
				return err
			}
			if ok {
				continue
			}
		}
		var m Message
		if f.Transport == ByXML {
			m, err = f.notification(b)
		} else {
			err = json.Unmarshal(b, &m)
		}
		if err != nil {
			return f.protocolError("%s: %v", b, err)
		}
		if first && !m.Diverged {
			if len(m.Changes) > 0 || m.After != m.Cursor {
				return f.protocolError("first message has more than a cursor: %.200s", b)
			}
			f.setStart(m.Cursor)
			continue
		}
		f.handleMessage(&m, m.Cursor)
	}
}

// notification parses an XML message.
func (f *Follower) notification(b []byte) (m Message, err error) {
	l, err := trial.ReadList(b)
	if err != nil {
		return m, err
	}
	m = Message{Set: f.Set, After: l.After, Cursor: l.Cursor, Diverged: l.Diverged, Changes: l.Changes}
	if !l.Until.IsZero() {
		m.From = string(resourcesync.AppendTimeMicro(nil, l.From.UnixMicro()))
		m.Until = string(resourcesync.AppendTimeMicro(nil, l.Until.UnixMicro()))
	}
	return m, nil
}

// eventStream follows until the stream ends, and returns its error.
func (f *Follower) eventStream(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.URL(), nil)
	if err != nil {
		return err
	}
	req.Header = f.header("text/event-stream")
	if f.Started { // as in a browser: same URL, the header has precedence
		req.URL.RawQuery = "since=start" + f.Query
		req.Header.Set("Last-Event-ID", f.CurrentCursor())
	}
	resp, err := f.client(0).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		err := fmt.Errorf("%s: %s", resp.Status, b)
		if resp.StatusCode == http.StatusGone {
			err = fmt.Errorf("%w: %w", ErrGone, err)
		}
		return err
	}
	return f.readEvents(resp.Body)
}

// readEvents reads an event stream (HTML Standard, section 9.2.6).
func (f *Follower) readEvents(r io.Reader) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var id, event, data string
	first := true
	for {
		line, err := in.ReadString('\n')
		if err == io.EOF && line == "" {
			return fmt.Errorf("the stream ended: %w", err)
		}
		if err != nil {
			return err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "\n":
		case name == "id":
			id = value
			continue
		case name == "event":
			event = value
			continue
		case name == "data":
			data += value + "\n"
			continue
		default: // a comment, or retry
			continue
		}
		switch {
		case data == "":
			return f.protocolError("event %q with ID %q has no data", event, id)
		case event == "gone":
			return fmt.Errorf("%w: event gone: %s", ErrGone, data)
		case event != "":
			return fmt.Errorf("event %s: %s", event, data)
		}
		var m Message
		if err := json.Unmarshal([]byte(data), &m); err != nil {
			return f.protocolError("%s: %v", data, err)
		}
		switch {
		case first && !m.Diverged && (len(m.Changes) > 0 || m.After != m.Cursor || m.Cursor != id):
			return f.protocolError("first event has more than a cursor: %.200s", data)
		case first && !m.Diverged:
			f.setStart(id)
		default:
			f.handleMessage(&m, id)
		}
		first, event, data = false, "", ""
	}
}

// poll requests page after page until one fails.
func (f *Follower) poll(ctx context.Context) error {
	next := f.URL() + "&limit=700"
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, next, nil)
		if err != nil {
			return err
		}
		req.Header = f.header("application/json")
		resp, err := f.client(Client.Timeout).Do(req)
		if err != nil {
			return err
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		switch {
		case err != nil:
			return err
		case resp.StatusCode == http.StatusGone:
			return fmt.Errorf("%w: %s", ErrGone, bytes.TrimSpace(b))
		case resp.StatusCode != http.StatusOK:
			return fmt.Errorf("%s: %s", resp.Status, b)
		}
		var m Message
		if err := json.Unmarshal(b, &m); err != nil {
			return f.protocolError("%s: %v", b, err)
		}
		if links := resp.Header.Values("Link"); m.Next == "" || !slices.Contains(links, "<"+m.Next+`>; rel="next"`) {
			return f.protocolError("got next %q and Link %q, want a Link to next", m.Next, links)
		}
		f.handleMessage(&m, m.Cursor)
		// The link has the base URL of the cluster; the test has no load balancer.
		if next = m.Next; strings.Contains(next, "/sets/") {
			next = f.Hub.URL + next[strings.Index(next, "/sets/"):]
		}
		if !strings.Contains(next, "&wait=") {
			next += "&wait=10s" // the first page must return immediately
		}
	}
}
