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

// A tokensFile is a file of tokens that a test changes.
type tokensFile struct {
	path  string
	lines []string
	texts []string // tokens
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
func (h *started) topic(set string) string { return h.URL + "/sets/" + set + "/changes" }

func makePrivate(h *started, set string, private bool, headers ...string) {
	h.Testing().Helper()
	h.describes(set, fmt.Sprintf(`{"private":%t}`, private), headers...)
}

// What follows by rights that end is cut off within ten seconds, in each of the ways to
// follow: when a set is not for anyone any more, and when a token is withdrawn. What others
// follow goes on.
func TestRightsEnd(t *testing.T) {
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
		status int // of what anyone gets of a private set, and of a token that is not good
	}{
		{nil, func() { makePrivate(h, "a", true, owner...) }, http.StatusNotFound},
		{file.bearer(1), func() { file.write(t, file.lines[0]) }, http.StatusUnauthorized},
	} {
		ws, stream := connect(step.by), events(t, http.DefaultClient, h.topic("a"), step.by...)
		polled := h.polls(http.DefaultClient, "a", step.by...)
		step.end()
		var err error
		for err == nil {
			_, _, err = ws.ReadMessage()
		}
		if !websocket.IsCloseError(err, 4401) {
			t.Errorf("the WebSocket ends with %v", err)
		}
		if resp := <-polled; resp.StatusCode != step.status {
			t.Errorf("the long poll is answered %+v", resp)
		}
		stream.ends()
	}
	h.Publish("a", owner...)
	for found := false; !found; {
		_, message, err := ours.ReadMessage()
		if err != nil {
			t.Fatalf("the other WebSocket: %v", err)
		}
		found = strings.Contains(string(message), "example.org/a")
	}
	// A file with a mistake leaves the tokens in force, and /readyz says so.
	file.write(t, "nonsense")
	testutil.Until(t, "the file is read", func() bool { return h.server.callers.authenticator.Err() != nil })
	if ready, checks := readiness(t, h); !ready || checks["callers"].OK || checks["callers"].Required || !strings.Contains(checks["callers"].Reason, "line 1") {
		t.Errorf("ready is %t, %v", ready, checks)
	}
	h.Publish("a", owner...)
}

// What one hub is told ends connections at all hubs, and a ticket, which is good at each of
// them, ends with its token. What is public again can be followed at all hubs at once, also
// where a hub has last seen it private.
func TestRightsEndAtAllHubs(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	file := newTokensFile(t, "publish:*,follow:*", "follow:*", "anyone - follow:*")
	owner := file.bearer(0)
	config := func() Config {
		return Config{RedisURL: "redis://" + redis.Addr, BaseURL: "http://hub.example.org", Callers: file.open(t)}
	}
	follow := func(h *started, set string, by ...string) *stream {
		return events(t, http.DefaultClient, h.topic(set), by...)
	}
	a := start(t, config())
	a.Publish("shown", owner...)
	a.Publish("hidden", owner...)
	makePrivate(a, "hidden", true, owner...)
	b := start(t, config()) // which sees at its start what is private

	// Nobody has followed anything at b by anyone's rights.
	makePrivate(a, "hidden", false, owner...)
	open := follow(b, "hidden")
	b.Publish("hidden", owner...)
	open.gets(`"loc"`)

	given, _ := ticketFor(a, file.texts[1], "shown", "")
	stays, cut := follow(b, "shown", owner...), []*stream{follow(a, "shown"), follow(b, "shown")}
	theirs := []*stream{follow(a, "shown", file.bearer(1)...), follow(b, "shown", file.bearer(1)...), follow(b, "shown", "Cookie", ticket.Cookie+"="+given.Ticket)}
	makePrivate(a, "shown", true, owner...)
	file.write(t, file.lines[0], file.lines[2])
	for _, s := range append(cut, theirs...) {
		s.ends()
	}
	b.Publish("shown", owner...)
	stays.gets(`"loc"`)
	makePrivate(b, "shown", false, owner...)
	again := follow(a, "shown")
	a.Publish("shown", owner...)
	again.gets(`"loc"`)
}

// What another hub has made private ends here within the ten seconds of the promise, of which
// what is held needs one more, however long a look takes.
func TestOtherHubMakesPrivate(t *testing.T) {
	for _, takes := range []time.Duration{0, 20 * time.Millisecond, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			memory := &listed{sets: []feed.State{{Set: "a"}}, reads: func() { time.Sleep(takes) }}
			known, _ := tokens(t, "anyone - follow:*")
			c := newCallers(&Config{Callers: known}, prometheus.NewRegistry(), nil, slog.New(slog.DiscardHandler))
			c.start(t.Context(), memory, makesAll{}, ticket.NewOwnKeys(), 0)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); c.run(ctx) }()
			anyone, _ := known.Named("", "")
			ended := make(chan time.Time, 1)
			defer c.WhileFollowing(access.NewContext(ctx, anyone), "a", func(error) { ended <- time.Now() })()
			time.Sleep(time.Minute + time.Millisecond)
			memory.private.Store(true)
			begin := time.Now()
			if took := (<-ended).Sub(begin); took > 10*time.Second {
				t.Errorf("with looks of %v it took %v", takes, took)
			}
			cancel()
			<-done
		})
	}
}

