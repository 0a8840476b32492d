package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// A fault makes a hub wrong: it stands between the hub and the callbacks, or
// between a subscriber and the hub, and changes what goes through.
type fault struct {
	name   string
	calls  func(next http.Handler) http.Handler                                           // of the hub, to callbacks
	asks   func(f url.Values, r *http.Request, send func() *http.Response) *http.Response // of subscribers
	breaks []string                                                                       // parts of the names of checks that must notice
}

// TestWrongHub shows of each check that it can fail: a wrong hub fails it.
func TestWrongHub(t *testing.T) {
	t.Parallel()
	h := startRshub(t)
	h.Patience = wrongPatience
	checks, wrongs := slices.Concat(websubChecks, notificationChecks, extraChecks), slices.Concat(faults(), rshubFaults())
	noticed := map[string]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	room := make(chan struct{}, 12)
	for _, f := range wrongs {
		wrong := *h
		wrong.Before = f.calls
		wrong.Asker = &http.Client{Transport: direct, Timeout: wrongPatience}
		if f.asks != nil {
			wrong.Asker.Transport = asking(f.asks)
		}
		for _, part := range f.breaks {
			found := false
			for _, c := range checks {
				if !strings.Contains(c.name, part) {
					continue
				}
				found = true
				wg.Go(func() {
					room <- struct{}{}
					defer func() { <-room }()
					r := try(&wrong, c)
					mu.Lock()
					defer mu.Unlock()
					noticed[c.name] = true
					if r.outcome == passed {
						t.Errorf("a hub that %s passes the check %q", f.name, c.name)
					}
				})
			}
			if !found {
				t.Errorf("the hub that %s: no check is like %q", f.name, part)
			}
		}
	}
	wg.Wait()
	for _, c := range checks {
		if !noticed[c.name] && !slices.ContainsFunc(beyond, func(part string) bool { return strings.Contains(c.name, part) }) {
			t.Errorf("no fault makes this check fail: %q", c.name)
		}
	}
}

// direct keeps no connections, as trials do not.
var direct = &http.Transport{MaxIdleConnsPerHost: -1}

// wrongPatience is how long a check waits for what a wrong hub does not do.
const wrongPatience = 2500 * time.Millisecond

// asking is a transport that does wrong to what subscribers ask for.
type asking func(f url.Values, r *http.Request, send func() *http.Response) *http.Response

func (a asking) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	f, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	resp := a(f, r, func() *http.Response {
		out := r.Clone(r.Context())
		text := f.Encode()
		out.Body, out.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
		var resp *http.Response
		if resp, err = direct.RoundTrip(out); err != nil {
			return answering(http.StatusBadGateway, err.Error())
		}
		return resp
	})
	return resp, err
}

// answering is an answer in plain text.
func answering(code int, text string) *http.Response {
	return &http.Response{StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: io.NopCloser(strings.NewReader(text))}
}

// gets changes the hub's GET requests, posts its deliveries, before they reach
// the callback.
func gets(change func(r *http.Request, q url.Values)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				q := r.URL.Query()
				change(r, q)
				retarget(r, r.URL.EscapedPath(), q.Encode())
			}
			next.ServeHTTP(w, r)
		})
	}
}

func posts(change func(r *http.Request)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				change(r)
			}
			next.ServeHTTP(w, r)
		})
	}
}

// retarget gives a request another path and query.
func retarget(r *http.Request, path, query string) {
	r.RequestURI = path
	if query != "" {
		r.RequestURI += "?" + query
	}
	r.URL, _ = url.ParseRequestURI(r.RequestURI) // it comes from one
}

// answers changes what the hub is answered.
func answers(method string, change func(r *http.Request, a *httptest.ResponseRecorder, next http.Handler)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != method {
				next.ServeHTTP(w, r)
				return
			}
			a := httptest.NewRecorder()
			next.ServeHTTP(a, r)
			change(r, a, next)
			for name, all := range a.Header() {
				w.Header()[name] = all
			}
			w.WriteHeader(a.Code)
			_, _ = w.Write(a.Body.Bytes()) // the hub may be gone
		})
	}
}

// taken is the answer of a hub that is content.
func taken(a *httptest.ResponseRecorder, r *http.Request) {
	*a = *httptest.NewRecorder()
	a.WriteString(lastOf(r.URL.Query(), "hub.challenge"))
}

func lastOf(q url.Values, name string) string {
	all := q[name]
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// drops does not let through those of the deliveries that it chooses.
func drops(chosen func(r *http.Request) bool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || !chosen(r) {
				next.ServeHTTP(w, r)
			}
		})
	}
}

// refusesIf is a hub that answers 400 to some requests.
func refusesIf(chosen func(f url.Values, r *http.Request) bool) func(url.Values, *http.Request, func() *http.Response) *http.Response {
	return func(f url.Values, r *http.Request, send func() *http.Response) *http.Response {
		if chosen(f, r) {
			return answering(http.StatusBadRequest, "refused by the wrong hub")
		}
		return send()
	}
}

// asksAfter changes a request before it reaches the hub.
func asksAfter(change func(f url.Values)) func(url.Values, *http.Request, func() *http.Response) *http.Response {
	return func(f url.Values, _ *http.Request, send func() *http.Response) *http.Response {
		change(f)
		return send()
	}
}

// A memo is what a fault remembers of callbacks.
type memo[T any] struct {
	mu sync.Mutex
	of map[string]T
}

// first keeps the first value for a key, and returns it.
func (m *memo[T]) first(key string, v T) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[string]T{}
	}
	if old, ok := m.of[key]; ok {
		return old
	}
	m.of[key] = v
	return v
}

