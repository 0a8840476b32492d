package server

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/internal/servertest"
)

// ticketFor asks for a ticket.
func ticketFor(h *started, token, set, body string) (ticketView, *http.Response) {
	h.Testing().Helper()
	var headers []string
	if token != "" {
		headers = bearer(token)
	}
	resp, text := servertest.Do(h.Testing(), "POST", h.URL+"/sets/"+set+"/ticket", body, headers...)
	var v ticketView
	if err := json.Unmarshal([]byte(text), &v); err != nil || resp.StatusCode != http.StatusOK {
		h.Testing().Fatalf("%d %s", resp.StatusCode, text)
	}
	return v, resp
}

// With a ticket a browser follows a set that needs a token, and nothing shows the ticket to
// others. What can be done with it, and what not, is what TestMatrix says.
func TestTicket(t *testing.T) {
	known, texts := tokens(t, "publish:*,follow:*", "follow:a", "anyone - follow:open")
	h := start(t, Config{Callers: known, BaseURL: "https://hub.example.org/rs"}, slog.LevelDebug)
	for _, set := range []string{"a", "open"} {
		h.Publish(set, bearer(texts[0])...)
	}
	v, resp := ticketFor(h, texts[1], "a", "")
	if resp.Header.Get("Cache-Control") != "no-store" || !strings.HasPrefix(v.URL, "https://hub.example.org/rs/sets/a/changes?ticket=") || v.Ticket == "" || resp.Header.Get("Set-Cookie") != "" {
		t.Errorf("%+v %v", v, resp.Header)
	}
	if expires, err := time.Parse(time.RFC3339, v.Expires); err != nil || time.Until(expires) > access.TicketLasts || time.Until(expires) < access.TicketLasts-time.Minute {
		t.Errorf("it expires at %s", v.Expires)
	}
	resp, body := servertest.Do(t, "GET", h.URL+"/sets/a/changes?since=start&ticket="+v.Ticket, "", "Accept", "application/json")
	if resp.StatusCode != http.StatusOK || strings.Contains(body, v.Ticket) || strings.Contains(strings.Join(resp.Header["Link"], ","), v.Ticket) {
		t.Errorf("%d %s %v", resp.StatusCode, body, resp.Header)
	}
	resp, _ = servertest.Do(t, "GET", h.URL+"/sets/a/changelist.xml?ticket="+v.Ticket, "")
	if resp.StatusCode != http.StatusOK || strings.Contains(resp.Header.Get("Cache-Control"), "public") {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if strings.Contains(h.log.String(), v.Ticket) {
		t.Error("the log shows the ticket")
	}

	_, resp = ticketFor(h, texts[1], "a", `{"cookie":true,"seconds":60}`)
	cookie := resp.Header.Get("Set-Cookie")
	for _, part := range []string{"rshub-ticket=", "; Path=/rs/sets/a/;", "; HttpOnly", "; Secure", "; SameSite=Strict"} {
		if !strings.Contains(cookie, part) {
			t.Errorf("the cookie %s has no %s", cookie, part)
		}
	}
	if v, _ := ticketFor(h, "", "open", ""); v != (ticketView{URL: "https://hub.example.org/rs/sets/open/changes"}) {
		t.Errorf("without a token: %+v", v)
	}
	for body, want := range map[string]string{`{"seconds":0}`: "seconds", `{"seconds":3601}`: "seconds", `{"minutes":1}`: "minutes", `{} {}`: "follows", `[]`: "the body is"} {
		if detail := h.refuses(400, "invalid", "POST", "/sets/a/ticket", body, bearer(texts[1])...); !strings.Contains(detail, want) {
			t.Errorf("%s: %s", body, detail)
		}
	}
}

// Where there are no tokens, a ticket is not needed, and a page need not know that.
func TestTicketWithoutTokens(t *testing.T) {
	h := start(t, Config{})
	h.Publish("a")
	v, _ := ticketFor(h, "", "a", "")
	if v.Ticket != "" || v.Expires != "" {
		t.Errorf("%+v", v)
	}
	h.wants(200, "GET", "/sets/a/changes?since=start&ticket=old", "")
}
