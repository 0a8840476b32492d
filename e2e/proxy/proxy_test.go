package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// forEachProxy runs a test with every proxy.
func forEachProxy(t *testing.T, test func(t *testing.T, k kind)) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, k)
		})
	}
}

// waitMetric waits until a series of a hub has a value.
func waitMetric(t *testing.T, h *hubtest.Hub, series string, want float64) {
	t.Helper()
	hubtest.Until(t, fmt.Sprintf("%s is %v", series, want), func() error {
		if v := hubtest.Metric(t, h, series); v != want {
			return fmt.Errorf("got %v", v)
		}
		return nil
	})
}

// exchange makes a request and reads the response.
func exchange(t *testing.T, c *http.Client, method, url string, body io.Reader, headers ...string) *trial.Response {
	t.Helper()
	a, err := trial.Exchange(c, method, url, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return a
}

// TestOneHub tests the use of a hub behind a proxy. Heartbeats are off, so that only changes are
// sent, and buffering by the proxy is noticed.
func TestOneHub(t *testing.T) {
	forEachProxy(t, func(t *testing.T, k kind) {
		p := k.prepare(t, 1, "RSHUB_HEARTBEAT=1h")
		p.hubs[0].Start(t)
		s := p.start(t)
		t.Run("follow", func(t *testing.T) { t.Parallel(); follow(t, s) })
		t.Run("long poll", func(t *testing.T) { t.Parallel(); longPoll(t, s) })
		t.Run("large publish", func(t *testing.T) { t.Parallel(); largePublish(t, s) })
		t.Run("unbuffered publish", func(t *testing.T) { t.Parallel(); unbuffered(t, s) })
		t.Run("large header", func(t *testing.T) { t.Parallel(); largeHeader(t, s) })
		t.Run("host names", func(t *testing.T) { t.Parallel(); hostNames(t, s) })
	})
}

// follow checks that changes arrive with every transport within a second, and that the hub notices
// closed connections.
func follow(t *testing.T, s *server) {
	const set = "followed"
	h := s.hubs[0]
	var all []*hubtest.Follower
	for _, way := range hubtest.AllTransports {
		for _, http2 := range []bool{false, true} {
			if (way == hubtest.ByWebSocket || way == hubtest.BySession) && http2 {
				continue
			}
			c := s.client(t, "127.0.0.1", http2)
			f := &hubtest.Follower{Transport: way, Set: set, Hub: s.proxiedHub(), Cursor: "start", HTTP: c.Transport, TLS: c.Transport.(*http.Transport).TLSClientConfig}
			f.Run(t)
			f.WaitStart(t)
			all = append(all, f)
		}
	}
	published := 0
	fastest := map[*hubtest.Follower]time.Duration{}
	for n := range 5 {
		for _, f := range all {
			start := time.Now()
			hubtest.Publish(t, h, set, hubtest.Change(fmt.Sprint(n)))
			published++
			f.WaitEntries(t, published)
			if took := time.Since(start); fastest[f] == 0 || took < fastest[f] {
				fastest[f] = took
			}
		}
	}
	for f, took := range fastest {
		if took > time.Second {
			t.Errorf("fastest change over the %s took %v, want at most 1s", f.Transport, took)
		}
		if len(f.Errs) > 0 {
			t.Errorf("errors of the %s = %q, want none", f.Transport, f.Errs)
		}
	}

	// A stream is not compressed, and ends at the hub when its client disconnects.
	before := hubtest.Metric(t, h, `rshub_followers{kind="eventstream"}`)
	req, err := http.NewRequest(http.MethodGet, s.url+"/sets/"+set+"/changes?since=start", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Accept-Encoding", "gzip, br, zstd")
	resp, err := s.client(t, "127.0.0.1", true).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if e := resp.Header.Get("Content-Encoding"); resp.StatusCode != http.StatusOK || e != "" || resp.ProtoMajor != 2 {
		t.Errorf("got stream with %s %s, encoding %q, want HTTP/2 200 without encoding", resp.Proto, resp.Status, e)
	}
	waitMetric(t, h, `rshub_followers{kind="eventstream"}`, before+1)
	_ = resp.Body.Close()
	waitMetric(t, h, `rshub_followers{kind="eventstream"}`, before)
}

// longPoll checks that the response arrives with a change, or after the wait.
func longPoll(t *testing.T, s *server) {
	const set = "polled"
	h := s.hubs[0]
	topic := s.url + "/sets/" + set + "/changes"
	hubtest.Publish(t, h, set, hubtest.Change("a"))
	c := s.client(t, "127.0.0.1", true)
	var page hubtest.Message
	a := exchange(t, c, http.MethodGet, topic+"?since=now&wait=2s", nil, "Accept: application/json")
	hubtest.Decode(t, a.Body, &page)
	if a.Status != http.StatusOK || len(page.Changes) > 0 {
		t.Errorf("long poll without changes = %d, want an empty page: %s", a.Status, a.Body)
	}
	done := make(chan error, 1)
	go func() {
		var err error
		a, err = trial.Exchange(c, http.MethodGet, topic+"?since="+page.Cursor+"&wait=60s", nil, "Accept: application/json")
		done <- err
	}()
	for waiting := true; waiting; {
		hubtest.Publish(t, h, set, hubtest.Change("b"))
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			waiting = false
		case <-time.After(50 * time.Millisecond): // the first change may precede the poll
		}
	}
	if !strings.Contains(string(a.Body), "example.org/b") {
		t.Errorf("long poll = %s, want a change", a.Body)
	}
}

// largePublish publishes 20 MB with rspublish.
func largePublish(t *testing.T, s *server) {
	const set = "large"
	var lines bytes.Buffer
	n := 0
	for ; lines.Len() < 20<<20; n++ {
		fmt.Fprintf(&lines, `{"loc":"https://example.org/%s/%d","change":"created","type":"text/html"}`+"\n", strings.Repeat("long", 200), n)
	}
	file := filepath.Join(t.TempDir(), "changes.ndjson")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := hubtest.Run(t, []string{"SSL_CERT_FILE=" + s.trustFile}, nil, hubtest.Rspublish, "-hub", s.url, "-set", set, "-retry", "0s", file)
	if code != 0 {
		t.Fatalf("rspublish exited with %d: %s%s", code, stdout, stderr)
	}
	if at := hubtest.Head(t, s.hubs[0], set); !strings.HasPrefix(at, strconv.Itoa(n)+"-") {
		t.Errorf("head of the set = %s, want position %d", at, n)
	}
	// The same as one document: only the hub limits the size.
	a := exchange(t, s.client(t, "127.0.0.1", true), http.MethodPost, s.url+"/sets/document/changes",
		io.MultiReader(strings.NewReader(`{"changes":[`), bytes.NewReader(bytes.ReplaceAll(lines.Bytes()[:lines.Len()-1], []byte("\n"), []byte(","))), strings.NewReader("]}")), hubtest.AsJSON)
	if a.Status != http.StatusOK {
		t.Errorf("publish of a document of 20 MB = %d, want 200: %s", a.Status, a.Body)
	}
}

// unbuffered publishes lines, and sends the end only after the hub has the start.
func unbuffered(t *testing.T, s *server) {
	for _, http2 := range []bool{false, true} {
		set, c := fmt.Sprint("unbuffered-", http2), s.client(t, "127.0.0.1", http2)
		r, w := io.Pipe()
		t.Cleanup(func() { _ = w.Close() })
		response := make(chan string, 1)
		go func() {
			a, err := trial.Exchange(c, http.MethodPost, s.url+"/sets/"+set+"/changes", r, hubtest.AsNDJSON)
			if err != nil {
				response <- err.Error()
				return
			}
			response <- fmt.Sprintf("%d %s", a.Status, a.Body)
		}()
		if _, err := w.Write(hubtest.Changes("first", 1000)); err != nil {
			t.Fatal(err)
		}
		hubtest.Until(t, "the hub has the start", func() error {
			if at := hubtest.Head(t, s.hubs[0], set); !strings.HasPrefix(at, "1000-") {
				return errors.New("got head " + at)
			}
			return nil
		})
		_, err := w.Write(hubtest.Change("end"))
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		if a := <-response; !strings.HasPrefix(a, "200 ") || !strings.Contains(a, `"count":1001`) {
			t.Errorf("publish = %s, want 200 with count 1001", a)
		}
	}
}

// largeHeader sends a token of 16 KiB, a header of almost 32 KiB, and one that the hub rejects.
func largeHeader(t *testing.T, s *server) {
	token := "Authorization: Bearer " + strings.Repeat("a", 16<<10)
	for _, http2 := range []bool{false, true} {
		c := s.client(t, "127.0.0.1", http2)
		for _, tt := range []struct {
			name    string
			headers []string
			status  int
		}{
			{"token", []string{token}, http.StatusOK},
			{"token and others", []string{token, "X-Large: " + strings.Repeat("b", 15<<10)}, http.StatusOK},
			{"long line", []string{"X-Large: " + strings.Repeat("b", 31<<10)}, http.StatusOK},
			{"above the limit", []string{token, "X-Large: " + strings.Repeat("b", 17<<10)}, http.StatusRequestHeaderFieldsTooLarge},
			{"long line above the limit", []string{"X-Large: " + strings.Repeat("b", 40<<10)}, http.StatusRequestHeaderFieldsTooLarge},
		} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %t", tt.name, http2), func(t *testing.T) {
				a := exchange(t, c, http.MethodGet, s.url+"/sets", nil, tt.headers...)
				if a.Status != tt.status {
					t.Errorf("got %d %.300s, want %d", a.Status, a.Body, tt.status)
				}
				if want := "problems/header-too-large"; a.Status == http.StatusRequestHeaderFieldsTooLarge && !strings.Contains(string(a.Body), want) {
					t.Errorf("got %.300s, want the hub's problem %s", a.Body, want)
				}
			})
		}
	}
}

