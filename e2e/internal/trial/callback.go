package trial

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Server is a destination's HTTP server, with any number of callbacks.
type Server struct {
	URL string

	mu        sync.Mutex
	callbacks map[string]*Callback // by the first two segments of the path
}

// newName makes a name that no other callback or topic has.
func newName() string { return strconv.FormatUint(rand.Uint64(), 36) }

// A Callback is one callback URL: what it answers, and what arrived.
type Callback struct {
	URL  string
	over chan struct{} // closed when nobody waits for it any more

	mu      sync.Mutex
	answers map[string][]Reply // by kind; the last one stays
	arrived []*Arrival
}

// Serve starts a server on an address, such as 127.0.0.1:0, until the end of the
// test. What is before it sees the requests first, if it is not nil.
func Serve(t testing.TB, addr string, before func(http.Handler) http.Handler) *Server {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("listen for callbacks: %v", err)
	}
	s := &Server{URL: "http://" + l.Addr().String(), callbacks: map[string]*Callback{}}
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
			close(c.over) // lets go what is kept waiting
		}
		s.mu.Unlock()
		_ = server.Close()
		<-done
	})
	return s
}

// Add makes a callback that confirms all and takes all. The rest comes behind
// its path and may hold a query.
func (s *Server) Add(rest string) *Callback {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := "/callback/" + newName()
	c := &Callback{URL: s.URL + path + rest, over: make(chan struct{}), answers: map[string][]Reply{
		Verification: {Confirm}, Denial: {Status(http.StatusOK)}, Delivery: {Status(http.StatusOK)},
	}}
	s.callbacks[path] = c
	return c
}

// ServeHTTP answers what the hub asks of callbacks.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	segments := strings.SplitN(r.URL.EscapedPath(), "/", 4) // "", callback, number, rest
	var c *Callback
	if len(segments) > 2 {
		s.mu.Lock()
		c = s.callbacks["/"+segments[1]+"/"+segments[2]]
		s.mu.Unlock()
	}
	if c == nil {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the hub went away in the middle: it is no delivery
	}
	a := &Arrival{At: time.Now(), Target: r.RequestURI, Query: r.URL.Query(), Header: r.Header.Clone(), Body: body}
	switch {
	case r.Method == http.MethodPost:
		a.kind = Delivery
	case r.Method == http.MethodGet && slices.Contains(a.Query["hub.mode"], "denied"):
		a.kind = Denial
	case r.Method == http.MethodGet:
		a.kind = Verification
	default:
		a.kind = r.Method
	}
	answer := Status(http.StatusMethodNotAllowed)
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
	a.Status = noted.status
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

// On says how arrivals of a kind are answered, one after the other; the last
// answer stays.
func (c *Callback) On(kind string, answers ...Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[kind] = answers
}

// Got returns what arrived of a kind so far, or of all kinds, as copies.
func (c *Callback) Got(kinds ...string) (all []Arrival) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.arrived {
		if len(kinds) == 0 || slices.Contains(kinds, a.kind) {
			all = append(all, *a)
		}
	}
	return all
}

// describe shows what arrived, for the log.
func (c *Callback) describe() string {
	var b strings.Builder
	for i, a := range c.Got() {
		if i == 20 {
			b.WriteString("and more\n")
			break
		}
		fmt.Fprintf(&b, "%s %s %s, %d bytes, answered %d; %v\n", a.At.Format("05.000"), a.kind, a.Target, len(a.Body), a.Status, a.Header)
	}
	return b.String()
}
