package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/internal/redistest"
	"github.com/rshub/rshub/internal/servertest"
	"github.com/rshub/rshub/internal/untiltest"
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

func (f *tokensFile) bearer(i int) []string { return []string{"Authorization", "Bearer " + f.texts[i]} }

// A followed is an event stream.
type followed struct {
	t     *testing.T
	lines *bufio.Scanner
	what  string
}

// events follows a set by an event stream.
func events(t *testing.T, h *started, set string, headers ...string) *followed {
	t.Helper()
	resp := ask(t, "GET", h.URL+"/sets/"+set+"/changes?since=now", nil, append(headers, "Accept", "text/event-stream")...)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("following is answered %d", resp.StatusCode)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 4<<20)
	return &followed{t, lines, fmt.Sprintf("an event stream of %s at %s", set, h.URL)}
}

// gets waits until a change has come.
func (f *followed) gets() {
	f.t.Helper()
	for f.lines.Scan() {
		if strings.Contains(f.lines.Text(), `"loc"`) {
			return
		}
	}
	f.t.Errorf("%s ends: %v", f.what, f.lines.Err())
}

// ends waits until the stream has ended, which takes ten seconds at most.
func (f *followed) ends(begin time.Time) {
	f.t.Helper()
	for f.lines.Scan() {
		continue
	}
	if took := time.Since(begin); f.lines.Err() != nil || took > 30*time.Second { // other work on the machine delays it
		f.t.Errorf("%s ends after %v: %v", f.what, took, f.lines.Err())
	}
}

// ask makes a request, and leaves the body of the answer to be read.
func ask(t *testing.T, method, url string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	return askBy(t, http.DefaultClient, method, url, body, headers...)
}

func askBy(t *testing.T, by *http.Client, method, url string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := by.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func makePrivate(t *testing.T, h *started, set string, private bool, headers ...string) {
	t.Helper()
	if resp, body := servertest.Do(t, "PUT", h.URL+"/sets/"+set, fmt.Sprintf(`{"private":%t}`, private), headers...); resp.StatusCode != http.StatusOK {
		t.Fatalf("PUT is answered %d %s", resp.StatusCode, body)
	}
}

// What follows by rights that end is cut off within ten seconds, in each of the ways to
// follow: when a set is not for anyone any more, and when a token is withdrawn. What others
// follow goes on.
func TestRightsEnd(t *testing.T) {
	t.Parallel()
	file := newTokensFile(t, "publish:*,follow:*", "follow:a", "anyone - follow:*")
	h := start(t, Config{Callers: file.open(t)})
	owner := file.bearer(0)
	h.Publish("a", owner...)
	connect := func(by []string) *websocket.Conn {
		t.Helper()
		header := http.Header{}
		if by != nil {
			header.Set(by[0], by[1])
		}
		ws, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(h.URL, "http")+"/sets/a/changes?since=now", header)
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
		{nil, func() { makePrivate(t, h, "a", true, owner...) }, http.StatusNotFound},
		{file.bearer(1), func() { file.write(t, file.lines[0]) }, http.StatusUnauthorized},
	} {
		ws, stream := connect(step.by), events(t, h, "a", step.by...)
		polled := make(chan *http.Response, 1)
		go func() { polled <- ask(t, "GET", h.URL+"/sets/a/changes?since=now&wait=5m", nil, step.by...) }()
		untiltest.Done(t, "the poll waits", func() bool {
			_, body := servertest.Do(t, "GET", h.Ops+"/metrics", "")
			return strings.Contains(body, "\nrshub_followers{kind=\"longpoll\"} 1\n")
		})
		begin := time.Now()
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
		stream.ends(begin)
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
	untiltest.Done(t, "/readyz names the file", func() bool {
		ready, checks := readiness(t, h)
		return ready && !checks["callers"].OK && !checks["callers"].Required && strings.Contains(checks["callers"].Reason, "line 1")
	})
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
	a := start(t, config())
	a.Publish("shown", owner...)
	a.Publish("hidden", owner...)
	makePrivate(t, a, "hidden", true, owner...)
	b := start(t, config()) // which sees at its start what is private

	// Nobody has followed anything at b by anyone's rights.
	makePrivate(t, a, "hidden", false, owner...)
	open := events(t, b, "hidden")
	a.Publish("hidden", owner...)
	open.gets()

	var cut []*followed
	for _, h := range []*started{a, b} {
		cut = append(cut, events(t, h, "shown"))
	}
	ticket, _ := ticketFor(t, a, file.texts[1], "shown", "")
	withTicket := []string{"Cookie", ticketCookie + "=" + ticket.Ticket}
	stays, theirs := events(t, b, "shown", owner...), []*followed{events(t, a, "shown", file.bearer(1)...), events(t, b, "shown", file.bearer(1)...), events(t, b, "shown", withTicket...)}
	begin := time.Now()
	makePrivate(t, a, "shown", true, owner...)
	for _, f := range cut {
		f.ends(begin)
	}
	begin = time.Now()
	file.write(t, file.lines[0], file.lines[2])
	for _, f := range theirs {
		f.ends(begin)
	}
	a.Publish("shown", owner...)
	stays.gets()
	makePrivate(t, b, "shown", false, owner...)
	again := events(t, a, "shown")
	b.Publish("shown", owner...)
	again.gets()
}

// When rights end, so does a stream of changes that is published, and one of resources that
// is read.
func TestStreamsEnd(t *testing.T) {
	t.Parallel()
	file := newTokensFile(t, "publish:*,follow:*", "publish:*,follow:*")
	h := start(t, Config{Callers: file.open(t)})
	batch := func(name string) string {
		var lines strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&lines, `{"loc":"https://example.org/%s/%d/%s","change":"updated"}`+"\n", name, i, strings.Repeat("x", 1000))
		}
		return lines.String()
	}
	for i := range 6 { // more than lies between here and there
		if resp, body := servertest.Do(t, "POST", h.URL+"/sets/a/changes", batch(fmt.Sprint(i)), append(file.bearer(0), "Content-Type", "application/x-ndjson")...); resp.StatusCode != http.StatusOK {
			t.Fatalf("publish: %d %s", resp.StatusCode, body)
		}
	}
	seen := events(t, h, "b", file.bearer(0)...)
	slow := http.Client{Transport: &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(256 << 10)
		}
		return conn, err
	}}}
	defer slow.CloseIdleConnections()
	resources := askBy(t, &slow, "GET", h.URL+"/sets/a/resources", nil, append(file.bearer(1), "Accept", "application/x-ndjson")...)
	if _, err := resources.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	theirs := events(t, h, "b", file.bearer(1)...)
	body, stream := io.Pipe()
	defer stream.Close()
	published := make(chan *http.Response, 1)
	go func() {
		published <- ask(t, "POST", h.URL+"/sets/b/changes", body, append(file.bearer(1), "Content-Type", "application/x-ndjson")...)
	}()
	if _, err := io.WriteString(stream, batch("b")); err != nil {
		t.Fatal(err)
	}
	seen.gets()

	begin := time.Now()
	file.write(t, file.lines[0])
	theirs.ends(begin)
	if _, err := io.Copy(io.Discard, resources.Body); err == nil {
		t.Error("the stream of resources goes on to its end")
	}
	resp := <-published
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	checkProblem(t, resp, string(text), http.StatusUnauthorized, "unauthorized")
	var p struct{ Accepted struct{ Count int } }
	if err := json.Unmarshal(text, &p); err != nil || p.Accepted.Count != 1000 || resp.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("the publisher is told %s, %v", text, err)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("that took %v", took)
	}
}
