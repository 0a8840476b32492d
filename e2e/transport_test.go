package e2e

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

	"github.com/rshub/rshub/resourcesync"
)

// header is the follower's own headers, and one for what it accepts.
func (f *follower) header(accept string) http.Header {
	h := http.Header{}
	for _, s := range f.headers {
		name, value, _ := strings.Cut(s, ": ")
		h.Add(name, value)
	}
	if accept != "" {
		h.Set("Accept", accept)
	}
	return h
}

func (f *follower) url() string {
	return f.hub.topic(f.set) + "?since=" + url.QueryEscape(f.at()) + f.query
}

// webSocket follows until the connection ends, and returns how it did.
func (f *follower) webSocket(ctx context.Context) error {
	u := "ws" + strings.TrimPrefix(f.url(), "http")
	var dialer websocket.Dialer
	if f.way == byXML {
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
	return f.readMessages(conn)
}

func (f *follower) readMessages(conn *websocket.Conn) error {
	for first := true; ; first = false {
		_, b, err := conn.ReadMessage()
		if websocket.IsCloseError(err, 4410) {
			return fmt.Errorf("%w: %w", errGone, err)
		}
		if err != nil {
			return err
		}
		var m message
		if f.way == byXML {
			m, err = f.notification(b)
		} else {
			err = json.Unmarshal(b, &m)
		}
		if err != nil {
			return f.wrong("%s: %v", b, err)
		}
		if first && !m.Diverged {
			if len(m.Changes) > 0 || m.After != m.Cursor {
				return f.wrong("the first message is not only a cursor: %.200s", b)
			}
			f.starts(m.Cursor)
			continue
		}
		f.take(&m, m.Cursor)
	}
}

// notification reads a message that is XML.
func (f *follower) notification(b []byte) (m message, err error) {
	l, err := readList(b)
	if err != nil {
		return m, err
	}
	m = message{Set: f.set, After: l.after, Cursor: l.cursor, Diverged: l.diverged, Changes: l.changes}
	if !l.Until.IsZero() {
		m.From = string(resourcesync.AppendTimeMicro(nil, l.From.UnixMicro()))
		m.Until = string(resourcesync.AppendTimeMicro(nil, l.Until.UnixMicro()))
	}
	return m, nil
}

// eventStream follows until the stream ends, and returns how it did.
func (f *follower) eventStream(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url(), nil)
	if err != nil {
		return err
	}
	req.Header = f.header("text/event-stream")
	if f.begun { // as a browser does it: the URL stays, the header wins
		req.URL.RawQuery = "since=start" + f.query
		req.Header.Set("Last-Event-ID", f.at())
	}
	resp, err := (&http.Client{Transport: client.Transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		err := fmt.Errorf("%s: %s", resp.Status, b)
		if resp.StatusCode == http.StatusGone {
			err = fmt.Errorf("%w: %w", errGone, err)
		}
		return err
	}
	return f.readEvents(resp.Body)
}

// readEvents reads an event stream (HTML Standard, section 9.2.6).
func (f *follower) readEvents(r io.Reader) error {
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
		case event == "gone":
			return fmt.Errorf("%w: event gone: %s", errGone, data)
		case event != "":
			return fmt.Errorf("event %s: %s", event, data)
		case data != "":
			var m message
			if err := json.Unmarshal([]byte(data), &m); err != nil {
				return f.wrong("%s: %v", data, err)
			}
			f.take(&m, id)
		case first && id != "":
			f.starts(id)
		case id != "": // a heartbeat: a filter has moved the cursor
			f.mu.Lock()
			f.cursor = id
			f.mu.Unlock()
		}
		first, event, data = false, "", ""
	}
}

// poll walks from page to page until one fails.
func (f *follower) poll(ctx context.Context) error {
	next := f.url() + "&limit=700"
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, next, nil)
		if err != nil {
			return err
		}
		req.Header = f.header("application/json")
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		switch {
		case err != nil:
			return err
		case resp.StatusCode == http.StatusGone:
			return fmt.Errorf("%w: %s", errGone, bytes.TrimSpace(b))
		case resp.StatusCode != http.StatusOK:
			return fmt.Errorf("%s: %s", resp.Status, b)
		}
		var m message
		if err := json.Unmarshal(b, &m); err != nil {
			return f.wrong("%s: %v", b, err)
		}
		if links := resp.Header.Values("Link"); m.Next == "" || !slices.Contains(links, "<"+m.Next+`>; rel="next"`) {
			return f.wrong("next is %q, and Link %q", m.Next, links)
		}
		f.take(&m, m.Cursor)
		// The link names the URL of all hubs; here nothing balances between them.
		if next = m.Next; strings.Contains(next, "/sets/") {
			next = f.hub.url + next[strings.Index(next, "/sets/"):]
		}
		if !strings.Contains(next, "&wait=") {
			next += "&wait=10s" // the first page only says where it begins
		}
	}
}