// hostNames sends requests by http, and with another host name.
func hostNames(t *testing.T, s *server) {
	c := s.client(t, "127.0.0.1", false)
	a := exchange(t, c, http.MethodGet, s.plain+"/sets?limit=1", nil, "Host: localhost")
	if to, err := url.Parse(a.Header.Get("Location")); err != nil || a.Status != http.StatusPermanentRedirect || to.Scheme != "https" || to.Hostname() != "localhost" || to.RequestURI() != "/sets?limit=1" {
		t.Errorf("http = %d, Location %q, want a redirect to https", a.Status, a.Header.Get("Location"))
	}
	a = exchange(t, c, http.MethodGet, s.url+"/sets", nil, "Host: evil.example")
	if strings.Contains(string(a.Body), `"sets"`) || s.name != "Caddy" && (a.Status != http.StatusMisdirectedRequest || !strings.Contains(string(a.Body), "evil.example")) {
		t.Errorf("another host name = %d, want 421: %s", a.Status, a.Body)
	}
	a = exchange(t, c, http.MethodGet, s.url+"/", nil)
	if a.Status != http.StatusOK || a.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("page = %d, %v, want 200 with Strict-Transport-Security: %s", a.Status, a.Header, a.Body)
	}
	var v struct{ Sets []struct{ Topic string } }
	hubtest.Publish(t, s.hubs[0], "named", hubtest.Change("a"))
	a = exchange(t, c, http.MethodGet, s.url+"/sets", nil)
	hubtest.Decode(t, a.Body, &v)
	if len(v.Sets) == 0 || !strings.HasPrefix(v.Sets[0].Topic, s.url+"/sets/") {
		t.Errorf("got sets %s, want topics at the base URL", a.Body)
	}
}