// A makesAll makes any set by the first publish.
type makesAll struct{}

func (makesAll) Waits(string) bool { return true }

// A listed is a memory that lists sets.
type listed struct {
	changelog.Log
	sets    []feed.State
	reads   func()      // what else it does
	private atomic.Bool // the first set
}

func (l *listed) Sets(context.Context, ...string) ([]feed.State, error) {
	sets := slices.Clone(l.sets)
	sets[0].Private = l.private.Load()
	l.reads()
	return sets, nil
}

// When rights end, so does a stream of changes that is published, and one of resources that
// is read, and a document.
func TestStreamsEnd(t *testing.T) {
	t.Parallel()
	file := newTokensFile(t, "publish:*,follow:*", "publish:*,follow:*")
	h := start(t, Config{Callers: file.open(t)})
	lines := append(file.bearer(1), asNDJSON...)
	h.wants(200, "POST", "/sets/a/changes", changes(6000, 1000), lines...) // more than lies between here and there
	follows := func(by int) *stream { return events(t, http.DefaultClient, h.topic("b"), file.bearer(by)...) }
	seen, theirs := follows(0), follows(1)
	slow := http.Client{Transport: &http.Transport{DisableCompression: true, DialContext: smallBuffer(256 << 10)}}
	defer slow.CloseIdleConnections()
	resources := ask(t, &slow, "GET", h.URL+"/sets/a/resources", nil, append(file.bearer(1), "Accept", "application/x-ndjson")...)
	document := ask(t, &slow, "GET", h.URL+"/sets/a/changelist.xml", nil, file.bearer(1)...)
	for _, slowly := range []*http.Response{resources, document} {
		if _, err := slowly.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	body, stream := io.Pipe()
	defer stream.Close()
	published := make(chan *http.Response, 1)
	go func() { published <- ask(t, http.DefaultClient, "POST", h.topic("b"), body, lines...) }()
	if _, err := io.WriteString(stream, changes(1000, 1000)); err != nil {
		t.Fatal(err)
	}
	seen.gets(`"loc"`)

	file.write(t, file.lines[0])
	theirs.ends()
	if _, err := io.Copy(io.Discard, resources.Body); err == nil {
		t.Error("the stream of resources goes on to its end")
	}
	if _, err := io.Copy(io.Discard, document.Body); err == nil {
		t.Error("a document goes on to its end")
	}
	resp := <-published
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	checkProblem(t, resp, string(text), http.StatusUnauthorized, "unauthorized")
	if !strings.Contains(string(text), `"count":1000`) || resp.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("the publisher is told %s", text)
	}
}

// smallBuffer dials connections that take little ahead of who reads them.
func smallBuffer(bytes int) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err == nil && bytes > 0 {
			err = conn.(*net.TCPConn).SetReadBuffer(bytes)
		}
		return conn, err
	}
}

// ticketFor asks for a ticket.
func ticketFor(h *started, token, set, body string) (ticket.View, *http.Response) {
	h.Testing().Helper()
	resp, text := servertest.Do(h.Testing(), "POST", h.URL+"/sets/"+set+"/ticket", body, bearer(token)...)
	var v ticket.View
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
	if v, _ := ticketFor(h, "", "open", ""); v != (ticket.View{URL: "https://hub.example.org/rs/sets/open/changes"}) {
		t.Errorf("without a token: %+v", v)
	}
	for body, want := range map[string]string{`{"seconds":0}`: "seconds", `{"seconds":3601}`: "seconds", `{"minutes":1}`: "minutes", `[]`: "the body is"} {
		if detail := h.refuses(400, "invalid", "POST", "/sets/a/ticket", body, bearer(texts[1])...); !strings.Contains(detail, want) {
			t.Errorf("%s: %s", body, detail)
		}
	}
}

// Where there are no tokens, a ticket is not needed, and a page need not know that.
func TestTicketWithoutTokens(t *testing.T) {
	h := start(t, Config{})
	h.Publish("a")
	if v, _ := ticketFor(h, "", "a", ""); v.Ticket != "" || v.Expires != "" {
		t.Errorf("%+v", v)
	}
	h.wants(200, "GET", "/sets/a/changes?since=start&ticket=old", "")
}
