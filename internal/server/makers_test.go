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

// A callbackServer is a callback server that confirms everything and records what it receives.
type callbackServer struct {
	*httptest.Server
	mu     sync.Mutex
	count  int    // number of deliveries
	reason string // concatenated values of hub.reason
}

func newCallbackServer(t *testing.T) *callbackServer {
	c := &callbackServer{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if r.Method == http.MethodPost {
			c.count++
		}
		c.reason += r.URL.Query().Get("hub.reason")
		_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge"))
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *callbackServer) received() (count int, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count, c.reason
}

// subscribe requests a subscription of c to a set, and waits until it exists.
func (c *callbackServer) subscribe(t *testing.T, h *testHub, set, secret string, headers ...string) {
	t.Helper()
	form := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {cmp.Or(h.server.config.BaseURL, h.URL) + "/sets/" + set + "/changes"}, "hub.callback": {c.URL}, "hub.secret": {secret}}
	h.wantStatus(http.StatusAccepted, "POST", "/hub", form.Encode(), append(headers, asForm...)...)
	h.waitForConfirmation(t, c.Listener.Addr().String())
}

// waitForConfirmation waits until the callback at a host has confirmed and the subscription is stored.
func (h *testHub) waitForConfirmation(t *testing.T, host string) {
	t.Helper()
	testutil.Until(t, "the callback confirms the request", func() bool {
		return slices.ContainsFunc(h.log.Lines(t, "callbacks: request confirmed"), func(line map[string]any) bool { return line["host"] == host })
	})
}

// waitForMore waits until the callback has received more than n deliveries.
func (c *callbackServer) waitForMore(t *testing.T, what string, n int) {
	t.Helper()
	testutil.Until(t, what, func() bool { got, _ := c.received(); return got > n })
}

// waitForDenial waits until the callback is told that its subscription ended, and returns the reason.
func (c *callbackServer) waitForDenial(t *testing.T, what string) (reason string) {
	t.Helper()
	testutil.Until(t, what, func() bool { _, reason = c.received(); return reason != "" })
	return reason
}

// loopback allows callbacks and sources on this machine.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// A subscription ends when its token is removed or the set becomes private. The callback is told, and
// operators see why. Other subscriptions continue. Package callback and TestOtherHubMakesPrivate check
// how soon it ends.
func TestSubscriptionsEndWithRights(t *testing.T) {
	t.Parallel()
	file := newTokensFile(t, "publish:*,follow:*,operate", "follow:a", "anyone - follow:*")
	h := start(t, Config{Callers: file.open(t), CallbackAllow: loopback, Metrics: prometheus.NewRegistry()})
	operator := file.bearer(0)
	type status struct {
		Callback, State, Why, By string
		Signed                   bool
	}
	view := func(set string, c *callbackServer) (found status) {
		t.Helper()
		var page struct{ Subscriptions []status }
		h.getJSON(&page, "/sets/"+set+"/subscriptions", operator...)
		for _, s := range page.Subscriptions {
			if s.Callback == c.URL {
				found = s
			}
		}
		return found
	}
	subscribe := func(set string, headers ...string) *callbackServer {
		t.Helper()
		c := newCallbackServer(t)
		c.subscribe(t, h, set, "s", headers...)
		return c
	}
	ended := func(what, set, reason string, c *callbackServer) {
		t.Helper()
		why := c.waitForDenial(t, what)
		if s := view(set, c); !strings.Contains(why, reason) || s.State != "ended" || s.Why != why || s.Signed {
			t.Errorf("%s: got the reason %q and the view %+v, want the same reason with %q", what, why, s, reason)
		}
	}
	h.Publish("a", operator...)
	h.Publish("b", operator...)
	theirs, ours := subscribe("a", file.bearer(1)...), subscribe("a", operator...)
	open, hidden := subscribe("a"), subscribe("b")
	if by := view("a", theirs).By; !strings.HasPrefix(by, "token ") {
		t.Errorf("By = %q, want a token", by)
	}

	file.write(t, file.lines[0], file.lines[2])
	ended("the token is removed", "a", "is no longer valid", theirs)
	h.Publish("a", operator...)
	open.waitForMore(t, "the public subscription receives a change", 0)
	ours.waitForMore(t, "the subscription of the operator receives a change", 0)

	makePrivate(h, "b", true, operator...)
	ended("the set is private", "b", "now requires a token", hidden)
	file.write(t, file.lines[0])
	ended("anyone has no rights", "a", "now requires a token", open)
	h.Publish("a", operator...)
	ours.waitForMore(t, "the subscription of the operator continues", 1)
	if n, _ := theirs.received(); n != 0 {
		t.Errorf("got %d deliveries after the token was removed, want 0", n)
	}
	if n := h.metric(`rshub_callback_ended_total{reason="rights"}`); n != 3 {
		t.Errorf("metric of ended subscriptions = %v, want 3", n)
	}
	testutil.Until(t, "the details have the remaining follower and the rate", func() bool { // updated every five seconds
		body := h.wantStatus(200, "GET", "/sets/a?details=1", "", operator...)
		return strings.Contains(body, `"followers":1,`) && strings.Contains(body, `"rate":`)
	})
}

