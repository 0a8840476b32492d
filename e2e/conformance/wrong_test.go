package conformance

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestWrongHub checks that each rule can fail: a hub with one defect violates it.
func TestWrongHub(t *testing.T) {
	t.Parallel()
	h, rules, all := start(t), slices.Concat(webSub, notifications), wrongs()
	if len(all) != len(rules) {
		t.Errorf("got %d wrong hubs for %d rules, want as many", len(all), len(rules))
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			w, ok := all[r.name]
			if !ok {
				t.Fatal("found no wrong hub")
			}
			const timeout = 4 * time.Second // of conditions that this hub never meets
			hub := &trial.Hub{URL: h.URL, Timeout: timeout, Before: w.calls, Client: &http.Client{Transport: &w, Timeout: timeout}}
			a := &attempt{TB: t}
			done := make(chan struct{})
			go func() { // Fatal ends this goroutine
				defer close(done)
				defer func() {
					if p := recover(); p != nil { // the rule did not expect the response
						a.Errorf("%v", p)
					}
				}()
				r.check(trial.New(a, hub))
			}()
			<-done
			if !a.Failed() {
				t.Errorf("rule passes for a hub that %s", w.does)
			}
		})
	}
}

// An attempt is a test that may fail.
type attempt struct {
	testing.TB
	mu     sync.Mutex
	failed bool
}

func (a *attempt) Errorf(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = true
	a.Logf("detected: "+format, args...)
}

func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

func (a *attempt) Error(args ...any)                 { a.Errorf("%s", fmt.Sprint(args...)) }
func (a *attempt) Fatal(args ...any)                 { a.Error(args...); runtime.Goexit() }
func (a *attempt) Fatalf(format string, args ...any) { a.Errorf(format, args...); runtime.Goexit() }

// A recorder is the response of a callback.
type recorder = httptest.ResponseRecorder

