package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/internal/access/ticket"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// A sessionMessage is a message of a connection that follows many sets.
type sessionMessage struct {
	Set, After, Cursor, Followed, Unfollowed string
	Diverged                                 bool
	Changes                                  []struct{ Loc string }
	Error                                    *struct {
		Status int
		Detail string
	}
}

func (m sessionMessage) String() string {
	switch {
	case m.Error != nil:
		return fmt.Sprintf("%s: %d", m.Set, m.Error.Status)
	case len(m.Changes) > 0:
		return fmt.Sprintf("%s: %d changes", m.Set, len(m.Changes))
	}
	return strings.TrimSpace("start of " + m.Set + m.Followed + m.Unfollowed)
}

// dialMany opens a connection that follows many sets.
func (h *testHub) dialMany(t *testing.T, url string, headers ...string) *websocket.Conn {
	t.Helper()
	header := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		header.Set(headers[i], headers[i+1])
	}
	ws, _, err := websocket.DefaultDialer.Dial(strings.Replace(url, "http", "ws", 1), header)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.Close() })
	return ws
}

// followMany calls do with a connection that follows many sets.
func (h *testHub) followMany(t *testing.T, do func(ws *websocket.Conn), headers ...string) {
	t.Helper()
	ws := h.dialMany(t, h.URL+"/changes", headers...)
	do(ws)
	_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Minute))
	for err := error(nil); err == nil; {
		_, _, err = ws.ReadMessage()
	}
}

// readSessionMessage sends a message unless it is empty, and returns the next one of the hub.
func readSessionMessage(t *testing.T, ws *websocket.Conn, send string) (m sessionMessage) {
	t.Helper()
	if send != "" {
		if err := ws.WriteMessage(websocket.TextMessage, []byte(send)); err != nil {
			t.Fatal(err)
		}
	}
	_ = ws.SetReadDeadline(time.Now().Add(time.Minute))
	_, text, err := ws.ReadMessage()
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatalf("read message after %s: got %s, %v", send, text, err)
	}
	return m
}

// expectMessages checks that the next messages are want, in any order.
func expectMessages(t *testing.T, ws *websocket.Conn, send string, want ...string) {
	t.Helper()
	missing := map[string]bool{}
	for _, w := range want {
		missing[w] = true
	}
	for len(missing) > 0 {
		m := readSessionMessage(t, ws, send)
		if send = ""; !missing[m.String()] {
			t.Fatalf("got message %q, want one of %v", m, missing)
		}
		delete(missing, m.String())
	}
}

// A connection follows the sets that its caller may follow, as rights and sets change, and ends with the
// token of its caller.
func TestSessionRights(t *testing.T) {
	t.Parallel()
	file := newTokensFile(t, "publish:*,follow:*", "follow:a,follow:lib.*", "anyone - follow:*")
	h := start(t, Config{Callers: file.open(t), Metrics: prometheus.NewRegistry()})
	owner := file.bearer(0)
	for _, set := range []string{"a", "b", "lib.c"} {
		h.Publish(set, owner...)
		makePrivate(h, set, true, owner...)
	}
	var v ticket.View
	_, text := servertest.Do(t, "POST", h.URL+"/ticket", "", file.bearer(1)...)
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	anyone, named, ticketed := h.dialMany(t, h.URL+"/changes"), h.dialMany(t, h.URL+"/changes", file.bearer(1)...), h.dialMany(t, v.URL)
	expectMessages(t, anyone, `{"follow":"*","since":"start"}`, "start of *")
	expectMessages(t, named, `{"follow":"*"}`, "start of a", "start of lib.c", "start of *")
	expectMessages(t, ticketed, `{"follow":"*"}`, "start of a", "start of lib.c", "start of *")
	expectMessages(t, ticketed, `{"follow":"b"}`, "b: 404")
	makePrivate(h, "b", false, owner...)
	for _, ws := range []*websocket.Conn{anyone, named, ticketed} {
		expectMessages(t, ws, "", "start of b", "b: 1 changes")
	}
	makePrivate(h, "b", true, owner...)
	for _, ws := range []*websocket.Conn{anyone, named, ticketed} {
		expectMessages(t, ws, "", "b: 404")
	}
	file.write(t, file.lines[0], file.lines[2])
	for _, ws := range []*websocket.Conn{named, ticketed} {
		var err error
		for err == nil {
			_, _, err = ws.ReadMessage()
		}
		if !websocket.IsCloseError(err, 4401) {
			t.Errorf("the WebSocket ended with %v, want code 4401", err)
		}
	}
	makePrivate(h, "a", false, owner...)
	expectMessages(t, anyone, "", "start of a", "a: 1 changes")
}

// The limit of follows applies to all connections of a caller together.
func TestSessionLimit(t *testing.T) {
	t.Parallel()
	limits, err := limit.Parse("follows:2")
	if err != nil {
		t.Fatal(err)
	}
	known, texts := tokens(t, "publish:*", "anyone - follow:*")
	h := start(t, Config{Callers: known, AddressLimits: limits})
	for _, set := range []string{"a", "b"} {
		h.Publish(set, bearer(texts[0])...)
	}
	first, second := h.dialMany(t, h.URL+"/changes"), h.dialMany(t, h.URL+"/changes")
	expectMessages(t, first, `{"follow":"a"}`, "start of a")
	expectMessages(t, second, `{"follow":"a"}`, "start of a")
	expectMessages(t, second, `{"follow":"b"}`, "b: 429")
	_ = first.Close()
	for m := (sessionMessage{}); m.String() != "start of b"; {
		m = readSessionMessage(t, second, `{"follow":"b"}`)
	}
}
