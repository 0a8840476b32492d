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

// TestWrongHub shows of each rule that it can fail: a hub that is wrong in one way
// does not keep it.
func TestWrongHub(t *testing.T) {
	t.Parallel()
	h, rules, all := start(t), slices.Concat(webSub, notifications), wrongs()
	if len(all) != len(rules) {
		t.Errorf("there are %d wrong hubs for %d rules", len(all), len(rules))
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			w, ok := all[r.name]
			if !ok {
				t.Fatal("there is no wrong hub")
			}
			const patience = 4 * time.Second // for what this hub does not do
			hub := &trial.Hub{URL: h.URL, Timeout: patience, Before: w.calls, Client: &http.Client{Transport: &w, Timeout: patience}}
			a := &attempt{TB: t}
			done := make(chan struct{})
			go func() { // who gives up ends this goroutine
				defer close(done)
				defer func() {
					if p := recover(); p != nil { // the hub said what the rule did not think of
						a.Errorf("%v", p)
					}
				}()
				r.hold(trial.New(a, hub))
			}()
			<-done
			if !a.Failed() {
				t.Errorf("a hub that %s keeps the rule", w.does)
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
	a.Logf("noticed: "+format, args...)
}

func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

func (a *attempt) Error(args ...any)                 { a.Errorf("%s", fmt.Sprint(args...)) }
func (a *attempt) Fatal(args ...any)                 { a.Error(args...); runtime.Goexit() }
func (a *attempt) Fatalf(format string, args ...any) { a.Errorf(format, args...); runtime.Goexit() }

// A recorder has what a callback answers.
type recorder = httptest.ResponseRecorder

// wrongs are the wrong hubs, by the rule that notices. Each is for one trial.
func wrongs() map[string]wrong {
	var kept sync.Map
	var one sync.Mutex
	var questions, sent, end atomic.Int64
	first := func(key, value string) string { // the first value for the key
		v, _ := kept.LoadOrStore(key, value)
		return v.(string)
	}
	has := func(key string) bool { _, ok := kept.Load(key); return ok }
	self := func(r *http.Request) string { return strings.Join(trial.Links(r.Header, "self"), " ") }
	is := func(f url.Values, mode string) bool { return f.Get("hub.mode") == mode }
	confirmed := func(r *http.Request, a *recorder) {
		*a = *httptest.NewRecorder()
		a.WriteString(challenge(r))
	}
	return map[string]wrong{
		// Requests.
		"5.1 callback, mode and topic suffice": {does: "answers 200",
			answers: func(f url.Values, _ *http.Request, answer *http.Response) {
				if is(f, "subscribe") {
					answer.StatusCode = http.StatusOK
				}
			}},
		"5.1 parameters in any order, escaping and charset; unknown ones ignored": {does: "wants no charset",
			answers: refuses(func(_ url.Values, r *http.Request) bool {
				return strings.Contains(r.Header.Get("Content-Type"), "charset")
			})},
		"5.1 and 5.1.2 invalid requests are refused in plain text": {does: "takes everything", answers: takes},
		"5.1 a secret has fewer than 200 bytes": {does: "counts characters",
			answers: func(f url.Values, r *http.Request, answer *http.Response) {
				if utf8.RuneCountInString(f.Get("hub.secret")) < 200 {
					takes(f, r, answer)
				}
			}},
		"5.1 callbacks with different queries are different subscribers": {does: "knows callbacks by their path",
			calls: drops(func(r *http.Request) bool { return r.URL.RawQuery == "id=2" })},
		"5.1.1 the callback keeps its own hub parameters": {does: "replaces them",
			calls: verifies(func(q url.Values) {
				for name, all := range q {
					q[name] = all[len(all)-1:]
				}
			})},
		"5.1.1 and 8.3 the callback URL is used unchanged": {does: "writes URLs in its own way",
			calls: posts(func(r *http.Request) { retarget(r, (&url.URL{Path: r.URL.Path}).EscapedPath(), r.URL.RawQuery) })},
		"5.1.2 the response does not wait for the verification": {does: "does not answer before it",
			answers: func(f url.Values, r *http.Request, answer *http.Response) {
				if is(f, "subscribe") {
					<-r.Context().Done() // the subscriber confirms after the answer
					answer.StatusCode = http.StatusGatewayTimeout
				}
			}},
		"5.1.2 the response is 202 even if the callback will refuse": {does: "looks whether somebody listens",
			answers: refuses(func(f url.Values, _ *http.Request) bool {
				resp, err := http.Get(f.Get("hub.callback"))
				if err == nil {
					_ = resp.Body.Close()
				}
				return is(f, "subscribe") && err != nil
			})},

		// Verifications.
		"5.3 the verification has mode, topic, challenge and lease once each": {does: "says another topic",
			calls: verifies(func(q url.Values) { q.Set("hub.topic", "https://example.org/") })},
		"8.2 challenges are unique and long": {does: "has one challenge",
			calls: verifies(func(q url.Values) { q.Set("hub.challenge", "the-challenge-of-all-subscribers") })},
		"5.3.1 a lease is a finite number of seconds": {does: "grants centuries",
			calls: verifies(func(q url.Values) { q.Set("hub.lease_seconds", "99999999999") })},
		"5.3.1 any 2xx with the challenge confirms": {does: "wants 200",
			calls: understands(http.MethodGet, func(_ *http.Request, a *recorder) {
				if a.Code != http.StatusOK {
					a.Code = http.StatusNotFound
				}
			})},
		"5.3.1 any other status refuses": {does: "takes any with the challenge",
			calls: understands(http.MethodGet, func(_ *http.Request, a *recorder) { a.Code = http.StatusOK })},
		"5.3.1 any other body refuses": {does: "looks for the challenge anywhere",
			calls: understands(http.MethodGet, func(r *http.Request, a *recorder) {
				if strings.Contains(a.Body.String(), challenge(r)) {
					confirmed(r, a)
				}
			})},
		"5.3.1 a redirect refuses and is not followed": {does: "follows it", calls: through(http.MethodGet, follows)},
		"5.3 nothing is delivered before the confirmation": {does: "confirms for the subscriber",
			calls: through(http.MethodGet, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				go next.ServeHTTP(httptest.NewRecorder(), r.Clone(r.Context())) // ends with the callback
				_, _ = io.WriteString(w, challenge(r))
			})},

		// Renewals.
		"5.1 a topic has many subscribers": {does: "has one",
			calls: drops(func(r *http.Request) bool { return first(self(r), r.URL.Path) != r.URL.Path })},
		"5.1 a callback may subscribe to several topics": {does: "lets it have one",
			calls: drops(func(r *http.Request) bool { return first(r.URL.Path, self(r)) != self(r) })},
		"5.1 subscribing again makes no second subscription": {does: "delivers twice",
			calls: through(http.MethodPost, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				b, _ := io.ReadAll(r.Body)
				for _, to := range []http.ResponseWriter{httptest.NewRecorder(), w} {
					r.Body = io.NopCloser(bytes.NewReader(b))
					next.ServeHTTP(to, r)
				}
			})},
		"5.1 a verified renewal replaces the secret": {does: "never replaces it",
			hears: func(f url.Values) { f.Set("hub.secret", first("hub.secret", f.Get("hub.secret"))) }},
		"5.1 an unconfirmed renewal changes nothing": {does: "takes any answer",
			calls: understands(http.MethodGet, confirmed)},
		"5.3.1 deliveries stop when the lease ends": {does: "grants a day and says 2 seconds",
			calls: verifies(func(q url.Values) { q.Set("hub.lease_seconds", "2") }),
			hears: func(f url.Values) { f.Del("hub.lease_seconds") }},
		"5.1 a renewal prolongs the lease": {does: "delivers until the first lease ends", calls: func(next http.Handler) http.Handler {
			return drops(func(*http.Request) bool { return time.Now().UnixNano() > end.Load() })(verifies(func(url.Values) {
				end.CompareAndSwap(0, time.Now().Add(2*time.Second).UnixNano())
			})(next))
		}},

		// Removals.
		"5.3 unsubscribing is verified and stops deliveries": {does: "never unsubscribes",
			calls: understands(http.MethodGet, func(r *http.Request, a *recorder) {
				if is(r.URL.Query(), "unsubscribe") {
					a.Code = http.StatusNotFound
				}
			})},
		"5.3.1 unsubscribing needs a confirmation": {does: "takes any answer",
			calls: understands(http.MethodGet, confirmed)},
		"5.1 unsubscribing ignores the lease and needs no subscription": {does: "reads it",
			answers: refuses(func(f url.Values, _ *http.Request) bool {
				return is(f, "unsubscribe") && f.Get("hub.lease_seconds") == "abc"
			})},
		"5.1 unsubscribing from one topic leaves the others": {does: "ends both", calls: func(next http.Handler) http.Handler {
			return drops(func(r *http.Request) bool { return has(r.URL.Path) })(understands(http.MethodGet, func(r *http.Request, _ *recorder) {
				if is(r.URL.Query(), "unsubscribe") {
					first(r.URL.Path, "")
				}
			})(next))
		}},

		// Deliveries.
		"7 the delivery has the topic's media type and document": {does: "has another media type",
			calls: posts(func(r *http.Request) { r.Header.Set("Content-Type", "text/xml") })},
		"7 one Link header names the hub and, once, the topic": {does: "links to itself twice",
			calls: posts(func(r *http.Request) { r.Header.Set("Link", r.Header.Get("Link")+", "+r.Header.Get("Link")) })},
		"7 any 2xx with any body is success": {does: "is content with 200 only",
			calls: understands(http.MethodPost, func(_ *http.Request, a *recorder) {
				if a.Code != http.StatusOK {
					a.Code = http.StatusInternalServerError
				}
			})},
		"7 any other status is a failure and is retried": {does: "tries once",
			calls: understands(http.MethodPost, func(_ *http.Request, a *recorder) { a.Code = http.StatusOK })},
		"7 a redirect is a failure and is not followed": {does: "follows it", calls: through(http.MethodPost, follows)},
		"7 a 410 ends one subscription, which may be made again": {does: "ends the topic",
			calls: func(next http.Handler) http.Handler {
				return drops(func(*http.Request) bool { return has("gone") })(understands(http.MethodPost, func(_ *http.Request, a *recorder) {
					if a.Code == http.StatusGone {
						first("gone", "")
					}
				})(next))
			}},
		"7 hanging and failing callbacks delay no other": {does: "delivers to one after the other",
			calls: through(http.MethodPost, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				one.Lock()
				defer one.Unlock()
				next.ServeHTTP(w, r)
			})},
		"7 many simultaneous subscriptions are verified and receive changes": {does: "verifies twelve",
			calls: through(http.MethodGet, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if questions.Add(1) <= 12 {
					next.ServeHTTP(w, r)
				}
			})},

		// Signatures.
		"7.1 no secret, no signature": {does: "signs unasked",
			calls: posts(func(r *http.Request) { r.Header.Set("X-Hub-Signature", "sha256=00") })},
		"7.1 and 8.3 each attempt is signed by the subscriber's secret with SHA-256 or better": {does: "has one secret for all",
			hears: func(f url.Values) { f.Set("hub.secret", first("hub.secret", f.Get("hub.secret"))) }},
		"8.3 the secret is never sent": {does: "sends it",
			calls: posts(func(r *http.Request) { r.Header.Set("X-Secret", "never-to-be-seen-again") })},

		// Change notifications.
		"4.1 the topic has media type, links and the latest notification": {does: "does not link",
			answers: func(_ url.Values, _ *http.Request, answer *http.Response) { answer.Header.Del("Link") }},
		"4.1 a topic without notifications has an empty body": {does: "has one",
			answers: func(_ url.Values, _ *http.Request, answer *http.Response) {
				answer.Body = replaced(answer.Body, "", " ")
			}},
		"4.1 valid notifications are delivered, invalid ones refused": {does: "takes everything", answers: takes},
		"3 a delivery has its capability, from, until and a link to the Capability List": {does: "says another capability",
			calls: posts(func(r *http.Request) { r.Body = replaced(r.Body, "change-notification", "changelist") })},
		"3 and 4.3 intervals are consecutive, changes unique and in order": {does: "loses a delivery",
			calls: drops(func(*http.Request) bool { return sent.Add(1) == 2 })},
		"4.2 the default lease is 300 seconds to a month": {does: "grants a second",
			calls: verifies(func(q url.Values) { q.Set("hub.lease_seconds", "1") })},
		"5 the Capability List names topic and hub": {does: "does not name the hub",
			answers: func(_ url.Values, _ *http.Request, answer *http.Response) {
				answer.Body = replaced(answer.Body, `"hub"`, `"other"`)
			}},
		"draft of 2012: POST /subscribe accepts callbackURI": {does: "does not know it",
			answers: refuses(func(f url.Values, _ *http.Request) bool { return f.Has("callbackURI") })},
	}
}

