package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/rshub/rshub/conformance/trial"
)

// verifyingFaults are hubs that verify in a wrong way.
func verifyingFaults() []fault {
	var verified, confirmed count
	waits, tells := verifiesFirst()
	keeps := func(param, value string) func(http.Handler) http.Handler {
		return gets(func(_ *http.Request, q url.Values) { q.Set(param, value) })
	}
	return []fault{
		{name: "verifies before it answers", calls: waits, asks: tells, breaks: []string{"does not wait for the verification"}},
		{name: "answers what the verification was", calls: waits, asks: func(f url.Values, r *http.Request, send func() *http.Response) *http.Response {
			resp := tells(f, r, send)
			if n := strings.Count(r.Header.Get("X-Refused"), "x"); n > 0 {
				return answering(http.StatusNotFound, "")
			}
			return resp
		}, breaks: []string{"when the subscriber will refuse"}},
		{name: "looks first whether somebody listens", asks: func(f url.Values, _ *http.Request, send func() *http.Response) *http.Response {
			resp, err := http.Get(f.Get("hub.callback"))
			if err != nil {
				return answering(http.StatusBadRequest, "nobody listens")
			}
			_ = resp.Body.Close()
			return send()
		}, breaks: []string{"when nobody listens"}},
		{name: "does not verify", calls: func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, lastOf(r.URL.Query(), "hub.challenge"))
			})
		}, breaks: []string{"callback, mode and topic are enough", "unknown headers"}},
		{name: "says another topic", calls: keeps("hub.topic", "https://example.org/"), breaks: []string{"mode and topic as they were sent", "in any escaping"}},
		{name: "says another mode", calls: keeps("hub.mode", "subscribe "), breaks: []string{"mode and topic as they were sent", "to unsubscribe is accepted"}},
		{name: "says things twice", calls: gets(func(_ *http.Request, q url.Values) { q.Add("hub.topic", q.Get("hub.topic")) }), breaks: []string{"one of each parameter"}},
		{name: "says no lease", calls: gets(func(_ *http.Request, q url.Values) { q.Del("hub.lease_seconds") }), breaks: []string{"says the lease", "one of each parameter"}},
		{name: "says lease 0", calls: keeps("hub.lease_seconds", "0"), breaks: []string{"says the lease", "never granted"},
			asks: asksAfter(func(f url.Values) {
				if f.Get("hub.mode") == "subscribe" {
					f.Del("hub.lease_seconds")
				}
			})},
		{name: "grants centuries", calls: keeps("hub.lease_seconds", "99999999999"), breaks: []string{"no lease is for ever"}, asks: asksAfter(func(f url.Values) { f.Del("hub.lease_seconds") })},
		{name: "never ends a lease", asks: asksAfter(func(f url.Values) {
			if f.Get("hub.mode") == "subscribe" {
				f.Set("hub.lease_seconds", "86400")
			}
		}), calls: keeps("hub.lease_seconds", "2"), breaks: []string{"a lease ends"}},
		{name: "has one challenge", calls: oneChallenge("the-challenge-of-all-subscribers"), breaks: []string{"each challenge is another", "a renewal has a new challenge"}},
		{name: "has short challenges", calls: oneChallenge("7"), breaks: []string{"each challenge is another"}},
		{name: "takes any answer", calls: answers(http.MethodGet, func(r *http.Request, a *httptest.ResponseRecorder, _ http.Handler) { taken(a, r) }),
			breaks: []string{"refuses", "a renewal that the subscriber", "needs the"}},
		{name: "confirms for the subscriber", calls: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					next.ServeHTTP(w, r)
					return
				}
				a := httptest.NewRecorder()
				go next.ServeHTTP(a, r.Clone(r.Context())) // ends with the callback
				_, _ = io.WriteString(w, lastOf(r.URL.Query(), "hub.challenge"))
			})
		}, breaks: []string{"before the subscriber confirms", "a renewal that nobody answers"}},
		{name: "takes any status with the challenge", calls: answers(http.MethodGet, func(_ *http.Request, a *httptest.ResponseRecorder, _ http.Handler) {
			a.Code = http.StatusOK
		}), breaks: []string{"404 with the challenge", "500 with the challenge", "a redirect refuses", "needs a 2xx"}},
		{name: "takes any 2xx", calls: answers(http.MethodGet, func(r *http.Request, a *httptest.ResponseRecorder, _ http.Handler) {
			if a.Code/100 == 2 {
				taken(a, r)
			}
		}), breaks: []string{"an empty body refuses", "204 refuses", "another challenge", "half of", "more than", "needs the challenge"}},
		{name: "looks for the challenge anywhere", calls: answers(http.MethodGet, func(r *http.Request, a *httptest.ResponseRecorder, _ http.Handler) {
			if strings.Contains(a.Body.String(), lastOf(r.URL.Query(), "hub.challenge")) {
				taken(a, r)
			}
		}), breaks: []string{"more than the challenge", "within a page", "sent back"}},
		{name: "compares without letter case", calls: answers(http.MethodGet, func(r *http.Request, a *httptest.ResponseRecorder, _ http.Handler) {
			if strings.EqualFold(strings.TrimSpace(a.Body.String()), lastOf(r.URL.Query(), "hub.challenge")) {
				taken(a, r)
			}
		}), breaks: []string{"in other letters"}},
		{name: "wants 200", calls: answers(http.MethodGet, func(_ *http.Request, a *httptest.ResponseRecorder, _ http.Handler) {
			if a.Code != http.StatusOK {
				a.Code = http.StatusNotFound
			}
		}), breaks: []string{"any 2xx with the challenge"}},
		{name: "reads one piece", calls: answers(http.MethodGet, func(_ *http.Request, a *httptest.ResponseRecorder, _ http.Handler) {
			if a.Flushed {
				a.Body.Truncate(1)
			}
		}), breaks: []string{"in pieces"}},
		{name: "follows redirects", calls: follows, breaks: []string{"a redirect refuses", "a redirect is a failure"}},
		{name: "ends what is not renewed", calls: func(next http.Handler) http.Handler {
			noting := answers(http.MethodGet, func(r *http.Request, a *httptest.ResponseRecorder, _ http.Handler) {
				if a.Code != http.StatusOK {
					confirmed.add(r.URL.Path)
				}
			})(next)
			return drops(func(r *http.Request) bool { return confirmed.get(r.URL.Path) > 0 })(noting)
		}, breaks: []string{"a renewal that the subscriber", "needs the subscriber's confirmation", "needs a 2xx"}},
		{name: "ends a subscription at the first lease", calls: firstLease, breaks: []string{"prolongs the lease"}},
		{name: "takes nobody twice", calls: func(next http.Handler) http.Handler {
			return drops(func(r *http.Request) bool { return verified.get(r.URL.Path) > 1 })(gets(func(r *http.Request, _ url.Values) {
				verified.add(r.URL.Path)
			})(next))
		}, breaks: []string{"who has unsubscribed may subscribe again", "after 410 one may", "several topics", "leaves the other"}},
		{name: "verifies twelve in all", calls: func(next http.Handler) http.Handler {
			var n count
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost || n.add("") <= 12 {
					next.ServeHTTP(w, r)
				}
			})
		}, breaks: []string{"many subscriptions at once"}},
		{name: "never unsubscribes", calls: answers(http.MethodGet, func(r *http.Request, a *httptest.ResponseRecorder, _ http.Handler) {
			if lastOf(r.URL.Query(), "hub.mode") == "unsubscribe" {
				a.Code = http.StatusNotFound
			}
		}), breaks: []string{"gets nothing more", "leaves the other"}},
	}
}

