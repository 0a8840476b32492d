package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/access/ticket"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/redistest"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

// A tokensFile is a tokens file that the test changes.
type tokensFile struct {
	path  string
	lines []string
	texts []string // tokens of the lines
}

func newTokensFile(t *testing.T, rights ...string) *tokensFile {
	t.Helper()
	file, texts := servertest.Tokens(rights...)
	f := &tokensFile{filepath.Join(t.TempDir(), "tokens"), strings.Split(strings.TrimSpace(file), "\n"), texts}
	f.write(t, f.lines...)
	return f
}

func (f *tokensFile) write(t *testing.T, lines ...string) {
	t.Helper()
	writeFile(t, f.path, strings.Join(lines, "\n")+"\n")
}

func (f *tokensFile) open(t *testing.T) *access.TokensFile {
	t.Helper()
	known, err := access.OpenTokensFile(f.path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return known
}

func (f *tokensFile) bearer(i int) []string { return bearer(f.texts[i]) }

// topic is the URL of a set's topic.
func (h *testHub) topic(set string) string { return h.URL + "/sets/" + set + "/changes" }

func makePrivate(h *testHub, set string, private bool, headers ...string) {
	h.Testing().Helper()
	h.describe(set, fmt.Sprintf(`{"private":%t}`, private), headers...)
}

// When a set becomes private or a token is withdrawn, followers over each transport are disconnected.
// Other followers stay connected.
func TestFollowersEndWithRights(t *testing.T) {
	t.Parallel()
	file := newTokensFile(t, "publish:*,follow:*", "follow:a", "anyone - follow:*")
	h := start(t, Config{Callers: file.open(t), Metrics: prometheus.NewRegistry()})
	owner := file.bearer(0)
	h.Publish("a", owner...)
	connect := func(by []string) *websocket.Conn {
		t.Helper()
		header := http.Header{}
		if by != nil {
			header.Set(by[0], by[1])
		}
		ws, _, err := websocket.DefaultDialer.Dial(strings.Replace(h.topic("a"), "http", "ws", 1)+"?since=now", header)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ws.Close() })
		return ws
	}
	ours := connect(owner)
	for _, step := range []struct {
		by     []string
		end    func()
		status int // status of the long poll
	}{
		{nil, func() { makePrivate(h, "a", true, owner...) }, http.StatusNotFound},
		{file.bearer(1), func() { file.write(t, file.lines[0]) }, http.StatusUnauthorized},
	} {
		ws, stream := connect(step.by), followEvents(t, http.DefaultClient, h.topic("a"), step.by...)
		polled := h.startPoll(http.DefaultClient, "a", step.by...)
		step.end()
		var err error
		for err == nil {
			_, _, err = ws.ReadMessage()
		}
		if !websocket.IsCloseError(err, 4401) {
			t.Errorf("the WebSocket ended with %v, want code 4401", err)
		}
		if resp := <-polled; resp.StatusCode != step.status {
			t.Errorf("long poll: got %+v, want %d", resp, step.status)
		}
		stream.waitForEnd()
	}
	h.Publish("a", owner...)
	for found := false; !found; {
		_, message, err := ours.ReadMessage()
		if err != nil {
			t.Fatalf("read the other WebSocket: %v", err)
		}
		found = strings.Contains(string(message), "example.org/a")
	}
	// An invalid file leaves the previous tokens in force, and /readyz reports it.
	file.write(t, "nonsense")
	testutil.Until(t, "the file is read", func() bool { return h.server.callers.authenticator.Err() != nil })
	if ready, checks := readiness(t, h); !ready || checks["callers"].OK || checks["callers"].Required || !strings.Contains(checks["callers"].Reason, "line 1") {
		t.Errorf("readyz: got %t, %v, want ready with the error of line 1", ready, checks)
	}
	h.Publish("a", owner...)
}