// A wrong is a right hub with something between. It is the transport of who asks it.
type wrong struct {
	does    string
	calls   func(next http.Handler) http.Handler                       // before the callbacks
	hears   func(f url.Values)                                         // changes a form before the hub has it
	answers func(f url.Values, r *http.Request, answer *http.Response) // changes the hub's answer; f is empty if r is no form
}

// RoundTrip makes a request in the wrong way.
func (w *wrong) RoundTrip(r *http.Request) (*http.Response, error) {
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
	answer, err := hubtest.Client.Transport.RoundTrip(out)
	if err == nil && w.answers != nil {
		w.answers(f, r, answer)
	}
	return answer, err
}

// verifies changes what the hub asks a subscriber.
func verifies(change func(q url.Values)) func(http.Handler) http.Handler {
	return through(http.MethodGet, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		q := r.URL.Query()
		change(q)
		retarget(r, r.URL.EscapedPath(), q.Encode())
		next.ServeHTTP(w, r)
	})
}

// posts changes what the hub delivers.
func posts(change func(r *http.Request)) func(http.Handler) http.Handler {
	return through(http.MethodPost, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		change(r)
		next.ServeHTTP(w, r)
	})
}

// replaced is a body with something else in it.
func replaced(body io.ReadCloser, old, new string) io.ReadCloser {
	defer body.Close()
	b, _ := io.ReadAll(body) // what is cut short is wrong too
	return io.NopCloser(bytes.NewReader(bytes.ReplaceAll(b, []byte(old), []byte(new))))
}

