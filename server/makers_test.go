package server

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/rshub/rshub/internal/servertest"
	"github.com/rshub/rshub/internal/untiltest"
)

// A callee is a callback that agrees to everything, and notes what it is told.
type callee struct {
	*httptest.Server
	mu     sync.Mutex
	asked  bool   // whether it was verified
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
		c.asked = c.asked || r.URL.Query().Has("hub.challenge")
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

// subscribe asks for a subscription of c to a set, and waits until it is there. The hub may
// have another URL by which it is known.
func (c *callee) subscribe(t *testing.T, h *started, set, secret string, headers ...string) {
	t.Helper()
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {cmp.Or(h.server.config.BaseURL, h.URL) + "/sets/" + set + "/changes"}, "hub.callback": {c.URL}, "hub.secret": {secret}}
	resp, body := servertest.Do(t, "POST", h.URL+"/hub", form.Encode(), append(headers, "Content-Type", "application/x-www-form-urlencoded")...)
	if resp.StatusCode != http.StatusAccepted {
		t.Fatalf("subscribing is answered %d: %s", resp.StatusCode, body)
	}
	untiltest.Done(t, "the callback is asked", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.asked
	})
}

// loopback lets callbacks and sources be on this machine.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// A subscription ends within ten seconds when the token that made it is removed, or the set is
// not for anyone any more. The callback is told, and operators see why. Others go on.
func TestSubscriptionsEnd(t *testing.T) {
	t.Parallel()
	file := newTokensFile(t, "publish:*,follow:*,operate", "follow:a", "anyone - follow:*")
	h := start(t, Config{Callers: file.open(t), CallbackAllow: loopback})
	operator := file.bearer(0)
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
		c.subscribe(t, h, set, "s", headers...)
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
	theirs, ours := subscribe("a", file.bearer(1)...), subscribe("a", operator...)
	open, hidden := subscribe("a"), subscribe("b")
	if by := statuses("a")[theirs.URL].By; !strings.HasPrefix(by, "token ") {
		t.Errorf("it was made by %q", by)
	}

	file.write(t, file.lines[0], file.lines[2])
	ended("the token is removed", "a", "not valid any more", time.Now(), theirs)

	begin := time.Now()
	makePrivate(t, h, "b", true, operator...)
	ended("the set is private", "b", "a token is needed", begin, hidden)

	before, _ := open.noted()
	h.Publish("a", operator...)
	untiltest.Done(t, "the others get what comes", func() bool {
		n, _ := open.noted()
		m, _ := ours.noted()
		return n > before && m > 0
	})
	begin = time.Now()
	file.write(t, file.lines[0])
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
// encrypted with another key, too, so that no backup has a secret in clear.
func TestSecretKeys(t *testing.T) {
	t.Parallel()
	data, secret := t.TempDir(), "secret"+rand.Text()+rand.Text()
	key := func(id string) string { return fmt.Sprintf("%s:%s=", id, strings.Repeat(id[:1], 43)) }
	begin := func(keys string) *started {
		t.Helper()
		return start(t, Config{Data: data, BaseURL: "http://hub.example.org", SecretKeys: keys, CallbackAllow: loopback})
	}
	inBackup := func(h *started) bool {
		t.Helper()
		resp, body := servertest.Do(t, "POST", h.Ops+"/backup", "")
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("a backup is answered %d %s", resp.StatusCode, body)
		}
		return strings.Contains(body, secret)
	}
	c := newCallee(t)
	h := begin("")
	h.Publish("a")
	c.subscribe(t, h, "a", secret)
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
	if !inBackup(h) {
		t.Fatal("without keys there is no secret to be found in a backup")
	}
	h.Stop()
	for _, keys := range []string{key("AAA"), key("BBB") + "," + key("AAA"), key("BBB")} {
		h = begin(keys)
		untiltest.Done(t, "its secret is encrypted with the first key", func() bool {
			return has(h, "rshub_callback_subscriptions 1") && has(h, "rshub_callback_stale_secrets 0")
		})
		took(h, "with "+keys)
		if inBackup(h) {
			t.Errorf("with %s a backup has the secret in clear", keys)
		}
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
	h := start(t, Config{Callers: o.open(t, ""), CallbackAllow: loopback})
	h.Publish("a", operator...)
	subscribe := func(algorithm jose.SignatureAlgorithm) *callee {
		t.Helper()
		c := newCallee(t)
		c.subscribe(t, h, "a", "", "Authorization", "Bearer "+o.jwt(t, algorithm, "follow:a", nil))
		untiltest.Done(t, "the subscription is there", func() bool {
			_, body := servertest.Do(t, "GET", h.URL+"/sets/a/subscriptions", "", operator...)
			return strings.Contains(body, c.URL)
		})
		return c
	}
	stream := func(algorithm jose.SignatureAlgorithm) *followed {
		t.Helper()
		v, _ := ticketFor(t, h, o.jwt(t, algorithm, "follow:a", nil), "a", "")
		return events(t, h, "a", "Cookie", ticketCookie+"="+v.Ticket)
	}
	theirs, ours := subscribe(jose.EdDSA), subscribe(jose.RS256)
	theirStream, ourStream := stream(jose.EdDSA), stream(jose.RS256)

	delete(o.keys, jose.EdDSA)
	o.writeKeys(t)
	theirStream.ends(time.Now())
	untiltest.Done(t, "the subscription ends, and the callback is told", func() bool { _, denied := theirs.noted(); return denied != "" })
	before, _ := ours.noted()
	h.Publish("a", operator...)
	untiltest.Done(t, "the other subscription goes on", func() bool { n, _ := ours.noted(); return n > before })
	ourStream.gets()
}
