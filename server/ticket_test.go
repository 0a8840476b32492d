package server

import (
	"bufio"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/internal/redistest"
	"github.com/rshub/rshub/internal/servertest"
	"github.com/rshub/rshub/internal/untiltest"
)

// ticketFor asks for a ticket.
func ticketFor(t *testing.T, h *started, token, set, body string) (ticketView, *http.Response) {
	t.Helper()
	var headers []string
	if token != "" {
		headers = []string{"Authorization", "Bearer " + token}
	}
	resp, text := servertest.Do(t, "POST", h.URL+"/sets/"+set+"/ticket", body, headers...)
	var v ticketView
	if err := json.Unmarshal([]byte(text), &v); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	return v, resp
}

// With a ticket a browser follows a set that needs a token, on every transport, and can do
// nothing else.
func TestTicket(t *testing.T) {
	known, texts := tokens(t, "publish:*,follow:*", "follow:a", "anyone - follow:open")
	h := start(t, Config{Callers: known, BaseURL: "https://hub.example.org/rs"}, slog.LevelDebug)
	for _, set := range []string{"a", "b", "open"} {
		h.Publish(set, "Authorization", "Bearer "+texts[0])
	}
	v, resp := ticketFor(t, h, texts[1], "a", "")
	if resp.Header.Get("Cache-Control") != "no-store" || !strings.HasPrefix(v.URL, "https://hub.example.org/rs/sets/a/changes?ticket=") || v.Ticket == "" || resp.Header.Get("Set-Cookie") != "" {
		t.Errorf("%+v %v", v, resp.Header)
	}
	if expires, err := time.Parse(time.RFC3339, v.Expires); err != nil || time.Until(expires) > access.TicketLasts || time.Until(expires) < access.TicketLasts-time.Minute {
		t.Errorf("it expires at %s", v.Expires)
	}
	query := "?" + url.Values{"ticket": {v.Ticket}, "since": {"start"}}.Encode()
	topic := h.URL + "/sets/a/changes"

	ws, wsResp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(topic, "http")+query, nil)
	if err != nil {
		t.Fatal(err, wsResp)
	}
	defer ws.Close()
	for found := false; !found; {
		_, message, err := ws.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		found = strings.Contains(string(message), `"changes":[{`)
	}
	events, err := http.NewRequestWithContext(t.Context(), "GET", topic+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	events.Header.Set("Accept", "text/event-stream")
	stream, err := http.DefaultClient.Do(events)
	if err != nil || stream.StatusCode != http.StatusOK {
		t.Fatal(err, stream)
	}
	defer stream.Body.Close()
	for lines := bufio.NewScanner(stream.Body); lines.Scan() && !strings.Contains(lines.Text(), `"changes":[{`); {
	}
	resp, body := servertest.Do(t, "GET", topic+query, "", "Accept", "application/json")
	if resp.StatusCode != http.StatusOK || strings.Contains(body, v.Ticket) || strings.Contains(strings.Join(resp.Header["Link"], ","), v.Ticket) {
		t.Errorf("%d %s %v", resp.StatusCode, body, resp.Header)
	}
	resp, _ = servertest.Do(t, "GET", h.URL+"/sets/a/changelist.xml?ticket="+v.Ticket, "")
	if resp.StatusCode != http.StatusOK || strings.Contains(resp.Header.Get("Cache-Control"), "public") {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}

	for _, test := range []struct {
		method, path, body string
		status             int
		headers            []string
	}{
		{"GET", "/sets/b/changes" + query, "", 403, nil},
		{"GET", "/sets/open/changes" + query, "", 200, []string{"Accept", "application/json"}},
		{"POST", "/sets/a/changes?ticket=" + v.Ticket, `{"changes":[]}`, 401, []string{"Content-Type", "application/json"}},
		{"PUT", "/sets/a?ticket=" + v.Ticket, `{}`, 401, nil},
		{"DELETE", "/sets/a?ticket=" + v.Ticket, "", 401, nil},
		{"POST", "/sets/a/ticket?ticket=" + v.Ticket, "", 401, nil},
		{"GET", "/sets/a/ticket?ticket=" + v.Ticket, "", 405, nil},
		{"GET", "/sets/a/subscriptions?ticket=" + v.Ticket, "", 403, nil},
		{"GET", "/sets/a/changes?ticket=" + v.Ticket + "x", "", 401, nil},
		{"GET", "/sets/open/changes?ticket=x", "", 401, nil},
		{"GET", "/sets/b/changes" + query, "", 200, []string{"Authorization", "Bearer " + texts[0], "Accept", "application/json"}},
		{"GET", "/sets/a/changes?since=start", "", 200, []string{"Cookie", "rshub-ticket=" + v.Ticket, "Accept", "application/json"}},
		{"GET", "/sets/open/changes?since=start", "", 200, []string{"Cookie", "rshub-ticket=old", "Accept", "application/json"}},
		{"GET", "/sets/a/changes?since=start", "", 401, []string{"Cookie", "rshub-ticket=old"}},
	} {
		resp, body := servertest.Do(t, test.method, h.URL+test.path, test.body, test.headers...)
		if resp.StatusCode != test.status || strings.Contains(body, v.Ticket) {
			t.Errorf("%s %.40s: %d %s, want %d", test.method, test.path, resp.StatusCode, body, test.status)
		}
	}
	if resp, _ := servertest.Do(t, "GET", h.Ops+"/backup"+query, ""); resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
		t.Error("a ticket is good at the operations address")
	}
	if strings.Contains(h.log.String(), v.Ticket) {
		t.Error("the log shows the ticket")
	}

	_, resp = ticketFor(t, h, texts[1], "a", `{"cookie":true,"seconds":60}`)
	cookie := resp.Header.Get("Set-Cookie")
	for _, part := range []string{"rshub-ticket=", "; Path=/rs/sets/a/;", "; HttpOnly", "; Secure", "; SameSite=Strict"} {
		if !strings.Contains(cookie, part) {
			t.Errorf("the cookie %s has no %s", cookie, part)
		}
	}
	if v, _ := ticketFor(t, h, "", "open", ""); v != (ticketView{URL: "https://hub.example.org/rs/sets/open/changes"}) {
		t.Errorf("without a token: %+v", v)
	}
	for body, want := range map[string]string{`{"seconds":0}`: "seconds", `{"seconds":3601}`: "seconds", `{"minutes":1}`: "minutes", `{} {}`: "follows", `[]`: "the body is"} {
		resp, text := servertest.Do(t, "POST", h.URL+"/sets/a/ticket", body, "Authorization", "Bearer "+texts[1])
		if checkProblem(t, resp, text, 400, "invalid"); !strings.Contains(text, want) {
			t.Errorf("%s: %s", body, text)
		}
	}
}