// wrongs returns the wrong hubs by the rule that detects them. Each is for one trial.
func wrongs() map[string]faultyHub {
	var values sync.Map
	var one sync.Mutex
	var verifications, sent, end atomic.Int64
	first := func(key, value string) string { // returns the first value of the key
		v, _ := values.LoadOrStore(key, value)
		return v.(string)
	}
	has := func(key string) bool { _, ok := values.Load(key); return ok }
	self := func(r *http.Request) string { return strings.Join(trial.Links(r.Header, "self"), " ") }
	is := func(f url.Values, mode string) bool { return f.Get("hub.mode") == mode }
	confirmed := func(r *http.Request, a *recorder) {
		*a = *httptest.NewRecorder()
		a.WriteString(challenge(r))
	}
	return map[string]faultyHub{
		// Requests.
		"5.1 callback, mode and topic suffice": {does: "responds with 200",
			responds: func(f url.Values, _ *http.Request, resp *http.Response) {
				if is(f, "subscribe") {
					resp.StatusCode = http.StatusOK
				}
			}},
		"5.1 parameters in any order, escaping and charset; unknown ones ignored": {does: "rejects a charset",
			responds: rejectIf(func(_ url.Values, r *http.Request) bool {
				return strings.Contains(r.Header.Get("Content-Type"), "charset")
			})},
		"5.1 and 5.1.2 invalid requests are refused in plain text": {does: "accepts everything", responds: acceptAll},
		"5.1 a secret has fewer than 200 bytes": {does: "counts characters",
			responds: func(f url.Values, r *http.Request, resp *http.Response) {
				if utf8.RuneCountInString(f.Get("hub.secret")) < 200 {
					acceptAll(f, r, resp)
				}
			}},
		"5.1 callbacks with different queries are different subscribers": {does: "identifies callbacks by path",
			calls: dropIf(func(r *http.Request) bool { return r.URL.RawQuery == "id=2" })},
		"5.1.1 the callback keeps its own hub parameters": {does: "replaces them",
			calls: changeVerifications(func(q url.Values) {
				for name, all := range q {
					q[name] = all[len(all)-1:]
				}
			})},
		"5.1.1 and 8.3 the callback URL is used unchanged": {does: "normalizes URLs",
			calls: changeDeliveries(func(r *http.Request) { retarget(r, (&url.URL{Path: r.URL.Path}).EscapedPath(), r.URL.RawQuery) })},
		"5.1.2 the response does not wait for the verification": {does: "responds after it",
			responds: func(f url.Values, r *http.Request, resp *http.Response) {
				if is(f, "subscribe") {
					<-r.Context().Done() // the subscriber confirms after the response
					resp.StatusCode = http.StatusGatewayTimeout
				}
			}},
		"5.1.2 the response is 202 even if the callback will refuse": {does: "checks the callback first",
			responds: rejectIf(func(f url.Values, _ *http.Request) bool {
				resp, err := http.Get(f.Get("hub.callback"))
				if err == nil {
					_ = resp.Body.Close()
				}
				return is(f, "subscribe") && err != nil
			})},

		// Verifications.
		"5.3 the verification has mode, topic, challenge and lease once each": {does: "sends another topic",
			calls: changeVerifications(func(q url.Values) { q.Set("hub.topic", "https://example.org/") })},
		"8.2 challenges are unique and long": {does: "reuses a challenge",
			calls: changeVerifications(func(q url.Values) { q.Set("hub.challenge", "the-challenge-of-all-subscribers") })},
		"5.3.1 a lease is a finite number of seconds": {does: "grants centuries",
			calls: changeVerifications(func(q url.Values) { q.Set("hub.lease_seconds", "99999999999") })},
		"5.3.1 any 2xx with the challenge confirms": {does: "accepts only 200",
			calls: changeResponses(http.MethodGet, func(_ *http.Request, a *recorder) {
				if a.Code != http.StatusOK {
					a.Code = http.StatusNotFound
				}
			})},
		"5.3.1 any other status refuses": {does: "accepts any status",
			calls: changeResponses(http.MethodGet, func(_ *http.Request, a *recorder) { a.Code = http.StatusOK })},
		"5.3.1 any other body refuses": {does: "accepts the challenge anywhere",
			calls: changeResponses(http.MethodGet, func(r *http.Request, a *recorder) {
				if strings.Contains(a.Body.String(), challenge(r)) {
					confirmed(r, a)
				}
			})},
		"5.3.1 a redirect refuses and is not followed": {does: "follows it", calls: intercept(http.MethodGet, followRedirect)},
		"5.3 nothing is delivered before the confirmation": {does: "confirms for the subscriber",
			calls: intercept(http.MethodGet, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				go next.ServeHTTP(httptest.NewRecorder(), r.Clone(r.Context())) // stops with the callback
				_, _ = io.WriteString(w, challenge(r))
			})},

		// Renewals.
		"5.1 a topic has many subscribers": {does: "has one subscriber",
			calls: dropIf(func(r *http.Request) bool { return first(self(r), r.URL.Path) != r.URL.Path })},
		"5.1 a callback may subscribe to several topics": {does: "allows one",
			calls: dropIf(func(r *http.Request) bool { return first(r.URL.Path, self(r)) != self(r) })},
		"5.1 subscribing again makes no second subscription": {does: "delivers twice",
			calls: intercept(http.MethodPost, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				b, _ := io.ReadAll(r.Body)
				for _, to := range []http.ResponseWriter{httptest.NewRecorder(), w} {
					r.Body = io.NopCloser(bytes.NewReader(b))
					next.ServeHTTP(to, r)
				}
			})},
		"5.1 a verified renewal replaces the secret": {does: "never replaces it",
			hears: func(f url.Values) { f.Set("hub.secret", first("hub.secret", f.Get("hub.secret"))) }},
		"5.1 an unconfirmed renewal changes nothing": {does: "accepts any response",
			calls: changeResponses(http.MethodGet, confirmed)},
		"5.3.1 deliveries stop when the lease ends": {does: "grants a day and sends 2 seconds",
			calls: changeVerifications(func(q url.Values) { q.Set("hub.lease_seconds", "2") }),
			hears: func(f url.Values) { f.Del("hub.lease_seconds") }},
		"5.1 a renewal prolongs the lease": {does: "delivers until the first lease ends", calls: func(next http.Handler) http.Handler {
			return dropIf(func(*http.Request) bool { return time.Now().UnixNano() > end.Load() })(changeVerifications(func(url.Values) {
				end.CompareAndSwap(0, time.Now().Add(2*time.Second).UnixNano())
			})(next))
		}},

		// Removals.
		"5.3 unsubscribing is verified and stops deliveries": {does: "never unsubscribes",
			calls: changeResponses(http.MethodGet, func(r *http.Request, a *recorder) {
				if is(r.URL.Query(), "unsubscribe") {
					a.Code = http.StatusNotFound
				}
			})},
		"5.3.1 unsubscribing needs a confirmation": {does: "accepts any response",
			calls: changeResponses(http.MethodGet, confirmed)},
		"5.1 unsubscribing ignores the lease and needs no subscription": {does: "checks the lease",
			responds: rejectIf(func(f url.Values, _ *http.Request) bool {
				return is(f, "unsubscribe") && f.Get("hub.lease_seconds") == "abc"
			})},
		"5.1 unsubscribing from one topic leaves the others": {does: "removes both", calls: func(next http.Handler) http.Handler {
			return dropIf(func(r *http.Request) bool { return has(r.URL.Path) })(changeResponses(http.MethodGet, func(r *http.Request, _ *recorder) {
				if is(r.URL.Query(), "unsubscribe") {
					first(r.URL.Path, "")
				}
			})(next))
		}},

		// Deliveries.
		"7 the delivery has the topic's media type and document": {does: "has another media type",
			calls: changeDeliveries(func(r *http.Request) { r.Header.Set("Content-Type", "text/xml") })},
		"7 one Link header names the hub and, once, the topic": {does: "links to itself twice",
			calls: changeDeliveries(func(r *http.Request) { r.Header.Set("Link", r.Header.Get("Link")+", "+r.Header.Get("Link")) })},
		"7 any 2xx with any body is success": {does: "accepts only 200",
			calls: changeResponses(http.MethodPost, func(_ *http.Request, a *recorder) {
				if a.Code != http.StatusOK {
					a.Code = http.StatusInternalServerError
				}
			})},
		"7 any other status is a failure and is retried": {does: "does not retry",
			calls: changeResponses(http.MethodPost, func(_ *http.Request, a *recorder) { a.Code = http.StatusOK })},
		"7 a redirect is a failure and is not followed": {does: "follows it", calls: intercept(http.MethodPost, followRedirect)},
		"7 a 410 ends one subscription, which may be made again": {does: "removes the topic",
			calls: func(next http.Handler) http.Handler {
				return dropIf(func(*http.Request) bool { return has("gone") })(changeResponses(http.MethodPost, func(_ *http.Request, a *recorder) {
					if a.Code == http.StatusGone {
						first("gone", "")
					}
				})(next))
			}},
		"7 hanging and failing callbacks delay no other": {does: "delivers sequentially",
			calls: intercept(http.MethodPost, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				one.Lock()
				defer one.Unlock()
				next.ServeHTTP(w, r)
			})},
		"7 many simultaneous subscriptions are verified and receive changes": {does: "verifies twelve",
			calls: intercept(http.MethodGet, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if verifications.Add(1) <= 12 {
					next.ServeHTTP(w, r)
				}
			})},

		// Signatures.
		"7.1 no secret, no signature": {does: "always signs",
			calls: changeDeliveries(func(r *http.Request) { r.Header.Set("X-Hub-Signature", "sha256=00") })},
		"7.1 and 8.3 each attempt is signed by the subscriber's secret with SHA-256 or better": {does: "uses one secret for all",
			hears: func(f url.Values) { f.Set("hub.secret", first("hub.secret", f.Get("hub.secret"))) }},
		"8.3 the secret is never sent": {does: "sends it",
			calls: changeDeliveries(func(r *http.Request) { r.Header.Set("X-Secret", "never-to-be-seen-again") })},

		// Change notifications.
		"4.1 the topic has media type, links and the latest notification": {does: "sends no links",
			responds: func(_ url.Values, _ *http.Request, resp *http.Response) { resp.Header.Del("Link") }},
		"4.1 a topic without notifications has an empty body": {does: "has one",
			responds: func(_ url.Values, _ *http.Request, resp *http.Response) {
				resp.Body = replaced(resp.Body, "", " ")
			}},
		"4.1 valid notifications are delivered, invalid ones refused": {does: "accepts everything", responds: acceptAll},
		"3 a delivery has its capability, from, until and a link to the Capability List": {does: "sends another capability",
			calls: changeDeliveries(func(r *http.Request) { r.Body = replaced(r.Body, "change-notification", "changelist") })},
		"3 and 4.3 intervals are consecutive, changes unique and in order": {does: "loses a delivery",
			calls: dropIf(func(*http.Request) bool { return sent.Add(1) == 2 })},
		"4.2 the default lease is 300 seconds to a month": {does: "grants a second",
			calls: changeVerifications(func(q url.Values) { q.Set("hub.lease_seconds", "1") })},
		"5 the Capability List names topic and hub": {does: "omits the hub",
			responds: func(_ url.Values, _ *http.Request, resp *http.Response) {
				resp.Body = replaced(resp.Body, `"hub"`, `"other"`)
			}},
		"draft of 2012: POST /subscribe accepts callbackURI": {does: "rejects it",
			responds: rejectIf(func(f url.Values, _ *http.Request) bool { return f.Has("callbackURI") })},
	}
}

