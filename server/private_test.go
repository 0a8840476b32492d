package server

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/internal/running"
)

// Whoever follows by nothing but anyone's rights is cut off when a set becomes private.
// What is there of a private set, and for whom, is what TestMatrix says.
func TestPrivate(t *testing.T) {
	known, texts := tokens(t, "publish:*,follow:*,operate", "anyone - follow:*")
	h := start(t, Config{Callers: known})
	owner := []string{"Authorization", "Bearer " + texts[0]}
	h.Publish("shown", owner...)
	ws, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(h.URL, "http")+"/sets/shown/changes?since=now", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	req, err := http.NewRequestWithContext(t.Context(), "GET", h.URL+"/sets/shown/changes?since=now", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	events, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	if resp, body := running.Do(t, "PUT", h.URL+"/sets/shown", `{"private":true}`, owner...); resp.StatusCode != http.StatusOK {
		t.Fatalf("PUT is answered %d %s", resp.StatusCode, body)
	}
	for err == nil {
		_, _, err = ws.ReadMessage()
	}
	if !websocket.IsCloseError(err, 4401) {
		t.Errorf("the WebSocket ends with %v", err)
	}
	if _, err := io.Copy(io.Discard, events.Body); err != nil {
		t.Errorf("the event stream ends with %v", err)
	}
}

// A hub without tokens shows everything to everybody, so nothing is private there.
func TestPrivateWithoutTokens(t *testing.T) {
	h := start(t, Config{})
	resp, body := running.Do(t, "PUT", h.URL+"/sets/demo", `{"private":true}`)
	if detail := checkProblem(t, resp, body, http.StatusBadRequest, "invalid"); !strings.Contains(detail, "RSHUB_TOKENS_FILE") {
		t.Errorf("the detail is %q", detail)
	}
}
