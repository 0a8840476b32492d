package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A callbackServer is a destination's HTTP server, with any number of callbacks.
type callbackServer struct {
	url      string
	listener net.Listener

	mu        sync.Mutex
	callbacks map[string]*callback // by the first two segments of the path
	strays    []string             // requests for none of them
}

// names makes the names of callbacks and topics different.
var names atomic.Int64

// A callback is one callback URL: what it answers, and what arrived.
type callback struct {
	url  string
	over chan struct{} // closed when nobody waits for it any more

	mu      sync.Mutex
	answers map[string][]reply // by kind; the last one stays
	arrived []*arrival
}

// What arrives at a callback.
const (
	verification = "verification"
	denial       = "denial"
	delivery     = "delivery"
)

// An arrival is one request of the hub.
type arrival struct {
	kind   string
	at     time.Time
	target string // path and query as they were sent
	query  url.Values
	header http.Header
	body   []byte
	status int // that was answered; 0: none, or not yet
}

// A reply answers an arrival.
type reply func(w http.ResponseWriter, a *arrival, over <-chan struct{})

// serveCallbacks starts a server on an address, such as 127.0.0.1:0. What is
// before it sees the requests first, if it is not nil.
func serveCallbacks(t testing.TB, addr string, before func(http.Handler) http.Handler) *callbackServer {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &callbackServer{url: "http://" + l.Addr().String(), listener: l, callbacks: map[string]*callback{}}
	var h http.Handler = s
	if before != nil {
		h = before(h)
	}
	server := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // until it is closed
	}()
	t.Cleanup(func() {
		s.mu.Lock()
		for _, c := range s.callbacks {
			c.end()
		}
		s.mu.Unlock()
		_ = server.Close()
		<-done
	})
	return s
}

// add makes a callback that confirms all and takes all. The rest comes behind
// its path and may hold a query.
func (s *callbackServer) add(rest string) *callback {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := "/callback/" + strconv.FormatInt(names.Add(1), 10)
	c := &callback{url: s.url + path + rest, over: make(chan struct{}), answers: map[string][]reply{
		verification: {confirm}, denial: {status(http.StatusOK)}, delivery: {status(http.StatusOK)},
	}}
	s.callbacks[path] = c
	return c
}

func (s *callbackServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	segments := strings.SplitN(r.URL.EscapedPath(), "/", 4) // "", callback, number, rest
	var c *callback
	s.mu.Lock()
	if len(segments) > 2 {
		c = s.callbacks["/"+segments[1]+"/"+segments[2]]
	}
	if c == nil {
		s.strays = append(s.strays, r.Method+" "+r.RequestURI)
	}
	s.mu.Unlock()
	if c == nil {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the hub went away in the middle: it is no delivery
	}
	a := &arrival{at: time.Now(), target: r.RequestURI, query: r.URL.Query(), header: r.Header.Clone(), body: body}
	switch {
	case r.Method == http.MethodPost:
		a.kind = delivery
	case r.Method == http.MethodGet && slices.Contains(a.query["hub.mode"], "denied"):
		a.kind = denial
	case r.Method == http.MethodGet:
		a.kind = verification
	default:
		a.kind = r.Method
	}
	answer := status(http.StatusMethodNotAllowed)
	c.mu.Lock()
	c.arrived = append(c.arrived, a)
	if rest := c.answers[a.kind]; len(rest) > 0 {
		answer = rest[0]
		if len(rest) > 1 {
			c.answers[a.kind] = rest[1:]
		}
	}
	c.mu.Unlock()
	noted := &statusNote{ResponseWriter: w}
	answer(noted, a, c.over)
	c.mu.Lock()
	a.status = noted.status
	c.mu.Unlock()
}

// A statusNote remembers the status that is answered.
type statusNote struct {
	http.ResponseWriter
	status int
}

func (n *statusNote) WriteHeader(status int) {
	n.status = status
	n.ResponseWriter.WriteHeader(status)
}