// verifiesFirst makes a hub that answers a subscriber after the verification.
func verifiesFirst() (calls func(http.Handler) http.Handler, asks func(url.Values, *http.Request, func() *http.Response) *http.Response) {
	var mu sync.Mutex
	over := map[string]chan int{}
	of := func(topic string) chan int {
		mu.Lock()
		defer mu.Unlock()
		if over[topic] == nil {
			over[topic] = make(chan int, 100)
		}
		return over[topic]
	}
	calls = answers(http.MethodGet, func(r *http.Request, a *httptest.ResponseRecorder, _ http.Handler) {
		of(lastOf(r.URL.Query(), "hub.topic")) <- a.Code
	})
	asks = func(f url.Values, r *http.Request, send func() *http.Response) *http.Response {
		resp := send()
		if resp.StatusCode != http.StatusAccepted || f.Get("hub.mode") == "publish" {
			return resp
		}
		select {
		case code := <-of(f.Get("hub.topic")):
			if code/100 != 2 {
				r.Header.Set("X-Refused", "x")
			}
			return resp
		case <-r.Context().Done():
			return answering(http.StatusGatewayTimeout, "")
		}
	}
	return calls, asks
}

// oneChallenge is a hub that has one challenge for all.
func oneChallenge(challenge string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				next.ServeHTTP(w, r)
				return
			}
			q := r.URL.Query()
			own := lastOf(q, "hub.challenge")
			q.Set("hub.challenge", challenge)
			retarget(r, r.URL.EscapedPath(), q.Encode())
			a := httptest.NewRecorder()
			next.ServeHTTP(a, r)
			w.WriteHeader(a.Code)
			_, _ = io.WriteString(w, strings.ReplaceAll(a.Body.String(), challenge, own))
		})
	}
}