// A change of rights at one hub disconnects followers of all hubs, and a ticket, which all hubs accept,
// ends with its token. A set that becomes public again can be followed at all hubs immediately, even
// at a hub that last saw it private.
func TestFollowersEndAtAllHubs(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	file := newTokensFile(t, "publish:*,follow:*", "follow:*", "anyone - follow:*")
	owner := file.bearer(0)
	config := func() Config {
		return Config{RedisURL: "redis://" + redis.Addr, BaseURL: "http://hub.example.org", Callers: file.open(t)}
	}
	follow := func(h *testHub, set string, by ...string) *stream {
		return followEvents(t, http.DefaultClient, h.topic(set), by...)
	}
	a := start(t, config())
	a.Publish("shown", owner...)
	a.Publish("hidden", owner...)
	makePrivate(a, "hidden", true, owner...)
	b := start(t, config()) // reads at its start which sets are private

	// Nobody has followed at b with the rights of anyone yet.
	makePrivate(a, "hidden", false, owner...)
	open := follow(b, "hidden")
	b.Publish("hidden", owner...)
	open.waitFor(`"loc"`)

	given, _ := ticketFor(a, file.texts[1], "shown", "")
	stays, cut := follow(b, "shown", owner...), []*stream{follow(a, "shown"), follow(b, "shown")}
	theirs := []*stream{follow(a, "shown", file.bearer(1)...), follow(b, "shown", file.bearer(1)...), follow(b, "shown", "Cookie", ticket.Cookie+"="+given.Ticket)}
	makePrivate(a, "shown", true, owner...)
	file.write(t, file.lines[0], file.lines[2])
	for _, s := range append(cut, theirs...) {
		s.waitForEnd()
	}
	b.Publish("shown", owner...)
	stays.waitFor(`"loc"`)
	makePrivate(b, "shown", false, owner...)
	again := follow(a, "shown")
	a.Publish("shown", owner...)
	again.waitFor(`"loc"`)
}

// Followers of a set that another hub made private are disconnected within the promised ten seconds,
// however long a read of the sets takes.
func TestOtherHubMakesPrivate(t *testing.T) {
	for _, delay := range []time.Duration{0, 20 * time.Millisecond, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			memory := &setsLog{sets: []feed.State{{Set: "a"}}, onList: func() { time.Sleep(delay) }}
			known, _ := tokens(t, "anyone - follow:*")
			c := newCallers(&Config{Callers: known}, prometheus.NewRegistry(), nil, slog.New(slog.DiscardHandler))
			c.start(t.Context(), memory, createsAll{}, ticket.NewLocalKeys(), 0)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); c.run(ctx) }()
			anyone, _ := known.CallerByName("", "")
			ended := make(chan time.Time, 1)
			defer c.WhileFollowing(access.NewContext(ctx, anyone), "a", func(error) { ended <- time.Now() })()
			time.Sleep(time.Minute + time.Millisecond)
			memory.private.Store(true)
			begin := time.Now()
			if took := (<-ended).Sub(begin); took > 10*time.Second {
				t.Errorf("with reads of %v: disconnected after %v, want at most 10s", delay, took)
			}
			cancel()
			<-done
		})
	}
}

// createsAll creates any set on the first publish.
type createsAll struct{}

func (createsAll) Waits(string) bool { return true }

// A setsLog is a changelog.Log that only lists sets.
type setsLog struct {
	changelog.Log
	sets    []feed.State
	onList  func()      // called by Sets
	private atomic.Bool // whether the first set is private
}

func (l *setsLog) Sets(context.Context, ...string) ([]feed.State, error) {
	sets := slices.Clone(l.sets)
	sets[0].Private = l.private.Load()
	l.onList()
	return sets, nil
}

// When rights end, so do a publish in progress, a read of resources and a download of a document.
func TestTransfersEndWithRights(t *testing.T) {
	t.Parallel()
	file := newTokensFile(t, "publish:*,follow:*", "publish:*,follow:*")
	h := start(t, Config{Callers: file.open(t)})
	lines := append(file.bearer(1), asNDJSON...)
	h.wantStatus(200, "POST", "/sets/a/changes", changes(6000, 1000), lines...) // more than the buffers of the connection hold
	follow := func(by int) *stream { return followEvents(t, http.DefaultClient, h.topic("b"), file.bearer(by)...) }
	seen, theirs := follow(0), follow(1)
	slow := http.Client{Transport: &http.Transport{DisableCompression: true, DialContext: smallBuffer(256 << 10)}}
	defer slow.CloseIdleConnections()
	resources := sendRequest(t, &slow, "GET", h.URL+"/sets/a/resources", nil, append(file.bearer(1), "Accept", "application/x-ndjson")...)
	document := sendRequest(t, &slow, "GET", h.URL+"/sets/a/changelist.xml", nil, file.bearer(1)...)
	for _, slowly := range []*http.Response{resources, document} {
		if _, err := slowly.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	body, stream := io.Pipe()
	defer stream.Close()
	published := make(chan *http.Response, 1)
	go func() { published <- sendRequest(t, http.DefaultClient, "POST", h.topic("b"), body, lines...) }()
	if _, err := io.WriteString(stream, changes(1000, 1000)); err != nil {
		t.Fatal(err)
	}
	seen.waitFor(`"loc"`)

	file.write(t, file.lines[0])
	theirs.waitForEnd()
	if _, err := io.Copy(io.Discard, resources.Body); err == nil {
		t.Error("stream of resources: got no error, want it cut off")
	}
	if _, err := io.Copy(io.Discard, document.Body); err == nil {
		t.Error("document: got no error, want it cut off")
	}
	resp := <-published
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	checkProblem(t, resp, string(text), http.StatusUnauthorized, "unauthorized")
	if !strings.Contains(string(text), `"count":1000`) || resp.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("publish: got %s, want the count and WWW-Authenticate", text)
	}
}