func (n *statusNote) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// end lets go what is kept waiting.
func (c *callback) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.over:
	default:
		close(c.over)
	}
}

// on says how arrivals of a kind are answered, one after the other; the last
// answer stays.
func (c *callback) on(kind string, answers ...reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[kind] = answers
}

// got returns what arrived of a kind so far, as copies.
func (c *callback) got(kind string) (all []arrival) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.arrived {
		if a.kind == kind {
			all = append(all, *a)
		}
	}
	return all
}

// challenge is what the subscriber has to send back. A callback may have a
// parameter of that name itself: the hub's is the last.
func (a arrival) challenge() string {
	if all := a.query["hub.challenge"]; len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// param is a parameter that the hub has appended.
func (a arrival) param(name string) string {
	if all := a.query[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// confirm is how a subscriber confirms its intent.
func confirm(w http.ResponseWriter, a *arrival, _ <-chan struct{}) {
	confirmWith(http.StatusOK)(w, a, nil)
}

// confirmWith confirms with another status.
func confirmWith(code int) reply {
	return func(w http.ResponseWriter, a *arrival, _ <-chan struct{}) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, a.challenge()) // the hub may be gone
	}
}

// say answers a verification with a body made of the challenge.
func say(code int, body func(challenge string) string) reply {
	return func(w http.ResponseWriter, a *arrival, _ <-chan struct{}) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body(a.challenge()))
	}
}

// status answers with a status, headers "Name: value", and no body.
func status(code int, headers ...string) reply {
	return func(w http.ResponseWriter, _ *arrival, _ <-chan struct{}) {
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(code)
	}
}

// hang gives no answer until the callback's end.
func hang(_ http.ResponseWriter, _ *arrival, over <-chan struct{}) { <-over }

// hangUntil answers only when it may.
func hangUntil(may <-chan struct{}, then reply) reply {
	return func(w http.ResponseWriter, a *arrival, over <-chan struct{}) {
		select {
		case <-may:
			then(w, a, over)
		case <-over:
		}
	}
}

// first does something and then answers.
func first(do func(), then reply) reply {
	return func(w http.ResponseWriter, a *arrival, over <-chan struct{}) {
		do()
		then(w, a, over)
	}
}

// hangUp closes the connection without an answer.
func hangUp(w http.ResponseWriter, _ *arrival, _ <-chan struct{}) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// raw writes bytes to the connection, and closes it.
func raw(text string) reply {
	return func(w http.ResponseWriter, _ *arrival, _ <-chan struct{}) {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = io.WriteString(conn, text)
			_ = conn.Close()
		}
	}
}

// trickle sends an answer that never ends, byte by byte.
func trickle(w http.ResponseWriter, _ *arrival, over <-chan struct{}) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-Slow: "); err != nil {
		return
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
			if _, err := io.WriteString(conn, "x"); err != nil {
				return
			}
		}
	}
}

// flood answers with so many bytes behind what begins the body, or as many as
// the hub takes.
func flood(begin func(a *arrival) string, n int64) reply {
	return func(w http.ResponseWriter, a *arrival, _ <-chan struct{}) {
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, begin(a))
		block := bytes.Repeat([]byte("x"), 64<<10)
		for ; n > 0; n -= int64(len(block)) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
}

// countedBytes counts what a callback could send.
type countedBytes = atomic.Int64

type countingWriter struct {
	http.ResponseWriter
	n *countedBytes
}

func (w countingWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.n.Add(int64(n))
	return n, err
}

// describe shows what arrived, for the log.
func (c *callback) describe() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for i, a := range c.arrived {
		if i == 20 {
			fmt.Fprintf(&b, "and %d more\n", len(c.arrived)-i)
			break
		}
		fmt.Fprintf(&b, "%s %s %s, %d bytes, answered %d; %v\n", a.at.Format("05.000"), a.kind, a.target, len(a.body), a.status, a.header)
	}
	return b.String()
}
