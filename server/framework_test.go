package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/internal/redistest"
	"github.com/rshub/rshub/internal/running"
	"github.com/rshub/rshub/internal/until"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/transfer"
)

// A notice is a page, an event or a message of a framework topic.
type notice struct {
	Set     string
	Cursor  string
	Changes []struct{ Loc, Change, Capability string }
}

// It says what changes in the documents of a set by every transport, in one order, and each
// goes on where it stopped.
func TestFramework(t *testing.T) {
	t.Parallel()
	posted := make(chan *http.Request, 100)
	callback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge"))
			return
		}
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		posted <- r
	}))
	defer callback.Close()
	h := start(t, Config{ChangeListSize: 2, CallbackAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	topic := h.URL + "/sets/demo/framework"
	if resp, body := running.Do(t, "GET", topic+"?since=now", ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("without a set: %d %s", resp.StatusCode, body)
	}
	h.Publish("demo")
	resp, body := running.Do(t, "GET", topic, "")
	if resp.StatusCode != 200 || body != "" || resp.Header.Get("Link") != `<`+topic+`>; rel="self", <`+h.URL+`/hub>; rel="hub"` {
		t.Errorf("before anybody follows: %d %q %v", resp.StatusCode, body, resp.Header)
	}
	ws, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(topic, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	var begin notice
	if err := ws.ReadJSON(&begin); err != nil || begin.Set != "demo" || len(begin.Changes) > 0 {
		t.Fatalf("the first message is %+v, %v", begin, err)
	}
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {topic}, "hub.callback": {callback.URL}}
	if resp, body := running.Do(t, "POST", h.URL+"/hub", form.Encode(), "Content-Type", "application/x-www-form-urlencoded"); resp.StatusCode != http.StatusAccepted {
		t.Fatalf("subscribe: %d %s", resp.StatusCode, body)
	}
	until.Done(t, "there is a subscription", func() bool {
		_, body := running.Do(t, "GET", h.Ops+"/metrics", "")
		return strings.Contains(body, "rshub_callback_subscriptions 1\n")
	})

	h.Publish("demo") // closes the first list
	if resp, body := running.Do(t, "PUT", h.URL+"/sets/demo", `{"title":"a title","describedby":"https://example.org/about","complete":true}`); resp.StatusCode != 200 {
		t.Fatalf("PUT: %d %s", resp.StatusCode, body)
	}
	want := []string{"changelist updated", "resourcelist created", "capabilitylist updated", "description updated"}
	reads := func(by string, read func(*notice) error) {
		t.Helper()
		left := map[string]bool{}
		for _, w := range want {
			left[w] = true
		}
		for len(left) > 0 {
			var m notice
			if err := read(&m); err != nil {
				t.Fatalf("%s: %v, and these are missing: %v\n%s", by, err, left, h.log)
			}
			for _, c := range m.Changes {
				delete(left, c.Capability+" "+c.Change)
				if resp, body := running.Do(t, "GET", c.Loc, ""); resp.StatusCode != 200 {
					t.Errorf("%s: %s is answered %d %s", by, c.Loc, resp.StatusCode, body)
				}
			}
		}
	}
	_ = ws.SetReadDeadline(time.Now().Add(time.Minute))
	reads("the WebSocket", func(m *notice) error { return ws.ReadJSON(m) })

	next := "?since=start&limit=1&wait=1m"
	reads("pages", func(m *notice) error {
		_, body := running.Do(t, "GET", topic+next, "", "Accept", "application/json")
		err := json.Unmarshal([]byte(body), m)
		next = "?limit=1&wait=1m&since=" + m.Cursor
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", topic, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", begin.Cursor)
	events, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	lines := json.NewDecoder(dataOf(events.Body))
	reads("the event stream", func(m *notice) error { return lines.Decode(m) })

	reads("the callback", func(m *notice) error {
		select {
		case r := <-posted:
			doc, err := resourcesync.ReadXML(r.Body, resourcesync.Limits{})
			if err != nil || doc.Capability != resourcesync.FrameworkNotification || r.Header.Get("Content-Type") != "application/xml" || !strings.Contains(r.Header.Get("Link"), "<"+topic+`>; rel="self"`) {
				t.Errorf("a delivery is %+v, %v, with %v", doc, err, r.Header)
				return err
			}
			for _, it := range doc.Items {
				m.Changes = append(m.Changes, struct{ Loc, Change, Capability string }{it.Loc, string(it.Change.Change), it.Capability})
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if _, body := running.Do(t, "GET", topic, ""); !strings.Contains(body, `capability="framework-notification"`) {
		t.Errorf("the latest notification is %s", body)
	}
	if _, body := running.Do(t, "GET", h.URL+"/sets/demo/subscriptions", ""); !strings.Contains(body, `"topic":"`+topic+`"`) {
		t.Errorf("the subscriptions are %s", body)
	}
	for _, path := range []string{"/sets", "/.well-known/resourcesync", "/metrics"} {
		at := h.URL
		if path == "/metrics" {
			at = h.Ops
		}
		if _, body := running.Do(t, "GET", at+path, ""); strings.Contains(body, "demo:framework") {
			t.Errorf("%s names the log of the topic: %s", path, body)
		}
	}
	for _, test := range []struct {
		method, path string
		status       int
		kind         string
	}{
		{"POST", "/sets/demo/framework", 405, "method-not-allowed"},
		{"GET", "/sets/demo/framework?since=baseline", 400, "invalid"},
		{"GET", "/sets/demo/framework?since=nonsense", 400, "invalid"},
		{"GET", "/sets/demo/framework?since=9999-1", 410, "gone"},
		{"GET", "/sets/demo:framework/changes", 400, "invalid"},
		{"GET", "/sets/demo:framework", 400, "invalid"},
	} {
		resp, body := running.Do(t, test.method, h.URL+test.path, "")
		checkProblem(t, resp, body, test.status, test.kind)
	}

	// The topic outlives the set.
	if resp, body := running.Do(t, "DELETE", h.URL+"/sets/demo", ""); resp.StatusCode != 204 {
		t.Fatalf("DELETE: %d %s", resp.StatusCode, body)
	}
	var gone notice
	for len(gone.Changes) == 0 || gone.Changes[0].Capability != "capabilitylist" || gone.Changes[0].Change != "deleted" {
		if err := ws.ReadJSON(&gone); err != nil {
			t.Fatalf("after the end of the set: %v", err)
		}
	}
}

// dataOf returns the data of an event stream, and nothing else.
func dataOf(stream io.Reader) io.Reader {
	r, w := io.Pipe()
	go func() {
		text, buf := []byte(nil), make([]byte, 4<<10)
		for {
			n, err := stream.Read(buf)
			text = append(text, buf[:n]...)
			for {
				line, rest, ok := bytes.Cut(text, []byte("\n"))
				if !ok {
					break
				}
				text = rest
				if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
					_, _ = w.Write(append(data, '\n'))
				}
			}
			if err != nil {
				w.CloseWithError(err)
				return
			}
		}
	}()
	return r
}

// Hubs that share a memory tell a thing once, whichever of them looks, and each tells those who
// follow at it. It goes on when the hub that looked is gone. A copy takes the topic along.
func TestFrameworkOfSeveralHubs(t *testing.T) {
	t.Parallel()
	redis := "redis://" + redistest.Start(t).Addr
	config := Config{RedisURL: redis, BaseURL: "http://hub.example.org", ChangeListSize: 2}
	one, two := start(t, config), start(t, config)
	one.Publish("demo")
	next := map[*started]string{one: "now", two: "now"}
	for h, since := range next { // each may be the one that makes the log
		var m notice
		_, body := running.Do(t, "GET", h.URL+"/sets/demo/framework?since="+since, "", "Accept", "application/json")
		if err := json.Unmarshal([]byte(body), &m); err != nil || m.Cursor == "" {
			t.Fatalf("%v: %s", err, body)
		}
		next[h] = m.Cursor
	}
	begin := next[one]
	reads := func(h *started, want int) (locs []string) {
		t.Helper()
		for len(locs) < want {
			var m notice
			_, body := running.Do(t, "GET", h.URL+"/sets/demo/framework?wait=1m&since="+next[h], "", "Accept", "application/json")
			if err := json.Unmarshal([]byte(body), &m); err != nil || len(m.Changes) == 0 {
				t.Fatalf("%v: %s", err, body)
			}
			for _, c := range m.Changes {
				locs = append(locs, c.Loc+" "+c.Change)
			}
			next[h] = m.Cursor
		}
		return locs
	}
	two.Publish("demo")
	two.Publish("demo")
	first := reads(one, 2)
	if other := reads(two, 2); strings.Join(first, "\n") != strings.Join(other, "\n") || !strings.HasSuffix(first[0], "-1.xml updated") || !strings.HasSuffix(first[1], "-2.xml created") {
		t.Errorf("one hub tells %q, the other %q", first, other)
	}
	one.Stop()
	two.Publish("demo")
	if more := reads(two, 1); len(more) != 1 || !strings.HasSuffix(more[0], "-2.xml updated") {
		t.Errorf("the hub that is left tells %q", more)
	}
	two.Stop()

	dir := t.TempDir()
	from, err := OpenSource(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	to, err := OpenTarget(t.Context(), Config{Data: dir}, from.ID())
	if err == nil {
		_, err = transfer.Copy(t.Context(), from, to, slog.New(slog.DiscardHandler), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(to.Close(), from.Close()); err != nil {
		t.Fatal(err)
	}
	copied := start(t, Config{Data: dir, BaseURL: "http://hub.example.org", ChangeListSize: 2})
	var m notice
	_, body := running.Do(t, "GET", copied.URL+"/sets/demo/framework?since="+begin, "", "Accept", "application/json")
	if err := json.Unmarshal([]byte(body), &m); err != nil || len(m.Changes) < 3 || m.Changes[1].Capability != "changelist" {
		t.Errorf("the copy tells %s, %v", body, err)
	}
}