// A faultyHub is a correct hub behind a layer with a defect. It is the transport of its clients.
type faultyHub struct {
	does     string
	calls    func(next http.Handler) http.Handler                     // wraps the callbacks
	hears    func(f url.Values)                                       // changes a form before the hub receives it
	responds func(f url.Values, r *http.Request, resp *http.Response) // changes the response of the hub; f is empty if r is not a form
}

// RoundTrip makes a request with the defect.
func (w *faultyHub) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	f := url.Values{}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form") {
		if f, err = url.ParseQuery(string(body)); err != nil {
			return nil, err
		}
		if w.hears != nil {
			w.hears(f)
			body = []byte(f.Encode())
		}
	}
	out := r.Clone(r.Context())
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp, err := hubtest.Client.Transport.RoundTrip(out)
	if err == nil && w.responds != nil {
		w.responds(f, r, resp)
	}
	return resp, err
}

// changeVerifications changes the verifications of the hub.
func changeVerifications(change func(q url.Values)) func(http.Handler) http.Handler {
	return intercept(http.MethodGet, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		q := r.URL.Query()
		change(q)
		retarget(r, r.URL.EscapedPath(), q.Encode())
		next.ServeHTTP(w, r)
	})
}

// changeDeliveries changes the deliveries of the hub.
func changeDeliveries(change func(r *http.Request)) func(http.Handler) http.Handler {
	return intercept(http.MethodPost, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		change(r)
		next.ServeHTTP(w, r)
	})
}