// A count counts by key.
type count struct {
	mu sync.Mutex
	of map[string]int
}

func (c *count) add(key string) int { return c.more(key, 1) }
func (c *count) get(key string) int { return c.more(key, 0) }

func (c *count) more(key string, n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[key] += n
	return c.of[key]
}

// faults are the wrong hubs.
func faults() []fault { return slices.Concat(askingFaults(), verifyingFaults(), deliveringFaults()) }

func askingFaults() []fault {
	var secrets, oneSecret memo[string]
	var pairs count
	pair := func(f url.Values) string { return f.Get("hub.callback") + " " + f.Get("hub.topic") }
	return []fault{
		{name: "answers 200", asks: func(f url.Values, _ *http.Request, send func() *http.Response) *http.Response {
			resp := send()
			if resp.StatusCode == http.StatusAccepted && f.Get("hub.mode") != "publish" {
				resp.StatusCode = http.StatusOK
			}
			return resp
		}, breaks: []string{"callback, mode and topic are enough", "5.1 to unsubscribe is accepted"}},
		{name: "takes everything", asks: func(_ url.Values, _ *http.Request, send func() *http.Response) *http.Response {
			if resp := send(); resp.StatusCode < 400 {
				return resp
			}
			return answering(http.StatusAccepted, "")
		}, breaks: []string{"is refused"}},
		{name: "refuses with 500", asks: func(_ url.Values, _ *http.Request, send func() *http.Response) *http.Response {
			if resp := send(); resp.StatusCode < 400 {
				return resp
			}
			return answering(http.StatusInternalServerError, "")
		}, breaks: []string{"a mode that is unknown", "an empty body is refused"}},
		{name: "says errors in HTML", asks: func(_ url.Values, _ *http.Request, send func() *http.Response) *http.Response {
			resp := send()
			resp.Header.Set("Content-Type", "text/html")
			return resp
		}, breaks: []string{"in plain text"}},
		{name: "wants no charset", asks: refusesIf(func(_ url.Values, r *http.Request) bool {
			return strings.Contains(r.Header.Get("Content-Type"), "charset")
		}), breaks: []string{"may have a charset"}},
		{name: "wants no unknown headers", asks: refusesIf(func(_ url.Values, r *http.Request) bool { return r.Header.Get("X-Unknown") != "" }), breaks: []string{"unknown headers"}},
		{name: "wants no unknown parameters", asks: refusesIf(func(f url.Values, _ *http.Request) bool { return f.Has("foo") }), breaks: []string{"unknown parameters"}},
		{name: "wants short secrets", asks: refusesIf(func(f url.Values, _ *http.Request) bool { return len(f.Get("hub.secret")) > 190 }), breaks: []string{"a secret of 199 bytes", "and 198 bytes"}},
		{name: "counts characters", asks: func(f url.Values, _ *http.Request, send func() *http.Response) *http.Response {
			if utf8.RuneCountInString(f.Get("hub.secret")) < 200 && len(f.Get("hub.secret")) >= 200 {
				return answering(http.StatusAccepted, "")
			}
			return send()
		}, breaks: []string{"100 characters and 200 bytes"}},
		{name: "trims secrets", asks: asksAfter(func(f url.Values) {
			if f.Has("hub.secret") {
				f.Set("hub.secret", strings.TrimSpace(f.Get("hub.secret")))
			}
		}), breaks: []string{"is not trimmed"}},
		{name: "takes letters only in secrets", asks: asksAfter(func(f url.Values) {
			if f.Has("hub.secret") {
				f.Set("hub.secret", strings.ToValidUTF8(strings.Map(func(r rune) rune { return r & 0x7f }, f.Get("hub.secret")), ""))
			}
		}), breaks: []string{"used byte by byte", "and 198 bytes"}},
		{name: "never replaces a secret", asks: asksAfter(func(f url.Values) {
			if f.Get("hub.mode") == "subscribe" {
				f.Set("hub.secret", secrets.first(pair(f), f.Get("hub.secret")))
			}
		}), breaks: []string{"replaces the secret", "without a secret ends signing"}},
		{name: "has one secret for all", asks: asksAfter(func(f url.Values) {
			if f.Get("hub.mode") == "subscribe" && f.Has("hub.secret") {
				f.Set("hub.secret", oneSecret.first("", f.Get("hub.secret")))
			}
		}), breaks: []string{"its own signature"}},
		{name: "refuses to renew", asks: refusesIf(func(f url.Values, _ *http.Request) bool {
			return f.Get("hub.mode") == "subscribe" && pairs.add(pair(f)) > 1
		}), breaks: []string{"may be asked for again"}},
		{name: "reads the lease of who unsubscribes", asks: refusesIf(func(f url.Values, _ *http.Request) bool {
			return f.Get("hub.mode") == "unsubscribe" && f.Get("hub.lease_seconds") == "abc"
		}), breaks: []string{"the lease of who unsubscribes"}},
		{name: "fails when there is no subscription", asks: func(f url.Values, _ *http.Request, send func() *http.Response) *http.Response {
			if f.Get("hub.mode") == "unsubscribe" {
				return answering(http.StatusInternalServerError, "")
			}
			return send()
		}, breaks: []string{"unsubscribes without a subscription"}},
		{name: "answers a request with escapes 400", asks: refusesIf(func(f url.Values, r *http.Request) bool {
			return r.ContentLength > 3*int64(len(f.Get("hub.topic"))+len(f.Get("hub.callback")))
		}), breaks: []string{"in any escaping"}},
	}
}
