package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
)

// rshubFaults are hubs that are wrong about change notifications and about what
// rshub adds.
func rshubFaults() []fault {
	var sent, asked count
	var prefixes memo[string]
	body := func(change func([]byte) []byte) func(http.Handler) http.Handler {
		return posts(func(r *http.Request) {
			if b, err := io.ReadAll(r.Body); err == nil {
				r.Body = io.NopCloser(bytes.NewReader(change(b)))
			}
		})
	}
	replaces := func(old, new string) func(http.Handler) http.Handler {
		re := regexp.MustCompile(old)
		return body(func(b []byte) []byte { return re.ReplaceAll(b, []byte(new)) })
	}
	says := func(name, value string) func(http.Handler) http.Handler {
		return posts(func(r *http.Request) { r.Header.Set(name, value) })
	}
	becomes := func(from, to int) func(http.Handler) http.Handler {
		return answers(http.MethodPost, func(_ *http.Request, a *httptest.ResponseRecorder, _ http.Handler) {
			if a.Code == from {
				a.Code = to
			}
		})
	}
	extra := func(q url.Values, change func(name string)) {
		for name := range q {
			if strings.HasPrefix(name, "rs.") {
				change(name)
			}
		}
	}
	discards := func(method string, then func(w http.ResponseWriter, r *http.Request)) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != method {
					next.ServeHTTP(w, r)
					return
				}
				next.ServeHTTP(nowhere{http.Header{}}, r)
				then(w, r)
			})
		}
	}
	return []fault{
		{name: "names another capability", calls: replaces(`"change-notification"`, `"changelist"`), breaks: []string{"capability change-notification"}},
		{name: "does not say until", calls: replaces(` until="[^"]*"`, ``), breaks: []string{"has from and until", "consecutive", "are in chronological order"}},
		{name: "begins intervals too early", calls: replaces(` from="[^"]*"`, ` from="2001-01-01T00:00:00Z"`), breaks: []string{"and do not overlap", "across failures"}},
		{name: "points up to the topic", calls: replaces(`(<rs:md [^>]*>)`, `<rs:ln rel="up" href="http://127.0.0.1:1/"/>$1`), breaks: []string{"if the notification points up"}},
		{name: "has all changes at one time", calls: replaces(`datetime="[^"]*"`, `datetime="2001-01-01T00:00:00Z"`), breaks: []string{"are in chronological order"}},
		{name: "forgets links and hashes", calls: replaces(`(<rs:ln [^>]*/>| hash="[^"]*")`, ``), breaks: []string{"all that describes a change"}},
		{name: "delivers half of a batch", calls: replaces(`<loc>https://example.org/[^<]*/large/10000</loc>`, `<loc>https://example.org/x</loc>`), breaks: []string{"a large batch"}},
		{name: "loses a delivery", calls: drops(func(r *http.Request) bool { return sent.add(r.URL.Path) == 2 }), breaks: []string{
			"arrives once and in order", "and do not overlap", "chain the deliveries", "keeps the place", "chooses by", "few requests"}},
		{name: "delivers the first again", calls: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if b, err := io.ReadAll(r.Body); err == nil {
					again := r.Clone(r.Context())
					again.Body, r.Body = io.NopCloser(bytes.NewReader(b)), io.NopCloser(bytes.NewReader(b))
					next.ServeHTTP(w, r)
					if r.Method == http.MethodPost {
						next.ServeHTTP(httptest.NewRecorder(), again)
					}
				}
			})
		}, breaks: []string{"arrives once and in order", "chain the deliveries", "brings all that is kept"}},
		{name: "loses all deliveries", calls: drops(func(*http.Request) bool { return true }), breaks: []string{
			"is answered 200, and delivered", "is answered 4xx, and not delivered", "which is all that it takes", "a renewal replaces the filter", "an answer of 1 GiB is not read", "takes callbackURI"}},
		{name: "says no positions", calls: posts(func(r *http.Request) { r.Header.Del("RS-Position"); r.Header.Del("RS-Previous") }), breaks: []string{"chain the deliveries", "counts, and a retry", "is the head when", "413 makes"}},
		{name: "does not count attempts", calls: says("RS-Attempt", "1"), breaks: []string{"counts, and a retry"}},
		{name: "echoes nothing", calls: gets(func(_ *http.Request, q url.Values) { extra(q, q.Del) }), breaks: []string{"rs.since is the head", "rs.since=start", "takes a cursor", "rs.renewed says", "chooses by", "rs.status shows", "with rs.since moves"}},
		{name: "knows no extras", asks: asksAfter(func(f url.Values) { extra(f, f.Del) }), breaks: []string{"rs.since=start", "takes a cursor", "takes a datetime", "chooses by", "with rs.since moves", "what is wrong is named", "shows all but secrets"}},
		{name: "moves a subscription when it is renewed", asks: asksAfter(func(f url.Values) {
			if asked.add(f.Get("hub.callback")) > 1 {
				f.Set("rs.since", "start")
			}
		}), breaks: []string{"a renewal keeps the place"}},
		{name: "never replaces a filter", asks: asksAfter(func(f url.Values) {
			f.Set("rs.prefix", prefixes.first(f.Get("hub.callback"), f.Get("rs.prefix")))
		}), breaks: []string{"a renewal replaces the filter"}},
		{name: "grants a day", calls: gets(func(_ *http.Request, q url.Values) { q.Set("hub.lease_seconds", "86400") }), breaks: []string{"kept within the bounds"}},
		{name: "grants a second", calls: gets(func(_ *http.Request, q url.Values) { q.Set("hub.lease_seconds", "1") }), breaks: []string{"300 seconds to a month"}},
		{name: "denies nothing", calls: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("hub.mode") != "denied" {
					next.ServeHTTP(w, r)
				}
			})
		}, breaks: []string{"the lease has expired", "removed by the operator"}},
		{name: "denies too early", asks: asksAfter(func(f url.Values) { f.Set("hub.lease_seconds", "1") }), calls: gets(func(_ *http.Request, q url.Values) { q.Del("hub.reason") }), breaks: []string{"the lease has expired"}},
		{name: "never unsubscribes", calls: answers(http.MethodGet, func(r *http.Request, a *httptest.ResponseRecorder, _ http.Handler) {
			if lastOf(r.URL.Query(), "hub.mode") == "unsubscribe" {
				a.Code = http.StatusNotFound
			}
		}), breaks: []string{"CN 4.4"}},
		{name: "does not read Retry-After", calls: answers(http.MethodPost, func(_ *http.Request, a *httptest.ResponseRecorder, _ http.Handler) { a.Header().Del("Retry-After") }), breaks: []string{"is obeyed"}},
		{name: "does not know 413", calls: becomes(413, 500), breaks: []string{"413 makes"}},
		{name: "does not know 410", calls: becomes(410, 500), breaks: []string{"410 ends"}},
		{name: "gives up", calls: becomes(500, 200), breaks: []string{"counts, and a retry", "become rarer", "of a callback that fails"}},
		{name: "does not know 413, and gives up", calls: becomes(413, 200), breaks: []string{"413 makes"}},
		{name: "does not know 503", calls: becomes(503, 200), breaks: []string{"rs.status shows"}},
		{name: "reads answers to their end", calls: discards(http.MethodPost, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }), breaks: []string{"an answer of 1 GiB is not read"}},
		{name: "reads confirmations to their end", calls: discards(http.MethodGet, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, lastOf(r.URL.Query(), "hub.challenge"))
		}), breaks: []string{"a confirmation of 1 GiB"}},
		{name: "takes everything", asks: func(_ url.Values, _ *http.Request, send func() *http.Response) *http.Response {
			if resp := send(); resp.StatusCode < 400 {
				return resp
			}
			return answering(http.StatusAccepted, "")
		}, breaks: []string{"what is wrong is named", "at most 64 KiB", "parameters in the hub's URL", "a form is UTF-8", "nobody is asked", "knows hub.url"}},
		{name: "takes the first of two", asks: asksAfter(func(f url.Values) {
			for name := range f {
				f[name] = f[name][:1]
			}
		}), breaks: []string{"there twice"}},
		{name: "does not know /subscribe", asks: func(_ url.Values, r *http.Request, send func() *http.Response) *http.Response {
			if r.URL.Path == "/subscribe" {
				return answering(http.StatusNotFound, "")
			}
			return send()
		}, breaks: []string{"takes callbackURI"}},
	}
}

// beyond are checks of what does not come by where faults stand.
var beyond = []string{
	"CN 4.1 GET", "CN 4.1 HEAD", "CN 4.1 a topic without", "CN 4.1 the topic has the latest", // answers to who reads
	"nobody vouches for", // a handshake
}

// nowhere is where an answer goes that a wrong hub reads to its end.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header         { return n.header }
func (n nowhere) WriteHeader(int)             {}
func (n nowhere) Write(p []byte) (int, error) { return len(p), nil }