// smallBuffer returns a dialer of connections with a small read buffer; 0 means the default.
func smallBuffer(bytes int) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err == nil && bytes > 0 {
			err = conn.(*net.TCPConn).SetReadBuffer(bytes)
		}
		return conn, err
	}
}

// ticketFor requests a ticket.
func ticketFor(h *testHub, token, set, body string) (ticket.View, *http.Response) {
	h.Testing().Helper()
	resp, text := servertest.Do(h.Testing(), "POST", h.URL+"/sets/"+set+"/ticket", body, bearer(token)...)
	var v ticket.View
	if err := json.Unmarshal([]byte(text), &v); err != nil || resp.StatusCode != http.StatusOK {
		h.Testing().Fatalf("POST ticket: got %d %s, want 200", resp.StatusCode, text)
	}
	return v, resp
}

// A browser follows a set that requires a token with a ticket, which no response or log shows to
// others. TestMatrix checks what a ticket allows.
func TestTicket(t *testing.T) {
	known, texts := tokens(t, "publish:*,follow:*", "follow:a", "anyone - follow:open")
	h := start(t, Config{Callers: known, BaseURL: "https://hub.example.org/rs"}, slog.LevelDebug)
	for _, set := range []string{"a", "open"} {
		h.Publish(set, bearer(texts[0])...)
	}
	v, resp := ticketFor(h, texts[1], "a", "")
	if resp.Header.Get("Cache-Control") != "no-store" || !strings.HasPrefix(v.URL, "https://hub.example.org/rs/sets/a/changes?ticket=") || v.Ticket == "" || resp.Header.Get("Set-Cookie") != "" {
		t.Errorf("ticket: got %+v %v, want a URL, no-store and no cookie", v, resp.Header)
	}
	if expires, err := time.Parse(time.RFC3339, v.Expires); err != nil || time.Until(expires) > access.DefaultTicketLifetime || time.Until(expires) < access.DefaultTicketLifetime-time.Minute {
		t.Errorf("Expires = %s, want in %v", v.Expires, access.DefaultTicketLifetime)
	}
	resp, body := servertest.Do(t, "GET", h.URL+"/sets/a/changes?since=start&ticket="+v.Ticket, "", "Accept", "application/json")
	if resp.StatusCode != http.StatusOK || strings.Contains(body, v.Ticket) || strings.Contains(strings.Join(resp.Header["Link"], ","), v.Ticket) {
		t.Errorf("page: got %d %s %v, want 200 without the ticket", resp.StatusCode, body, resp.Header)
	}
	resp, _ = servertest.Do(t, "GET", h.URL+"/sets/a/changelist.xml?ticket="+v.Ticket, "")
	if resp.StatusCode != http.StatusOK || strings.Contains(resp.Header.Get("Cache-Control"), "public") {
		t.Errorf("Change List: got %d %v, want 200 and no public cache", resp.StatusCode, resp.Header)
	}
	if strings.Contains(h.log.String(), v.Ticket) {
		t.Error("log contains the ticket, want it absent")
	}

	_, resp = ticketFor(h, texts[1], "a", `{"cookie":true,"seconds":60}`)
	cookie := resp.Header.Get("Set-Cookie")
	for _, part := range []string{"rshub-ticket=", "; Path=/rs/sets/a/;", "; HttpOnly", "; Secure", "; SameSite=Strict"} {
		if !strings.Contains(cookie, part) {
			t.Errorf("cookie %s lacks %s", cookie, part)
		}
	}
	if v, _ := ticketFor(h, "", "open", ""); v != (ticket.View{URL: "https://hub.example.org/rs/sets/open/changes"}) {
		t.Errorf("ticket without a token = %+v, want only the URL", v)
	}
	for body, want := range map[string]string{`{"seconds":0}`: "seconds", `{"seconds":3601}`: "seconds", `{"minutes":1}`: "minutes", `[]`: "invalid body"} {
		if detail := h.wantProblem(400, "invalid", "POST", "/sets/a/ticket", body, bearer(texts[1])...); !strings.Contains(detail, want) {
			t.Errorf("ticket with %s: got %q, want a part %q", body, detail, want)
		}
	}
}

// Without tokens, a ticket is empty and any ticket is ignored, so that pages need no special case.
func TestTicketWithoutTokens(t *testing.T) {
	h := start(t, Config{})
	h.Publish("a")
	if v, _ := ticketFor(h, "", "a", ""); v.Ticket != "" || v.Expires != "" {
		t.Errorf("ticket = %+v, want none", v)
	}
	h.wantStatus(200, "GET", "/sets/a/changes?since=start&ticket=old", "")
}
