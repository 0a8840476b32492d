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

// A Server is the HTTP server of a destination, with any number of callbacks.
type Server struct {
	URL string

	mu        sync.Mutex
	callbacks map[string]*Callback // by the first two segments of the path
}

// newName returns a name that no other callback or topic has.
func newName() string { return strconv.FormatUint(rand.Uint64(), 36) }

// A Callback is a callback URL with its replies and the requests that it received.
type Callback struct {
	URL  string
	done chan struct{} // closed when the test ends

	mu       sync.Mutex
	replies  map[string][]Reply // by kind; the last one repeats
	requests []*CallbackRequest
}

// Serve starts a server on an address, such as 127.0.0.1:0, until the test ends. If before is
// not nil, it wraps the handler.
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
		_ = server.Serve(l) // until Close
	}()
	t.Cleanup(func() {
		s.mu.Lock()
		for _, c := range s.callbacks {
			close(c.done) // releases hanging replies
		}
		s.mu.Unlock()
		_ = server.Close()
		<-done
	})
	return s
}

// Add adds a callback that confirms all verifications and accepts all deliveries. rest is
// appended to its path and may have a query.
func (s *Server) Add(rest string) *Callback {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := "/callback/" + newName()
	c := &Callback{URL: s.URL + path + rest, done: make(chan struct{}), replies: map[string][]Reply{
		Verification: {Confirm}, Denial: {Status(http.StatusOK)}, Delivery: {Status(http.StatusOK)},
	}}
	s.callbacks[path] = c
	return c
}

// ServeHTTP handles requests of the hub to callbacks.
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
		return // the hub closed the connection: not a complete delivery
	}
	a := &CallbackRequest{At: time.Now(), Target: r.RequestURI, Query: r.URL.Query(), Header: r.Header.Clone(), Body: body}
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
	c.requests = append(c.requests, a)
	if rest := c.replies[a.kind]; len(rest) > 0 {
		answer = rest[0]
		if len(rest) > 1 {
			c.replies[a.kind] = rest[1:]
		}
	}
	c.mu.Unlock()
	recorder := &statusRecorder{ResponseWriter: w}
	answer(recorder, a, c.done)
	c.mu.Lock()
	a.Status = recorder.status
	c.mu.Unlock()
}

// A statusRecorder records the status of a response.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (n *statusRecorder) WriteHeader(status int) {
	n.status = status
	n.ResponseWriter.WriteHeader(status)
}

func (n *statusRecorder) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// Respond sets the replies to requests of a kind. They are used in order, and the last one
// repeats.
func (c *Callback) Respond(kind string, answers ...Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replies[kind] = answers
}

// Requests returns copies of the requests received so far, of some kinds or of all.
func (c *Callback) Requests(kinds ...string) (all []CallbackRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.requests {
		if len(kinds) == 0 || slices.Contains(kinds, a.kind) {
			all = append(all, *a)
		}
	}
	return all
}

// describe lists the received requests for the log.
func (c *Callback) describe() string {
	var b strings.Builder
	for i, a := range c.Requests() {
		if i == 20 {
			b.WriteString("and more\n")
			break
		}
		fmt.Fprintf(&b, "%s %s %s, %d bytes, status %d; %v\n", a.At.Format("05.000"), a.kind, a.Target, len(a.Body), a.Status, a.Header)
	}
	return b.String()
}