// TestClientAddresses checks that the hub knows the addresses of its clients, whatever headers they
// send, and that the proxy logs no tickets.
func TestClientAddresses(t *testing.T) {
	forEachProxy(t, func(t *testing.T, k kind) {
		dir := t.TempDir()
		tokens, trail := filepath.Join(dir, "tokens"), filepath.Join(dir, "audit.jsonl")
		token := hubtest.NewToken(t, tokens, "reader", "follow:secret,publish:secret")
		writeFile(t, tokens, readFile(t, tokens)+"anyone - publish:open\n")
		p := k.prepare(t, 1, "RSHUB_TOKENS_FILE="+tokens, "RSHUB_AUDIT_LOG="+trail, "RSHUB_LIMITS_ADDRESS=publishes:3/h")
		p.hubs[0].Start(t)
		s := p.start(t)

		// An address may publish three times, whatever address it claims.
		publish := func(from, id string) (status int) {
			a := exchange(t, s.client(t, from, false), http.MethodPost, s.url+"/sets/open/changes", bytes.NewReader(hubtest.Change(id)), hubtest.AsNDJSON,
				"X-Request-Id: "+id, "X-Forwarded-For: 198.51.100."+id)
			return a.Status
		}
		for i, want := range []int{200, 200, 200, 429} {
			if got := publish("127.0.0.2", strconv.Itoa(i)); got != want {
				t.Errorf("publish %d of an address = %d, want %d", i+1, got, want)
			}
		}
		if got := publish("127.0.0.3", "9"); got != http.StatusOK {
			t.Errorf("publish of another address = %d, want 200", got)
		}
		hubtest.Until(t, "the audit log has the publishes", func() error {
			text, err := os.ReadFile(trail)
			for id, from := range map[string]string{"0": "127.0.0.2", "3": "127.0.0.2", "9": "127.0.0.3"} {
				if !regexp.MustCompile(`"requestId":"` + id + `",.*"client":"` + from + `"`).Match(text) {
					err = errors.Join(err, fmt.Errorf("got no request %s from %s: %s", id, from, text))
				}
			}
			return err
		})

		// A browser follows with a ticket, and repeats the request without TLS.
		topic := "/sets/secret/changes"
		c := s.client(t, "127.0.0.4", true)
		exchange(t, c, http.MethodPost, s.url+topic, bytes.NewReader(hubtest.Change("a")), hubtest.AsNDJSON, "Authorization: Bearer "+token)
		a := exchange(t, c, http.MethodPost, s.url+"/sets/secret/ticket", nil, "Authorization: Bearer "+token)
		var issued struct{ Ticket, URL string }
		if err := json.Unmarshal(a.Body, &issued); err != nil || issued.Ticket == "" {
			t.Fatalf("got no ticket: %s", a.Body)
		}
		a = exchange(t, c, http.MethodGet, issued.URL+"&since=start", nil, "Accept: application/json")
		if a.Status != http.StatusOK || !strings.Contains(string(a.Body), "example.org/a") {
			t.Errorf("GET with a ticket = %d, want the change: %s", a.Status, a.Body)
		}
		exchange(t, c, http.MethodGet, s.plain+topic+"?ticket="+issued.Ticket, nil, "Host: localhost")
		exchange(t, c, http.MethodGet, s.url+"/last-request", nil)
		s.waitLog(t, "/last-request")
		for _, secret := range []string{issued.Ticket, token} {
			for line := range strings.Lines(s.logText(t)) {
				if strings.Contains(line, secret) {
					t.Errorf("%s logged a secret: %s", s.name, line)
				}
			}
		}
		s.waitLog(t, topic)
		s.waitLog(t, "127.0.0.4")
	})
}
