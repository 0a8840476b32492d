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

// each runs a test with every proxy.
func each(t *testing.T, test func(t *testing.T, k kind)) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, k)
		})
	}
}

// is waits until a series of a hub has a value.
func is(t *testing.T, h *hubtest.Hub, series string, want float64) {
	t.Helper()
	hubtest.Until(t, fmt.Sprintf("%s is %v", series, want), func() error {
		if v := hubtest.Metric(t, h, series); v != want {
			return fmt.Errorf("it is %v", v)
		}
		return nil
	})
}

// exchange makes a request and reads the whole answer.
func exchange(t *testing.T, c *http.Client, method, url string, body io.Reader, headers ...string) *trial.Response {
	t.Helper()
	a, err := trial.Exchange(c, method, url, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return a
}

// TestOneHub does what clients do with a hub that has a proxy before it. Nothing but
// changes comes over a connection while it lasts, so what a proxy kept would not come.
func TestOneHub(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		p := k.prepare(t, 1, "RSHUB_HEARTBEAT=1h")
		p.hubs[0].Start(t)
		s := p.start(t)
		t.Run("follow", func(t *testing.T) { t.Parallel(); follow(t, s) })
		t.Run("long poll", func(t *testing.T) { t.Parallel(); longPoll(t, s) })
		t.Run("large publish", func(t *testing.T) { t.Parallel(); largePublish(t, s) })
		t.Run("unbuffered publish", func(t *testing.T) { t.Parallel(); unbuffered(t, s) })
		t.Run("large header", func(t *testing.T) { t.Parallel(); largeHeader(t, s) })
		t.Run("names", func(t *testing.T) { t.Parallel(); names(t, s) })
	})
}

// follow has changes come in every way, each within a second, and the hub know when a
// client has left.
func follow(t *testing.T, s *server) {
	const set = "followed"
	h := s.hubs[0]
	var all []*hubtest.Follower
	for _, way := range hubtest.AllTransports {
		for _, http2 := range []bool{false, true} {
			if way == hubtest.ByWebSocket && http2 {
				continue
			}
			c := s.client(t, "127.0.0.1", http2)
			f := &hubtest.Follower{Transport: way, Set: set, Hub: s.seen(), Cursor: "start", HTTP: c.Transport, TLS: c.Transport.(*http.Transport).TLSClientConfig}
			f.Run(t)
			f.WaitStart(t)
			all = append(all, f)
		}
	}
	published := 0
	soonest := map[*hubtest.Follower]time.Duration{}
	for n := range 5 {
		for _, f := range all {
			begun := time.Now()
			hubtest.Publish(t, h, set, hubtest.Change(fmt.Sprint(n)))
			published++
			f.WaitEntries(t, published)
			if took := time.Since(begun); soonest[f] == 0 || took < soonest[f] {
				soonest[f] = took
			}
		}
	}
	for f, took := range soonest {
		if took > time.Second {
			t.Errorf("a change takes %v to the %s", took, f.Transport)
		}
		if len(f.Errs) > 0 {
			t.Errorf("the %s was cut: %q", f.Transport, f.Errs)
		}
	}

	// A stream is sent as it is, and ends at the hub when its client leaves.
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
		t.Errorf("the stream is %s %s with the encoding %q", resp.Proto, resp.Status, e)
	}
	is(t, h, `rshub_followers{kind="eventstream"}`, before+1)
	_ = resp.Body.Close()
	is(t, h, `rshub_followers{kind="eventstream"}`, before)
}