// replaced returns a body with a text replaced.
func replaced(body io.ReadCloser, old, new string) io.ReadCloser {
	defer body.Close()
	b, _ := io.ReadAll(body) // a truncated body is wrong as well
	return io.NopCloser(bytes.NewReader(bytes.ReplaceAll(b, []byte(old), []byte(new))))
}

// rejectIf responds with 400 to the selected requests.
func rejectIf(selected func(f url.Values, r *http.Request) bool) func(url.Values, *http.Request, *http.Response) {
	return func(f url.Values, r *http.Request, resp *http.Response) {
		if selected(f, r) {
			resp.StatusCode = http.StatusBadRequest
		}
	}
}

// acceptAll responds with 202 to requests that the hub rejects.
func acceptAll(_ url.Values, _ *http.Request, resp *http.Response) {
	if resp.StatusCode >= 400 {
		resp.StatusCode = http.StatusAccepted
	}
}

// dropIf drops the selected deliveries.
func dropIf(selected func(r *http.Request) bool) func(http.Handler) http.Handler {
	return intercept(http.MethodPost, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !selected(r) {
			next.ServeHTTP(w, r)
		}
	})
}

// changeResponses changes the responses of callbacks.
func changeResponses(method string, change func(r *http.Request, a *recorder)) func(http.Handler) http.Handler {
	return intercept(method, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		a := httptest.NewRecorder()
		next.ServeHTTP(a, r)
		change(r, a)
		w.WriteHeader(a.Code)
		_, _ = w.Write(a.Body.Bytes()) // the hub may have closed the connection
	})
}

// intercept handles requests of a method with do, and forwards all others.
func intercept(method string, do func(w http.ResponseWriter, r *http.Request, next http.Handler)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == method {
				do(w, r, next)
			} else {
				next.ServeHTTP(w, r)
			}
		})
	}
}

// followRedirect follows a redirect.
func followRedirect(w http.ResponseWriter, r *http.Request, next http.Handler) {
	a := httptest.NewRecorder()
	next.ServeHTTP(a, r)
	if u, err := url.Parse(a.Header().Get("Location")); err == nil && u.Path != "" {
		retarget(r, u.EscapedPath(), u.RawQuery)
		a = httptest.NewRecorder()
		next.ServeHTTP(a, r)
	}
	w.WriteHeader(a.Code)
	_, _ = w.Write(a.Body.Bytes())
}

// retarget replaces the path and query of a request.
func retarget(r *http.Request, path, query string) {
	r.RequestURI = path
	if query != "" {
		r.RequestURI += "?" + query
	}
	r.URL, _ = url.ParseRequestURI(r.RequestURI) // valid, because it was parsed before
}

// challenge returns the challenge of the hub: a callback may have its own before it.
func challenge(r *http.Request) string {
	all := r.URL.Query()["hub.challenge"]
	return all[len(all)-1]
}
