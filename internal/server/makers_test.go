package server

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/internal/access/ticket"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/servertest"
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

// subscribe asks for a subscription of c to a set, and waits until it is there. The hub may
// have another URL by which it is known.
func (c *callee) subscribe(t *testing.T, h *started, set, secret string, headers ...string) {
	t.Helper()
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {cmp.Or(h.server.config.BaseURL, h.URL) + "/sets/" + set + "/changes"}, "hub.callback": {c.URL}, "hub.secret": {secret}}
	h.wants(http.StatusAccepted, "POST", "/hub", form.Encode(), append(headers, asForm...)...)
	h.confirms(t, c.Listener.Addr().String())
}

// confirms waits until a callback at a host has confirmed a request, and that is kept.
func (h *started) confirms(t *testing.T, host string) {
	t.Helper()
	testutil.Until(t, "the callback confirms", func() bool {
		return slices.ContainsFunc(h.log.Lines(t, "callbacks: request confirmed"), func(line map[string]any) bool { return line["host"] == host })
	})
}

// gets waits until there were more deliveries than so many.
func (c *callee) gets(t *testing.T, what string, than int) {
	t.Helper()
	testutil.Until(t, what, func() bool { n, _ := c.noted(); return n > than })
}

// isDenied waits until the callback is told that its subscription ended.
func (c *callee) isDenied(t *testing.T, what string) (why string) {
	t.Helper()
	testutil.Until(t, what, func() bool { _, why = c.noted(); return why != "" })
	return why
}

// loopback lets callbacks and sources be on this machine.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// A subscription ends when the token that made it is removed, or the set is not for anyone any
// more. The callback is told, and operators see why. Others go on. How soon it ends is what
// callback and TestOtherHubMakesPrivate show.
func TestSubscriptionsEnd(t *testing.T) {
	t.Parallel()
	file := newTokensFile(t, "publish:*,follow:*,operate", "follow:a", "anyone - follow:*")
	h := start(t, Config{Callers: file.open(t), CallbackAllow: loopback, Metrics: prometheus.NewRegistry()})
	operator := file.bearer(0)
	type status struct {
		Callback, State, Why, By string
		Signed                   bool
	}
	shown := func(set string, c *callee) (found status) {
		t.Helper()
		var page struct{ Subscriptions []status }
		h.reads(&page, "/sets/"+set+"/subscriptions", operator...)
		for _, s := range page.Subscriptions {
			if s.Callback == c.URL {
				found = s
			}
		}
		return found
	}
	subscribe := func(set string, headers ...string) *callee {
		t.Helper()
		c := newCallee(t)
		c.subscribe(t, h, set, "s", headers...)
		return c
	}
	ended := func(what, set, reason string, c *callee) {
		t.Helper()
		why := c.isDenied(t, what)
		if s := shown(set, c); !strings.Contains(why, reason) || s.State != "ended" || s.Why != why || s.Signed {
			t.Errorf("%s: the callback is told %q, operators %+v", what, why, s)
		}
	}
	h.Publish("a", operator...)
	h.Publish("b", operator...)
	theirs, ours := subscribe("a", file.bearer(1)...), subscribe("a", operator...)
	open, hidden := subscribe("a"), subscribe("b")
	if by := shown("a", theirs).By; !strings.HasPrefix(by, "token ") {
		t.Errorf("it was made by %q", by)
	}

	file.write(t, file.lines[0], file.lines[2])
	ended("the token is removed", "a", "is no longer valid", theirs)
	h.Publish("a", operator...)
	open.gets(t, "others get what comes", 0)
	ours.gets(t, "our own gets what comes", 0)

	makePrivate(h, "b", true, operator...)
	ended("the set is private", "b", "now requires a token", hidden)
	file.write(t, file.lines[0])
	ended("nothing is open to anyone", "a", "now requires a token", open)
	h.Publish("a", operator...)
	ours.gets(t, "our own goes on", 1)
	if n, _ := theirs.noted(); n != 0 {
		t.Errorf("%d deliveries after the token was removed", n)
	}
	if n := h.value(`rshub_callback_ended_total{reason="rights"}`); n != 3 {
		t.Errorf("the metrics have %v that ended", n)
	}
	testutil.Until(t, "the details count what is left, and how much is published", func() bool { // every five seconds
		body := h.wants(200, "GET", "/sets/a?details=1", "", operator...)
		return strings.Contains(body, `"followers":1,`) && strings.Contains(body, `"rate":`)
	})
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
		return start(t, Config{Data: data, BaseURL: "http://hub.example.org", SecretKeys: keys, CallbackAllow: loopback, Metrics: prometheus.NewRegistry()})
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
	took := func(h *started, what string) {
		t.Helper()
		before, _ := c.noted()
		h.Publish("a")
		c.gets(t, what, before)
	}
	h := begin("")
	h.Publish("a")
	c.subscribe(t, h, "a", secret)
	took(h, "in clear")
	if !inBackup(h) {
		t.Fatal("without keys there is no secret to be found in a backup")
	}
	h.Stop()
	for _, keys := range []string{key("AAA"), key("BBB") + "," + key("AAA"), key("BBB")} {
		h = begin(keys)
		testutil.Until(t, "its secret is encrypted with the first key", func() bool {
			return h.value("rshub_callback_subscriptions") == 1 && h.value("rshub_callback_stale_secrets") == 0
		})
		took(h, "with "+keys)
		if inBackup(h) {
			t.Errorf("with %s a backup has the secret in clear", keys)
		}
		h.Stop()
	}
	before, _ := c.noted()
	for _, keys := range []string{"", key("AAA")} {
		h = begin(keys)
		testutil.Until(t, "the key is missing", func() bool { return h.value("rshub_callback_locked") == 1 })
		if _, checks := readiness(t, h); checks["secret_keys"].OK || checks["secret_keys"].Required || !strings.Contains(checks["secret_keys"].Reason, "BBB") {
			t.Errorf("ready: %v", checks)
		}
		h.Publish("a")
		body := h.wants(200, "GET", "/sets/a/subscriptions", "")
		if n, denied := c.noted(); n != before || denied != "" || !strings.Contains(body, `"state":"locked"`) || !strings.Contains(body, "the key BBB") {
			t.Errorf("%d deliveries, denied %q, shown is %s", n-before, denied, body)
		}
		h.Stop()
	}
	begin(key("BBB"))
	c.gets(t, "what waited is delivered", before)
}

