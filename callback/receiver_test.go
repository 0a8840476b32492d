package callback_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// A list is a slice that may grow while it is read.
type list[T any] struct {
	mu     sync.Mutex
	values []T
}

func (l *list[T]) add(v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.values = append(l.values, v)
}

func (l *list[T]) all() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.values)
}

// popAll empties the list and returns its values.
func (l *list[T]) popAll() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	values := l.values
	l.values = nil
	return values
}

func (l *list[T]) len() int { return len(l.all()) }

// A receiver is a callback. By default, it confirms verifications, and accepts deliveries.
type receiver struct {
	t   testing.TB
	url string

	posts    list[*post]
	accepted list[*post] // posts whose responses were successes
	gets     list[*http.Request]

	mu     sync.Mutex
	onPost http.HandlerFunc
	onGet  http.HandlerFunc
}

// A post is a delivery.
type post struct {
	at     time.Time
	header http.Header
	uri    string
	body   []byte
	doc    *resourcesync.Document
	number uint64 // number of the delivery, in the body
}

// receiver returns a receiver at a host of the network.
func (w *world) receiver(host string) *receiver {
	c := newReceiver(w.t, host)
	w.net.Serve(host+":80", c)
	return c
}

func newReceiver(t testing.TB, host string) *receiver {
	return &receiver{t: t, url: "http://" + host + "/cb", onPost: accept, onGet: confirm}
}

// respond sets how deliveries are answered.
func (c *receiver) respond(h http.HandlerFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onPost = h
}

// verify sets how verifications and denials are answered.
func (c *receiver) verify(h http.HandlerFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onGet = h
}

func (c *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c.mu.Lock()
	onPost, onGet := c.onPost, c.onGet
	c.mu.Unlock()
	if r.Method == http.MethodGet {
		c.gets.add(r)
		onGet(w, r)
		return
	}
	p := c.read(r, body)
	c.posts.add(p)
	sw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	if onPost(sw, r); sw.status/100 == 2 && r.Context().Err() == nil {
		c.accepted.add(p)
	}
}

// stamp finds the number of a delivery and its gap; positions finds the positions of entries. ReadXML drops
// these attributes.
var (
	stamp     = regexp.MustCompile(`<rs:md h:delivery="(\d+)"(?: h:gap="([^"]*)")? `)
	positions = regexp.MustCompile(`h:position="(\d+)"`)
)

// read reads a delivery. It fails the test unless the body, which is signed, has what the headers have.
func (c *receiver) read(r *http.Request, body []byte) *post {
	p := &post{at: time.Now(), header: r.Header, uri: r.RequestURI, body: body}
	var err error
	if p.doc, err = resourcesync.ReadXML(bytes.NewReader(body), resourcesync.Limits{}); err != nil {
		c.t.Errorf("body of a delivery: %v", err)
	}
	found := stamp.FindAllSubmatch(body, -1)
	if len(found) != 1 {
		c.t.Errorf("body has %d numbers, want 1: %.400s", len(found), body)
		return p
	}
	if p.number, err = strconv.ParseUint(string(found[0][1]), 10, 63); err != nil {
		c.t.Error(err)
	}
	if got, want := string(found[0][2]), r.Header.Get("RS-Gap"); got != want {
		c.t.Errorf("h:gap = %q, want %q as in RS-Gap", got, want)
	}
	if diverged := strings.Contains(string(body), `h:diverged="true"`); diverged != (r.Header.Get("RS-Diverged") == "true") {
		c.t.Errorf("h:diverged = %t, RS-Diverged = %q", diverged, r.Header.Get("RS-Diverged"))
	}
	return p
}

// interval returns the positions between which the changes of a delivery are, and whether changes were
// lost before it: "3-5", "40-60 gap 6-40" or "0-3 diverged".
func (p *post) interval() string {
	s := p.header.Get("RS-Previous") + "-" + p.header.Get("RS-Position")
	if gap := p.header.Get("RS-Gap"); gap != "" {
		s += " gap " + gap
	}
	if p.header.Get("RS-Diverged") != "" {
		s += " diverged"
	}
	return s
}

// names returns the names under which the changes of a delivery were published, each with its index there.
func (p *post) names() (names []string) {
	for i := range p.doc.Items {
		name, _ := strings.CutPrefix(p.doc.Items[i].Loc, "https://example.org/")
		names = append(names, strings.TrimSuffix(name, "?a&b"))
	}
	return names
}