// Where there are no tokens, a ticket is not needed, and a page need not know that.
func TestTicketWithoutTokens(t *testing.T) {
	h := start(t, Config{})
	h.Publish("a")
	v, _ := ticketFor(t, h, "", "a", "")
	if v.Ticket != "" || v.Expires != "" {
		t.Errorf("%+v", v)
	}
	if resp, body := servertest.Do(t, "GET", v.URL+"?since=start&ticket=old", "", "Accept", "application/json"); resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// A ticket is good at every hub of several, and ends with its token at all of them.
func TestTicketOfSeveralHubs(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	file, texts := servertest.Tokens("publish:*,follow:*", "follow:a")
	path := t.TempDir() + "/tokens"
	writeFile(t, path, file)
	var hubs []*started
	for range 2 {
		known, err := access.OpenTokensFile(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		hubs = append(hubs, start(t, Config{Callers: known, RedisURL: "redis://" + redis.Addr, BaseURL: "https://hub.example.org"}))
	}
	hubs[0].Publish("a", "Authorization", "Bearer "+texts[0])
	v, _ := ticketFor(t, hubs[0], texts[1], "a", `{"seconds":3600}`)
	request, err := http.NewRequestWithContext(t.Context(), "GET", hubs[1].URL+"/sets/a/changes?since=now&ticket="+v.Ticket, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream")
	stream, err := http.DefaultClient.Do(request)
	if err != nil || stream.StatusCode != http.StatusOK {
		t.Fatal(err, stream)
	}
	defer stream.Body.Close()
	writeFile(t, path, strings.SplitAfter(file, "\n")[0])
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Errorf("the event stream: %v", err)
	}
	untiltest.Done(t, "the ticket is good at no hub", func() bool {
		for _, h := range hubs {
			if resp, _ := servertest.Do(t, "GET", h.URL+"/sets/a/changes?ticket="+v.Ticket, ""); resp.StatusCode != http.StatusUnauthorized {
				return false
			}
		}
		return true
	})
}