// refuses answers 400 to some requests.
func refuses(chosen func(f url.Values, r *http.Request) bool) func(url.Values, *http.Request, *http.Response) {
	return func(f url.Values, r *http.Request, answer *http.Response) {
		if chosen(f, r) {
			answer.StatusCode = http.StatusBadRequest
		}
	}
}

// takes answers 202 to what the hub refuses.
func takes(_ url.Values, _ *http.Request, answer *http.Response) {
	if answer.StatusCode >= 400 {
		answer.StatusCode = http.StatusAccepted
	}
}

// drops does not let through some deliveries.
func drops(chosen func(r *http.Request) bool) func(http.Handler) http.Handler {
	return through(http.MethodPost, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !chosen(r) {
			next.ServeHTTP(w, r)
		}
	})
}

// understands changes what callbacks answer.
func understands(method string, change func(r *http.Request, a *recorder)) func(http.Handler) http.Handler {
	return through(method, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		a := httptest.NewRecorder()
		next.ServeHTTP(a, r)
		change(r, a)
		w.WriteHeader(a.Code)
		_, _ = w.Write(a.Body.Bytes()) // the hub may be gone
	})
}

// through does something with requests of a method; all others go on.
func through(method string, do func(w http.ResponseWriter, r *http.Request, next http.Handler)) func(http.Handler) http.Handler {
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

// follows follows redirects.
func follows(w http.ResponseWriter, r *http.Request, next http.Handler) {
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

// retarget gives a request another path and query.
func retarget(r *http.Request, path, query string) {
	r.RequestURI = path
	if query != "" {
		r.RequestURI += "?" + query
	}
	r.URL, _ = url.ParseRequestURI(r.RequestURI) // it comes from one
}

// challenge is the hub's: a callback may have one of its own before it.
func challenge(r *http.Request) string {
	all := r.URL.Query()["hub.challenge"]
	return all[len(all)-1]
}