// wantSignature fails the test unless a delivery is signed with a secret.
func (p *post) wantSignature(t *testing.T, secret string) {
	t.Helper()
	if got, want := p.header.Get("X-Hub-Signature"), signature(secret, p.body); got != want {
		t.Errorf("X-Hub-Signature = %q, want %q of secret %s", got, want, secret)
	}
}

// signature returns the signature of a body (WebSub section 7.1), or "" without a secret.
func signature(secret string, body []byte) string {
	if secret == "" {
		return ""
	}
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// last returns the latest delivery.
func (c *receiver) last() *post {
	c.t.Helper()
	all := c.posts.all()
	if len(all) == 0 {
		c.t.Fatalf("%s received nothing", c.url)
	}
	return all[len(all)-1]
}

// query returns the parameters of the latest verification or denial.
func (c *receiver) query() url.Values {
	all := c.gets.all()
	return all[len(all)-1].URL.Query()
}

// names returns the names of all changes in accepted deliveries.
func (c *receiver) names() string {
	var all []string
	for _, p := range c.accepted.all() {
		all = append(all, p.names()...)
	}
	return strings.Join(all, " ")
}

// wantInterval fails the test unless the latest delivery has an interval.
func (c *receiver) wantInterval(want string) {
	c.t.Helper()
	if got := c.last().interval(); got != want {
		c.t.Errorf("interval = %s, want %s", got, want)
	}
}

// wantNames fails the test unless the accepted deliveries have changes with these names.
func (c *receiver) wantNames(want string) {
	c.t.Helper()
	if got := c.names(); got != want {
		c.t.Errorf("%s received %s, want %s", c.url, got, want)
	}
}

// wantDenials fails the test unless the receiver got denials with these reasons.
func (c *receiver) wantDenials(want ...string) {
	c.t.Helper()
	var got []string
	for _, r := range c.gets.all() {
		if q := r.URL.Query(); q.Get("hub.mode") == "denied" {
			got = append(got, q.Get("hub.reason"))
		}
	}
	if !slices.Equal(got, want) {
		c.t.Errorf("%s got denials %q, want %q", c.url, got, want)
	}
}

// wantQuery fails the test unless the latest verification or denial has parameters; "" means none.
func (c *receiver) wantQuery(want map[string]string) {
	c.t.Helper()
	q := c.query()
	for name, v := range want {
		if got := q.Get(name); got != v || q.Has(name) != (v != "") {
			c.t.Errorf("%s = %q, want %q", name, got, v)
		}
	}
}

// wantRequests fails the test unless the receiver got these numbers of deliveries, and of verifications and
// denials together.
func (c *receiver) wantRequests(posts, gets int) {
	c.t.Helper()
	if p, g := c.posts.len(), c.gets.len(); p != posts || g != gets {
		c.t.Errorf("%s got %d POSTs and %d GETs, want %d and %d", c.url, p, g, posts, gets)
	}
}

// wantChanges fails the test unless the accepted deliveries have the n changes after a position, in order
// and once, in consecutive intervals.
func (c *receiver) wantChanges(after uint64, n int) {
	c.t.Helper()
	position := after
	var until time.Time
	for i, p := range c.accepted.all() {
		previous := position
		for _, got := range positions.FindAllSubmatch(p.body, -1) {
			position++
			if string(got[1]) != strconv.FormatUint(position, 10) {
				c.t.Fatalf("delivery %d has position %s, want %d", i, got[1], position)
			}
		}
		interval, _, _ := strings.Cut(p.interval(), " ")
		if want := strconv.FormatUint(previous, 10) + "-" + strconv.FormatUint(position, 10); interval != want {
			c.t.Errorf("delivery %d has interval %s, want %s", i, interval, want)
		}
		if i > 0 && !p.doc.Header.From.Equal(until) {
			c.t.Errorf("delivery %d is from %v, want %v", i, p.doc.Header.From, until)
		}
		until = p.doc.Header.Until
	}
	if position != after+uint64(n) {
		c.t.Errorf("%s received %d changes, want %d", c.url, position-after, n)
	}
}

// A statusWriter notes the status of a response.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// confirm returns the challenge of a verification.
func confirm(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, r.URL.Query().Get("hub.challenge"))
}

// accept accepts a delivery.
func accept(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// fail fails, and may succeed later.
func fail(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }

// hang does not respond.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// text responds with a text.
func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
}

// after responds like h after a time.
func after(d time.Duration, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(d) // fake time
		h(w, r)
	}
}