// longPoll has the answer come with a change, or when the wait is over.
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
		t.Errorf("a wait that is over is answered %d: %s", a.Status, a.Body)
	}
	done := make(chan error, 1)
	go func() {
		var err error
		a, err = trial.Exchange(c, http.MethodGet, topic+"?since="+page.Cursor+"&wait=60s", nil, "Accept: application/json")
		done <- err
	}()
	for waits := true; waits; {
		hubtest.Publish(t, h, set, hubtest.Change("b"))
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			waits = false
		case <-time.After(50 * time.Millisecond): // the first may have come before the poll
		}
	}
	if !strings.Contains(string(a.Body), "example.org/b") {
		t.Errorf("the poll is answered %s", a.Body)
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
		t.Fatalf("rspublish ended with %d: %s%s", code, stdout, stderr)
	}
	if at := hubtest.Head(t, s.hubs[0], set); !strings.HasPrefix(at, strconv.Itoa(n)+"-") {
		t.Errorf("the set is at %s, not at %d", at, n)
	}
	// And as one document: the bound is the hub's.
	a := exchange(t, s.client(t, "127.0.0.1", true), http.MethodPost, s.url+"/sets/document/changes",
		io.MultiReader(strings.NewReader(`{"changes":[`), bytes.NewReader(bytes.ReplaceAll(lines.Bytes()[:lines.Len()-1], []byte("\n"), []byte(","))), strings.NewReader("]}")), hubtest.AsJSON)
	if a.Status != http.StatusOK {
		t.Errorf("a document of 20 MB is answered %d: %s", a.Status, a.Body)
	}
}

// unbuffered publishes lines whose end is not sent before the hub has the beginning.
func unbuffered(t *testing.T, s *server) {
	for _, http2 := range []bool{false, true} {
		set, c := fmt.Sprint("unbuffered-", http2), s.client(t, "127.0.0.1", http2)
		r, w := io.Pipe()
		t.Cleanup(func() { _ = w.Close() })
		answer := make(chan string, 1)
		go func() {
			a, err := trial.Exchange(c, http.MethodPost, s.url+"/sets/"+set+"/changes", r, hubtest.AsNDJSON)
			if err != nil {
				answer <- err.Error()
				return
			}
			answer <- fmt.Sprintf("%d %s", a.Status, a.Body)
		}()
		if _, err := w.Write(hubtest.Changes("first", 1000)); err != nil {
			t.Fatal(err)
		}
		hubtest.Until(t, "the hub has the beginning", func() error {
			if at := hubtest.Head(t, s.hubs[0], set); !strings.HasPrefix(at, "1000-") {
				return errors.New("it is at " + at)
			}
			return nil
		})
		_, err := w.Write(hubtest.Change("end"))
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		if a := <-answer; !strings.HasPrefix(a, "200 ") || !strings.Contains(a, `"count":1001`) {
			t.Errorf("the publish is answered %s", a)
		}
	}
}

// largeHeader sends a token of 16 KiB, a header of almost 32 KiB, and one that the hub refuses.
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

// names asks by http, and by a name that is not the hub's.
func names(t *testing.T, s *server) {
	c := s.client(t, "127.0.0.1", false)
	a := exchange(t, c, http.MethodGet, s.plain+"/sets?limit=1", nil, "Host: localhost")
	if to, err := url.Parse(a.Header.Get("Location")); err != nil || a.Status != http.StatusPermanentRedirect || to.Scheme != "https" || to.Hostname() != "localhost" || to.RequestURI() != "/sets?limit=1" {
		t.Errorf("http is answered %d, Location %q", a.Status, a.Header.Get("Location"))
	}
	a = exchange(t, c, http.MethodGet, s.url+"/sets", nil, "Host: evil.example")
	if strings.Contains(string(a.Body), `"sets"`) || s.name != "Caddy" && (a.Status != http.StatusMisdirectedRequest || !strings.Contains(string(a.Body), "evil.example")) {
		t.Errorf("another name is answered %d: %s", a.Status, a.Body)
	}
	a = exchange(t, c, http.MethodGet, s.url+"/", nil)
	if a.Status != http.StatusOK || a.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("the page is answered %d, %v: %s", a.Status, a.Header, a.Body)
	}
	var v struct{ Sets []struct{ Topic string } }
	hubtest.Publish(t, s.hubs[0], "named", hubtest.Change("a"))
	a = exchange(t, c, http.MethodGet, s.url+"/sets", nil)
	hubtest.Decode(t, a.Body, &v)
	if len(v.Sets) == 0 || !strings.HasPrefix(v.Sets[0].Topic, s.url+"/sets/") {
		t.Errorf("the sets are %s", a.Body)
	}
}

