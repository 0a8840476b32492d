package server

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/internal/servertest"
	"github.com/rshub/rshub/internal/untiltest"
)

// When a token is withdrawn, whatever follows with it ends, and nothing of others does.
func TestRightsEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	file, texts := servertest.Tokens("publish:*,follow:*", "follow:a")
	write := func(text string) { t.Helper(); writeFile(t, path, text) }
	write(file)
	known, err := access.OpenTokensFile(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	h := start(t, Config{Callers: known})
	bearer := func(i int) http.Header { return http.Header{"Authorization": {"Bearer " + texts[i]}} }
	h.Publish("a", "Authorization", "Bearer "+texts[0])

	connect := func(i int) *websocket.Conn {
		t.Helper()
		ws, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(h.URL, "http")+"/sets/a/changes?since=now", bearer(i))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ws.Close() })
		return ws
	}
	theirs, ours := connect(1), connect(0)
	request := func(path, accept string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = bearer(1)
		req.Header.Set("Accept", accept)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return nil
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	events := request("/sets/a/changes?since=now", "text/event-stream")
	if _, err := bufio.NewReader(events.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	polled := make(chan *http.Response, 1)
	go func() { polled <- request("/sets/a/changes?since=now&wait=5m", "application/json") }()
	untiltest.Done(t, "the poll waits", func() bool {
		_, body := servertest.Do(t, "GET", h.Ops+"/metrics", "")
		return strings.Contains(body, "\nrshub_followers{kind=\"longpoll\"} 1\n")
	})

	lines := strings.SplitAfter(file, "\n")
	write(lines[0]) // without the second token
	begin := time.Now()

	_, _, err = theirs.ReadMessage()
	for err == nil {
		_, _, err = theirs.ReadMessage()
	}
	if closed, ok := errors.AsType[*websocket.CloseError](err); !ok || closed.Code != 4401 {
		t.Errorf("the WebSocket ends with %v", err)
	}
	if _, err := io.ReadAll(events.Body); err != nil {
		t.Errorf("the event stream: %v", err)
	}
	if resp := <-polled; resp == nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the long poll is answered %+v", resp)
	}
	if took := time.Since(begin); took > 30*time.Second { // about three seconds; the promise is ten
		t.Errorf("that took %v", took)
	}
	resp, body := servertest.Do(t, "GET", h.URL+"/sets/a", "", "Authorization", "Bearer "+texts[1])
	checkProblem(t, resp, body, http.StatusUnauthorized, "unauthorized")

	h.Publish("a", "Authorization", "Bearer "+texts[0])
	if _, message, err := ours.ReadMessage(); err != nil || !strings.Contains(string(message), "example.org") {
		// The first message says where the WebSocket begins.
		if _, message, err = ours.ReadMessage(); err != nil {
			t.Errorf("the other WebSocket: %s, %v", message, err)
		}
	}

	// A file with a mistake leaves the tokens in force, and /readyz says so.
	write("nonsense\n")
	untiltest.Done(t, "/readyz names the file", func() bool {
		_, checks := readiness(t, h)
		return !checks["callers"].OK && strings.Contains(checks["callers"].Reason, "line 1")
	})
	if ready, checks := readiness(t, h); !ready || checks["callers"].Required {
		t.Errorf("the hub is ready: %v, %v", ready, checks)
	}
	h.Publish("a", "Authorization", "Bearer "+texts[0])
}
