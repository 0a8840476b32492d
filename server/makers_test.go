package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/internal/servertest"
	"github.com/rshub/rshub/internal/untiltest"
)

// A callee is a callback that agrees to everything, and notes what it is told.
type callee struct {
	*httptest.Server
	mu     sync.Mutex
	took   int    // deliveries
	denied string // hub.reason
}

func newCallee(t *testing.T) *callee {
	c := &callee{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if r.Method == http.MethodPost {
			c.took++
		}
		c.denied += r.URL.Query().Get("hub.reason")
		_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge"))
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *callee) noted() (took int, denied string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.took, c.denied
}

// A subscription ends within ten seconds when the token that made it is removed, or the set is
// not for anyone any more. The callback is told, and operators see why. Others go on.
func TestSubscriptionsEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	file, texts := servertest.Tokens("publish:*,follow:*,operate", "follow:a")
	write := func(text string) { t.Helper(); writeFile(t, path, text) }
	write(file + "\nanyone - follow:*\n")
	known, err := access.OpenTokensFile(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	h := start(t, Config{Callers: known, CallbackAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	operator := []string{"Authorization", "Bearer " + texts[0]}
	type status struct {
		Callback, State, Why, By string
		Signed                   bool
	}
	statuses := func(set string) map[string]status {
		t.Helper()
		_, body := servertest.Do(t, "GET", h.URL+"/sets/"+set+"/subscriptions", "", operator...)
		var page struct{ Subscriptions []status }
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		all := map[string]status{}
		for _, s := range page.Subscriptions {
			all[s.Callback] = s
		}
		return all
	}
	subscribe := func(set string, headers ...string) *callee {
		t.Helper()
		c := newCallee(t)
		form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {h.URL + "/sets/" + set + "/changes"}, "hub.callback": {c.URL}, "hub.secret": {"s"}}
		resp, body := servertest.Do(t, "POST", h.URL+"/hub", form.Encode(), append(headers, "Content-Type", "application/x-www-form-urlencoded")...)
		if resp.StatusCode != http.StatusAccepted {
			t.Fatalf("subscribing is answered %d: %s", resp.StatusCode, body)
		}
		untiltest.Done(t, "there is a subscription", func() bool { return statuses(set)[c.URL].State != "" })
		return c
	}
	ended := func(what, set, reason string, begin time.Time, c *callee) {
		t.Helper()
		untiltest.Done(t, what, func() bool { return statuses(set)[c.URL].State == "ended" })
		untiltest.Done(t, what+": the callback is told", func() bool { _, denied := c.noted(); return denied != "" })
		if took := time.Since(begin); took > 30*time.Second { // about three seconds; the promise is ten
			t.Errorf("%s took %v", what, took)
		}
		if _, denied := c.noted(); !strings.Contains(denied, reason) || statuses(set)[c.URL].Why != denied || statuses(set)[c.URL].Signed {
			t.Errorf("%s: the callback is told %q, operators %+v", what, denied, statuses(set)[c.URL])
		}
	}
	for _, set := range []string{"a", "b"} {
		h.Publish(set, operator...)
	}
	theirs, ours := subscribe("a", "Authorization", "Bearer "+texts[1]), subscribe("a", operator...)
	open, hidden := subscribe("a"), subscribe("b")
	if by := statuses("a")[theirs.URL].By; !strings.HasPrefix(by, "token ") {
		t.Errorf("it was made by %q", by)
	}

	lines := strings.SplitAfter(file, "\n")
	write(lines[0] + "\nanyone - follow:*\n")
	ended("the token is removed", "a", "not valid any more", time.Now(), theirs)

	begin := time.Now()
	if resp, body := servertest.Do(t, "PUT", h.URL+"/sets/b", `{"private":true}`, operator...); resp.StatusCode >= 300 {
		t.Fatalf("PUT is answered %d: %s", resp.StatusCode, body)
	}
	ended("the set is private", "b", "a token is needed", begin, hidden)

	before, _ := open.noted()
	h.Publish("a", operator...)
	untiltest.Done(t, "the others get what comes", func() bool {
		n, _ := open.noted()
		m, _ := ours.noted()
		return n > before && m > 0
	})
	begin = time.Now()
	write(lines[0])
	ended("nothing is open to anyone", "a", "a token is needed", begin, open)
	h.Publish("a", operator...)
	untiltest.Done(t, "our own goes on", func() bool { n, denied := ours.noted(); return n > 1 && denied == "" })
	if n, _ := theirs.noted(); n != 0 {
		t.Errorf("%d deliveries after the token was removed", n)
	}
	resp, body := servertest.Do(t, "GET", h.Ops+"/metrics", "")
	if want := `rshub_callback_ended_total{reason="rights"} 3`; resp.StatusCode != 200 || !strings.Contains(body, want) {
		t.Errorf("the metrics have no %s", want)
	}
}

// A hub without the key to a secret delivers nothing unsigned: it says which key is missing,
// and goes on when it is there. What was in clear is encrypted at the start, and what was
// encrypted with another key, too.
func TestSecretKeys(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	key := func(id string) string { return fmt.Sprintf("%s:%s=", id, strings.Repeat(id[:1], 43)) }
	allow := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	var base string
	begin := func(keys string) *started {
		t.Helper()
		return start(t, Config{Data: data, BaseURL: base, SecretKeys: keys, CallbackAllow: allow})
	}
	c := newCallee(t)
	base = "http://hub.example.org"
	h := begin("")
	h.Publish("a")
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {base + "/sets/a/changes"}, "hub.callback": {c.URL}, "hub.secret": {"s"}}
	if resp, body := servertest.Do(t, "POST", h.URL+"/hub", form.Encode(), "Content-Type", "application/x-www-form-urlencoded"); resp.StatusCode != http.StatusAccepted {
		t.Fatalf("subscribing is answered %d: %s", resp.StatusCode, body)
	}
	took := func(h *started, what string) {
		t.Helper()
		before, _ := c.noted()
		h.Publish("a")
		untiltest.Done(t, what, func() bool { n, _ := c.noted(); return n > before })
	}
	has := func(h *started, line string) bool {
		_, body := servertest.Do(t, "GET", h.Ops+"/metrics", "")
		return strings.Contains(body, "\n"+line+"\n")
	}
	untiltest.Done(t, "there is a subscription", func() bool { return has(h, "rshub_callback_subscriptions 1") })
	took(h, "in clear")
	h.Stop()
	for _, keys := range []string{key("AAA"), key("BBB") + "," + key("AAA"), key("BBB")} {
		h = begin(keys)
		untiltest.Done(t, "its secret is encrypted with the first key", func() bool {
			return has(h, "rshub_callback_subscriptions 1") && has(h, "rshub_callback_stale_secrets 0")
		})
		took(h, "with "+keys)
		h.Stop()
	}
	for _, keys := range []string{"", key("AAA")} {
		h = begin(keys)
		untiltest.Done(t, "the key is missing", func() bool {
			_, checks := readiness(t, h)
			d := checks["secret_keys"]
			return !d.OK && !d.Required && strings.Contains(d.Reason, "BBB")
		})
		before, _ := c.noted()
		h.Publish("a")
		_, body := servertest.Do(t, "GET", h.URL+"/sets/a/subscriptions", "")
		if n, denied := c.noted(); n != before || denied != "" || !strings.Contains(body, `"state":"locked"`) || !strings.Contains(body, "the key BBB") || !has(h, "rshub_callback_locked 1") {
			t.Errorf("%d deliveries, denied %q, shown is %s", n-before, denied, body)
		}
		h.Stop()
	}
	h = begin(key("BBB"))
	before, _ := c.noted()
	untiltest.Done(t, "what waited is delivered", func() bool { n, _ := c.noted(); return n > before })
	h.Stop()
}

// When an issuer withdraws a key, what outlives a JWT that it verified ends: a stream that began with
// a ticket, and a subscription. What another key of the issuer verified goes on.
func TestKeyIsWithdrawn(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	operator := []string{"Authorization", "Bearer " + o.token(allRights)}
	h := start(t, Config{Callers: o.open(t, ""), CallbackAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	h.Publish("a", operator...)
	subscribe := func(algorithm jose.SignatureAlgorithm) *callee {
		t.Helper()
		c := newCallee(t)
		form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {h.URL + "/sets/a/changes"}, "hub.callback": {c.URL}}
		resp, body := servertest.Do(t, "POST", h.URL+"/hub", form.Encode(), "Authorization", "Bearer "+o.jwt(t, algorithm, "follow:a", nil), "Content-Type", "application/x-www-form-urlencoded")
		if resp.StatusCode != http.StatusAccepted {
			t.Fatalf("subscribing is answered %d: %s", resp.StatusCode, body)
		}
		untiltest.Done(t, "the subscription is there", func() bool {
			_, body := servertest.Do(t, "GET", h.URL+"/sets/a/subscriptions", "", operator...)
			return strings.Contains(body, c.URL)
		})
		return c
	}
	stream := func(algorithm jose.SignatureAlgorithm) *http.Response {
		t.Helper()
		_, body := servertest.Do(t, "POST", h.URL+"/sets/a/ticket", "", "Authorization", "Bearer "+o.jwt(t, algorithm, "follow:a", nil))
		var ticket struct{ Ticket string }
		if err := json.Unmarshal([]byte(body), &ticket); err != nil || ticket.Ticket == "" {
			t.Fatalf("%v: %s", err, body)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/sets/a/changes?ticket="+ticket.Ticket, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		resp, err := http.DefaultClient.Do(r)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%+v, %v", resp, err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	theirs, ours := subscribe(jose.EdDSA), subscribe(jose.RS256)
	theirStream, ourStream := stream(jose.EdDSA), stream(jose.RS256)

	delete(o.keys, jose.EdDSA)
	o.writeKeys(t)
	if _, err := io.Copy(io.Discard, theirStream.Body); err != nil { // it returns when the stream ends
		t.Logf("the stream ends with %v", err)
	}
	untiltest.Done(t, "the subscription ends, and the callback is told", func() bool { _, denied := theirs.noted(); return denied != "" })
	before, _ := ours.noted()
	h.Publish("a", operator...)
	untiltest.Done(t, "the other subscription goes on", func() bool { n, _ := ours.noted(); return n > before })
	lines := bufio.NewScanner(ourStream.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), `"position":2`) {
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the other stream ends with %v", err)
	}
}
