package server

import (
	"bufio"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/internal/limit"
)

// A response is the http.ResponseWriter of all handlers. It records status and size, and counts the
// response by route. http.ResponseController finds the other capabilities of the connection.
//
// Each piece of a response has a deadline of its own, so a client that reads nothing is cut off,
// while a large response may take long. net/http removes the last deadline before the next request on
// a connection. Over HTTP/2 a deadline also ends a response that is idle, so handlers that wait in
// the middle of a response, such as event streams, remove the deadline in the meantime.
type response struct {
	http.ResponseWriter
	control *http.ResponseController // controller of the ResponseWriter
	timeout time.Duration            // deadline of each piece; zero means none

	status int   // 0 before the response starts; 101 if a handler took over the connection, as for a WebSocket
	bytes  int64 // size of the body so far

	router   *router                           // counts the response; nil if it is not counted
	request  *http.Request                     // request before routing
	counters *[len(classes)]prometheus.Counter // counters of the route, once its handler is called

	conn     *limit.Conn // HTTP/2 connection whose refusals are limited, otherwise nil
	admitted bool        // whether the request was admitted by the limits of its caller or address
	refused  bool        // whether the response is an error to a request that was not admitted
	bare     bool        // whether the refusal has no body
	cut      bool        // whether the refusal has no response
}

// maxPiece is the number of bytes that a client must read within one deadline.
const maxPiece = 64 << 10

// wrapResponse wraps the ResponseWriter of each request, with a deadline for each piece.
func wrapResponse(timeout time.Duration) step {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(&response{ResponseWriter: w, control: http.NewResponseController(w), timeout: timeout}, r)
		})
	}
}

// responseOf returns w, which wrapResponse has created. It wraps w in tests of single steps.
func responseOf(w http.ResponseWriter) *response {
	if a, ok := w.(*response); ok {
		return a
	}
	return &response{ResponseWriter: w, control: http.NewResponseController(w)}
}

// setStatus records the first final status. It ignores informational statuses such as 103.
func (a *response) setStatus(status int) {
	if a.status != 0 || status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return
	}
	a.status = status
	if a.router != nil {
		a.router.countResponse(a)
	}
}

// extendDeadline sets the deadline of the next piece.
func (a *response) extendDeadline() {
	if a.timeout > 0 {
		_ = a.control.SetWriteDeadline(time.Now().Add(a.timeout))
	}
}

// Unwrap returns the wrapped ResponseWriter for http.ResponseController.
func (a *response) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *response) WriteHeader(status int) {
	a.setStatus(status)
	a.countRefusal(status)
	a.extendDeadline()
	a.ResponseWriter.WriteHeader(status)
}

func (a *response) Write(p []byte) (n int, err error) {
	a.setStatus(http.StatusOK)
	if a.bare {
		return len(p), nil
	}
	for {
		piece := p[n:min(n+maxPiece, len(p))]
		a.extendDeadline()
		m, err := a.ResponseWriter.Write(piece)
		a.bytes += int64(m)
		if n += m; err != nil || n == len(p) {
			return n, err
		}
	}
}

// Hijack takes over the connection, for example for a WebSocket, and records the status 101.
func (a *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := a.control.Hijack()
	if err == nil {
		a.setStatus(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// Over HTTP/2 a client can have many requests in progress on one connection without reading the
// responses. The limits of callers and addresses do not apply to refused requests, each of which
// would hold memory until its deadline. So the refusals in progress on one connection are limited.
const (
	maxRefusalBodies = 8  // further refusals have no body, so that they need no flow control window
	maxRefusals      = 64 // further requests are reset
)

// limitRefusals limits the refusals in progress on one HTTP/2 connection.
func limitRefusals(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := responseOf(w)
		if c := limit.ConnOf(r.Context()); c != nil && r.ProtoMajor >= 2 {
			a.conn = c
			defer a.releaseRefusal()
		}
		next.ServeHTTP(a, r)
	})
}

// countRefusal counts a refusal. It resets the request if the connection has too many.
func (a *response) countRefusal(status int) {
	if a.conn == nil || status < http.StatusBadRequest || a.admitted || a.refused {
		return
	}
	a.refused = true
	switch n := a.conn.Refusals.Add(1); {
	case n > maxRefusals:
		a.cut = true
		panic(http.ErrAbortHandler) // releaseRefusal decrements the count
	case n > maxRefusalBodies:
		a.bare = true
		a.Header().Del("Content-Type")
		a.Header().Set("Content-Length", "0")
	}
}

// releaseRefusal decrements the count when the handler has returned. It flushes first, because
// net/http sends the end of a response after that.
func (a *response) releaseRefusal() {
	if !a.refused {
		return
	}
	if !a.cut {
		_ = a.control.Flush()
	}
	a.conn.Refusals.Add(-1)
}