// TestCallers has the hub know who its clients are, whatever they say of themselves, and the
// proxy log no ticket.
func TestCallers(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		dir := t.TempDir()
		tokens, trail := filepath.Join(dir, "tokens"), filepath.Join(dir, "audit.jsonl")
		token := hubtest.NewToken(t, tokens, "reader", "follow:secret,publish:secret")
		writeFile(t, tokens, readFile(t, tokens)+"anyone - publish:open\n")
		p := k.prepare(t, 1, "RSHUB_TOKENS_FILE="+tokens, "RSHUB_AUDIT_LOG="+trail, "RSHUB_LIMITS_ADDRESS=publishes:3/h")
		p.hubs[0].Start(t)
		s := p.start(t)

		// Three publishes of one address are the limit, with whatever it claims.
		publish := func(from, id string) (status int) {
			a := exchange(t, s.client(t, from, false), http.MethodPost, s.url+"/sets/open/changes", bytes.NewReader(hubtest.Change(id)), hubtest.AsNDJSON,
				"X-Request-Id: "+id, "X-Forwarded-For: 198.51.100."+id)
			return a.Status
		}
		for i, want := range []int{200, 200, 200, 429} {
			if got := publish("127.0.0.2", strconv.Itoa(i)); got != want {
				t.Errorf("publish %d of an address is answered %d", i+1, got)
			}
		}
		if got := publish("127.0.0.3", "9"); got != http.StatusOK {
			t.Errorf("another address is answered %d", got)
		}
		hubtest.Until(t, "the audit log has them", func() error {
			text, err := os.ReadFile(trail)
			for id, from := range map[string]string{"0": "127.0.0.2", "3": "127.0.0.2", "9": "127.0.0.3"} {
				if !regexp.MustCompile(`"requestId":"` + id + `",.*"client":"` + from + `"`).Match(text) {
					err = errors.Join(err, fmt.Errorf("%s is not from %s: %s", id, from, text))
				}
			}
			return err
		})

		// A browser follows with a ticket, and asks once more without TLS.
		topic := "/sets/secret/changes"
		c := s.client(t, "127.0.0.4", true)
		exchange(t, c, http.MethodPost, s.url+topic, bytes.NewReader(hubtest.Change("a")), hubtest.AsNDJSON, "Authorization: Bearer "+token)
		a := exchange(t, c, http.MethodPost, s.url+"/sets/secret/ticket", nil, "Authorization: Bearer "+token)
		var given struct{ Ticket, URL string }
		if err := json.Unmarshal(a.Body, &given); err != nil || given.Ticket == "" {
			t.Fatalf("there is no ticket: %s", a.Body)
		}
		a = exchange(t, c, http.MethodGet, given.URL+"&since=start", nil, "Accept: application/json")
		if a.Status != http.StatusOK || !strings.Contains(string(a.Body), "example.org/a") {
			t.Errorf("a ticket is answered %d: %s", a.Status, a.Body)
		}
		exchange(t, c, http.MethodGet, s.plain+topic+"?ticket="+given.Ticket, nil, "Host: localhost")
		exchange(t, c, http.MethodGet, s.url+"/last-request", nil)
		s.logs(t, "/last-request")
		for _, secret := range []string{given.Ticket, token} {
			for line := range strings.Lines(s.said(t)) {
				if strings.Contains(line, secret) {
					t.Errorf("%s logs %s", s.name, line)
				}
			}
		}
		s.logs(t, topic)
		s.logs(t, "127.0.0.4")
	})
}