// follows is a hub that follows redirects.
func follows(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := httptest.NewRecorder()
		next.ServeHTTP(a, r)
		if to := a.Header().Get("Location"); to != "" && a.Code/100 == 3 {
			u, err := url.Parse(to)
			if err != nil {
				return
			}
			retarget(r, u.EscapedPath(), u.RawQuery)
			next.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(a.Code)
		_, _ = w.Write(a.Body.Bytes())
	})
}

// firstLease is a hub that delivers until the first lease ends, whatever comes.
func firstLease(next http.Handler) http.Handler {
	var ends memo[time.Time]
	seen := gets(func(r *http.Request, q url.Values) {
		lease, err := time.ParseDuration(q.Get("hub.lease_seconds") + "s")
		if err == nil {
			ends.first(r.URL.Path, time.Now().Add(lease))
		}
	})(next)
	return drops(func(r *http.Request) bool { return time.Now().After(ends.first(r.URL.Path, time.Now().Add(time.Hour))) })(seen)
}

// deliveringFaults are hubs that deliver in a wrong way.
func deliveringFaults() []fault {
	var failed, gone, sent count
	var topics, topicOf memo[string]
	var one sync.Mutex
	header := func(change func(h http.Header)) func(http.Handler) http.Handler {
		return posts(func(r *http.Request) { change(r.Header) })
	}
	links := func(change func(link string) []string) func(http.Handler) http.Handler {
		return header(func(h http.Header) { h["Link"] = change(strings.Join(h["Link"], ", ")) })
	}
	fails := func(when func(r *http.Request, a *httptest.ResponseRecorder) bool) func(http.Handler) http.Handler {
		return answers(http.MethodPost, func(r *http.Request, a *httptest.ResponseRecorder, _ http.Handler) {
			if when(r, a) {
				a.Code = http.StatusInternalServerError
			}
		})
	}
	var secret memo[string]
	return []fault{
		{name: "signs nothing", calls: header(func(h http.Header) { h.Del("X-Hub-Signature") }), breaks: []string{
			"the signature is that", "each attempt is signed", "of 199 bytes", "and 198 bytes", "names its method", "sha256 or better", "is not trimmed", "used byte by byte", "its own signature", "the subscriber refuses changes nothing", "that nobody answers", "replaces the secret"}},
		{name: "signs unasked", calls: header(func(h http.Header) { h.Set("X-Hub-Signature", "sha256=00") }), breaks: []string{"there is no signature", "ends signing"}},
		{name: "signs with sha1", calls: header(func(h http.Header) { h.Set("X-Hub-Signature", "sha1="+strings.Repeat("0", 40)) }), breaks: []string{"sha256 or better"}},
		{name: "signs without saying how", calls: header(func(h http.Header) {
			_, h["X-Hub-Signature"][0], _ = strings.Cut(h["X-Hub-Signature"][0], "=")
		}), breaks: []string{"names its method", "the signature is that"}},
		{name: "changes what it signed", calls: posts(func(r *http.Request) { r.Body = io.NopCloser(io.MultiReader(r.Body, strings.NewReader("\n"))) }),
			breaks: []string{"the signature is that", "each attempt is signed"}},
		{name: "says the secret", calls: header(func(h http.Header) { h.Set("X-Secret", secret.first("", "")) }),
			asks:   asksAfter(func(f url.Values) { secret.first("", f.Get("hub.secret")) }),
			breaks: []string{"the secret itself is never sent"}},
		{name: "links in several fields", calls: links(func(link string) []string { return strings.Split(link, ",") }), breaks: []string{"in one field"}},
		{name: "does not link to the hub", calls: links(func(link string) []string { return []string{strings.ReplaceAll(link, "hub\"", "nothing\"")} }), breaks: []string{"links to the hub"}},
		{name: "links to itself twice", calls: links(func(link string) []string { return []string{link + ", " + link} }), breaks: []string{"links to the topic, once"}},
		{name: "does not say the topic", calls: links(func(link string) []string { return []string{strings.ReplaceAll(link, "self", "other")} }),
			breaks: []string{"links to the topic, once", "several topics"}},
		{name: "has another media type", calls: header(func(h http.Header) { h.Set("Content-Type", "text/xml") }), breaks: []string{"the topic's media type"}},
		{name: "says that it compresses", calls: header(func(h http.Header) { h.Set("Content-Encoding", "gzip") }), breaks: []string{"is not compressed"}},
		{name: "cuts documents", calls: posts(func(r *http.Request) { r.Body = io.NopCloser(io.LimitReader(r.Body, r.ContentLength-4)) }), breaks: []string{"the delivery is well-formed"}},
		{name: "forgets the callback's query", calls: func(next http.Handler) http.Handler {
			return posts(func(r *http.Request) { retarget(r, r.URL.EscapedPath(), "") })(gets(func(r *http.Request, q url.Values) {
				for name, all := range q {
					if q[name] = all[len(all)-1:]; !strings.HasPrefix(name, "hub.") {
						q.Del(name)
					}
				}
			})(next))
		}, breaks: []string{"query is kept", "named like the hub's", "in the URL of the delivery", "used exactly"}},
		{name: "delivers with parameters of its own", calls: posts(func(r *http.Request) { retarget(r, r.URL.EscapedPath(), r.URL.RawQuery+"&hub.mode=deliver") }), breaks: []string{"in the URL of the delivery"}},
		{name: "writes URLs in its own way", calls: posts(func(r *http.Request) { retarget(r, (&url.URL{Path: r.URL.Path}).EscapedPath(), r.URL.RawQuery) }), breaks: []string{"used exactly"}},
		{name: "stumbles over an empty query", calls: drops(func(r *http.Request) bool { return strings.HasSuffix(r.RequestURI, "?") }), breaks: []string{"an empty query"}},
		{name: "knows callbacks by their path", calls: drops(func(r *http.Request) bool { return r.URL.RawQuery == "id=2" }), breaks: []string{"differ in their query"}},
		{name: "has one topic for a callback", calls: drops(func(r *http.Request) bool {
			self := strings.Join(trial.LinksIn(r.Header, "self"), " ")
			return topics.first(r.URL.Path, self) != self
		}), breaks: []string{"several topics"}},
		{name: "has one subscriber for a topic", calls: drops(func(r *http.Request) bool {
			return topicOf.first(strings.Join(trial.LinksIn(r.Header, "self"), " "), r.URL.Path) != r.URL.Path
		}), breaks: []string{"one topic has many"}},
		{name: "delivers twice", calls: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						return
					}
					again := r.Clone(r.Context())
					again.Body, r.Body = io.NopCloser(strings.NewReader(string(body))), io.NopCloser(strings.NewReader(string(body)))
					next.ServeHTTP(httptest.NewRecorder(), again)
				}
				next.ServeHTTP(w, r)
			})
		}, breaks: []string{"does not come again", "asked for again, and stays one"}},
		{name: "loses every other delivery", calls: drops(func(r *http.Request) bool { return sent.add(r.URL.Path)%2 == 0 }), breaks: []string{
			"the body of the answer is ignored", "the signature is that"}},
		{name: "tries once", calls: answers(http.MethodPost, func(_ *http.Request, a *httptest.ResponseRecorder, _ http.Handler) { a.Code = http.StatusOK }),
			breaks: []string{"is tried again", "a redirect is a failure", "an error does not end"}},
		{name: "ends a subscription on an error", calls: func(next http.Handler) http.Handler {
			return drops(func(r *http.Request) bool { return failed.get(r.URL.Path) > 0 })(fails(func(r *http.Request, a *httptest.ResponseRecorder) bool {
				return a.Code/100 != 2 && failed.add(r.URL.Path) < 0
			})(next))
		}, breaks: []string{"an error does not end", "a new change is tried", "each attempt is signed"}},
		{name: "ends the topic on 410", calls: func(next http.Handler) http.Handler {
			return drops(func(*http.Request) bool { return gone.get("") > 0 })(fails(func(_ *http.Request, a *httptest.ResponseRecorder) bool {
				return a.Code == http.StatusGone && gone.add("") < 0
			})(next))
		}, breaks: []string{"410 does not disturb", "after 410 one may"}},
		{name: "is content with 200 only", calls: fails(func(_ *http.Request, a *httptest.ResponseRecorder) bool { return a.Code != http.StatusOK }), breaks: []string{"any 2xx takes"}},
		{name: "reads the body of answers", calls: fails(func(_ *http.Request, a *httptest.ResponseRecorder) bool { return a.Body.Len() > 0 }), breaks: []string{"the body of the answer is ignored"}},
		{name: "delivers to one after the other", calls: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					one.Lock()
					defer one.Unlock()
				}
				next.ServeHTTP(w, r)
			})
		}, breaks: []string{"that hangs holds nobody up", "byte by byte holds nobody up", "twenty callbacks", "an answer without an end"}},
		{name: "delivers late once somebody fails", calls: func(next http.Handler) http.Handler {
			return drops(func(*http.Request) bool { return failed.get("any") > 0 })(fails(func(_ *http.Request, a *httptest.ResponseRecorder) bool {
				return a.Code == http.StatusInternalServerError && failed.add("any") < 0
			})(next))
		}, breaks: []string{"a callback that fails holds nobody up"}},
	}
}