// A hub without the key of a secret does not deliver unsigned: it names the missing key, and delivers
// once it has it. At the start it encrypts secrets in plain text or with old keys, so that no
// backup contains a secret in plain text.
func TestSecretKeys(t *testing.T) {
	t.Parallel()
	data, secret := t.TempDir(), "secret"+rand.Text()+rand.Text()
	key := func(id string) string { return fmt.Sprintf("%s:%s=", id, strings.Repeat(id[:1], 43)) }
	startWith := func(keys string) *testHub {
		t.Helper()
		return start(t, Config{Data: data, BaseURL: "http://hub.example.org", SecretKeys: keys, CallbackAllow: loopback, Metrics: prometheus.NewRegistry()})
	}
	inBackup := func(h *testHub) bool {
		t.Helper()
		resp, body := servertest.Do(t, "POST", h.Ops+"/backup", "")
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("POST /backup: got %d %s, want 200", resp.StatusCode, body)
		}
		return strings.Contains(body, secret)
	}
	c := newCallbackServer(t)
	deliver := func(h *testHub, what string) {
		t.Helper()
		before, _ := c.received()
		h.Publish("a")
		c.waitForMore(t, what, before)
	}
	h := startWith("")
	h.Publish("a")
	c.subscribe(t, h, "a", secret)
	deliver(h, "unencrypted")
	if !inBackup(h) {
		t.Fatal("backup without keys: got no secret, want it in plain text")
	}
	h.Stop()
	for _, keys := range []string{key("AAA"), key("BBB") + "," + key("AAA"), key("BBB")} {
		h = startWith(keys)
		testutil.Until(t, "the secret is encrypted with the first key", func() bool {
			return h.metric("rshub_callback_subscriptions") == 1 && h.metric("rshub_callback_stale_secrets") == 0
		})
		deliver(h, "with "+keys)
		if inBackup(h) {
			t.Errorf("backup with %s: got the secret in plain text, want it encrypted", keys)
		}
		h.Stop()
	}
	before, _ := c.received()
	for _, keys := range []string{"", key("AAA")} {
		h = startWith(keys)
		testutil.Until(t, "the key is missing", func() bool { return h.metric("rshub_callback_locked") == 1 })
		if _, checks := readiness(t, h); checks["secret_keys"].OK || checks["secret_keys"].Required || !strings.Contains(checks["secret_keys"].Reason, "BBB") {
			t.Errorf("checks of readyz = %v, want the missing key BBB, not required", checks)
		}
		h.Publish("a")
		body := h.wantStatus(200, "GET", "/sets/a/subscriptions", "")
		if n, denied := c.received(); n != before || denied != "" || !strings.Contains(body, `"state":"locked"`) || !strings.Contains(body, "the key BBB") {
			t.Errorf("got %d deliveries, reason %q, view %s, want none and a locked subscription", n-before, denied, body)
		}
		h.Stop()
	}
	startWith(key("BBB"))
	c.waitForMore(t, "the waiting changes are delivered", before)
}

// When an issuer withdraws a key, the ticket streams and subscriptions of JWTs signed with it end.
// Those of its other keys continue.
func TestWithdrawnKey(t *testing.T) {
	t.Parallel()
	o := newIssuer(t)
	operator := bearer(o.token(allRights))
	h := start(t, Config{Callers: o.open(t, ""), CallbackAllow: loopback})
	h.Publish("a", operator...)
	follow := func(algorithm jose.SignatureAlgorithm) (*callbackServer, *stream) {
		t.Helper()
		c, token := newCallbackServer(t), o.jwt(t, algorithm, "follow:a", nil)
		c.subscribe(t, h, "a", "", bearer(token)...)
		v, _ := ticketFor(h, token, "a", "")
		return c, followEvents(t, http.DefaultClient, h.topic("a"), "Cookie", ticket.Cookie+"="+v.Ticket)
	}
	theirs, theirStream := follow(jose.EdDSA)
	ours, ourStream := follow(jose.RS256)

	delete(o.keys, jose.EdDSA)
	o.writeKeys(t)
	theirStream.waitForEnd()
	theirs.waitForDenial(t, "the callback is told that the subscription ended")
	before, _ := ours.received()
	h.Publish("a", operator...)
	ours.waitForMore(t, "the other subscription continues", before)
	ourStream.waitFor(`"loc"`)
}

// The sender of a refused request and operators see the reason; other callers do not.
func TestRefusedRequests(t *testing.T) {
	known, texts := tokens(t, "publish:*,follow:*,operate", "follow:a", "follow:a")
	h := start(t, Config{Callers: known, CallbackAllow: loopback})
	bearer := func(who int) []string { return bearer(texts[who]) }
	h.Publish("a", bearer(0)...)
	callback := httptest.NewServer(http.NotFoundHandler())
	defer callback.Close()
	form := "hub.mode=subscribe&hub.topic=" + h.URL + "/sets/a/changes&hub.callback=" + callback.URL + "/here%3Fsecret%3D1"
	h.wantStatus(http.StatusAccepted, "POST", "/hub", form, append(bearer(1), asForm...)...)
	get := func(who int) (requests []requestView) {
		t.Helper()
		var answer struct{ Requests []requestView }
		h.getJSON(&answer, "/sets/a/requests", bearer(who)...)
		return answer.Requests
	}
	testutil.Until(t, "the request is refused", func() bool {
		all := get(1)
		return len(all) == 1 && all[0].State == "refused"
	})
	for _, who := range []int{0, 1} {
		if r := get(who); len(r) != 1 || r[0].Status != 404 || r[0].Mode != "subscribe" || !strings.Contains(r[0].Error, "does not confirm") || r[0].Callback != callback.URL+"/here?secret=1" {
			t.Errorf("requests for caller %d = %+v, want one with status 404 and its callback", who, r)
		}
	}
	if r := get(2); len(r) != 0 {
		t.Errorf("requests for another caller = %+v, want none", r)
	}
	body := h.wantStatus(200, "GET", "/failures", "", bearer(0)...)
	if !strings.Contains(body, callback.URL+`/here"`) || strings.Contains(body, "secret") {
		t.Errorf("GET /failures = %s, want the callback without its query", body)
	}
	h.wantProblem(http.StatusUnauthorized, "unauthorized", "GET", "/sets/a/requests", "")
}