// When an issuer withdraws a key, what outlives a JWT that it verified ends: a stream that began with
// a ticket, and a subscription. What another key of the issuer verified goes on.
func TestKeyIsWithdrawn(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	operator := bearer(o.token(allRights))
	h := start(t, Config{Callers: o.open(t, ""), CallbackAllow: loopback})
	h.Publish("a", operator...)
	begin := func(algorithm jose.SignatureAlgorithm) (*callee, *stream) {
		t.Helper()
		c, token := newCallee(t), o.jwt(t, algorithm, "follow:a", nil)
		c.subscribe(t, h, "a", "", bearer(token)...)
		v, _ := ticketFor(h, token, "a", "")
		return c, events(t, http.DefaultClient, h.topic("a"), "Cookie", ticket.Cookie+"="+v.Ticket)
	}
	theirs, theirStream := begin(jose.EdDSA)
	ours, ourStream := begin(jose.RS256)

	delete(o.keys, jose.EdDSA)
	o.writeKeys(t)
	theirStream.ends()
	theirs.isDenied(t, "the subscription ends, and the callback is told")
	before, _ := ours.noted()
	h.Publish("a", operator...)
	ours.gets(t, "the other subscription goes on", before)
	ourStream.gets(`"loc"`)
}

// Whoever made a request sees that it was refused and why, and so do operators. Others do not.
func TestRequestsOfSubscribers(t *testing.T) {
	known, texts := tokens(t, "publish:*,follow:*,operate", "follow:a", "follow:a")
	h := start(t, Config{Callers: known, CallbackAllow: loopback})
	bearer := func(who int) []string { return bearer(texts[who]) }
	h.Publish("a", bearer(0)...)
	callback := httptest.NewServer(http.NotFoundHandler())
	defer callback.Close()
	form := "hub.mode=subscribe&hub.topic=" + h.URL + "/sets/a/changes&hub.callback=" + callback.URL + "/here%3Fsecret%3D1"
	h.wants(http.StatusAccepted, "POST", "/hub", form, append(bearer(1), asForm...)...)
	get := func(who int) (requests []requestView) {
		t.Helper()
		var answer struct{ Requests []requestView }
		h.reads(&answer, "/sets/a/requests", bearer(who)...)
		return answer.Requests
	}
	testutil.Until(t, "the request is refused", func() bool {
		all := get(1)
		return len(all) == 1 && all[0].State == "refused"
	})
	for _, who := range []int{0, 1} {
		if r := get(who); len(r) != 1 || r[0].Status != 404 || r[0].Mode != "subscribe" || !strings.Contains(r[0].Error, "does not confirm") || r[0].Callback != callback.URL+"/here?secret=1" {
			t.Errorf("caller %d sees %+v", who, r)
		}
	}
	if r := get(2); len(r) != 0 {
		t.Errorf("somebody else sees %+v", r)
	}
	body := h.wants(200, "GET", "/failures", "", bearer(0)...)
	if !strings.Contains(body, callback.URL+`/here"`) || strings.Contains(body, "secret") {
		t.Errorf("the failures are %s", body)
	}
	h.refuses(http.StatusUnauthorized, "unauthorized", "GET", "/sets/a/requests", "")
}
