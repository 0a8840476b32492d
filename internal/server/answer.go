package server

import (
	"bufio"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/internal/limit"
)

// An answer is the http.ResponseWriter that every handler gets. It knows the status and the
// size of what is answered, and counts it by its route. What the connection can do beside
// that, http.ResponseController finds.
//
// Each piece of an answer has a deadline of its own. So a client that takes nothing is cut,
// and a large answer may take long. net/http removes the last deadline before the next
// request on a connection. Over HTTP/2 a deadline also ends an answer that has begun and is
// silent. So an answer that waits in its middle, such as an event stream, removes its
// deadline meanwhile.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController // of the ResponseWriter
	timeout time.Duration            // of each piece; 0: pieces have no deadline

	status int   // 0 until the answer begins; 101 if a handler took over the connection, as for a WebSocket
	bytes  int64 // of the body, so far

	router   *router                           // counts the answer; nil: nobody does
	request  *http.Request                     // as it came to the router
	counters *[len(classes)]prometheus.Counter // of the route, once a handler of it is called

	conn     *limit.Conn // of a request over HTTP/2; else nil. It bounds refusals
	admitted bool        // the limits of a caller or an address count for the request
	refused  bool        // the answer is an error, and the request was not admitted before
	bare     bool        // a refusal without a body
	cut      bool        // a refusal without an answer
}

// maxPiece is how many bytes of an answer the client must take within one deadline.
const maxPiece = 64 << 10

// answers gives every request its answer, with this time for each piece.
func answers(timeout time.Duration) step {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(&answer{ResponseWriter: w, control: http.NewResponseController(w), timeout: timeout}, r)
		})
	}
}

// answerOf returns w, which answers has made. For a step that is tested alone, it makes one.
func answerOf(w http.ResponseWriter) *answer {
	if a, ok := w.(*answer); ok {
		return a
	}
	return &answer{ResponseWriter: w, control: http.NewResponseController(w)}
}

// begin notes the status of an answer, once. It ignores informational statuses such
// as 103, because the answer comes after them.
func (a *answer) begin(status int) {
	if a.status != 0 || status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return
	}
	a.status = status
	if a.router != nil {
		a.router.count(a)
	}
}

// extend begins the time for the next piece.
func (a *answer) extend() {
	if a.timeout > 0 {
		_ = a.control.SetWriteDeadline(time.Now().Add(a.timeout))
	}
}

// Unwrap lets http.ResponseController find what the connection can do.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	a.begin(status)
	a.refuse(status)
	a.extend()
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (n int, err error) {
	a.begin(http.StatusOK)
	if a.bare {
		return len(p), nil
	}
	for {
		piece := p[n:min(n+maxPiece, len(p))]
		a.extend()
		m, err := a.ResponseWriter.Write(piece)
		a.bytes += int64(m)
		if n += m; err != nil || n == len(p) {
			return n, err
		}
	}
}

// Hijack takes over the connection, as a WebSocket does. The status is 101 then.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := a.control.Hijack()
	if err == nil {
		a.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// Over HTTP/2 a client has many requests under way on one connection, and does not have to
// take any answer. The limits of callers and addresses bound the requests that they admit.
// They do not bound those that are refused, and each of these would hold memory until a
// deadline ends it. So one connection has few refusals at the same time.
const (
	fullRefusals = 8  // further ones have no body, so they need no room that the client grants
	mostRefusals = 64 // further requests are cut off, so they do not even wait for the connection
)

// boundRefusals bounds the refusals that are under way on one HTTP/2 connection.
func boundRefusals(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := answerOf(w)
		if c := limit.ConnOf(r.Context()); c != nil && r.ProtoMajor >= 2 {
			a.conn = c
			defer a.leave()
		}
		next.ServeHTTP(a, r)
	})
}

// refuse counts a refusal. It ends the request if the connection has too many.
func (a *answer) refuse(status int) {
	if a.conn == nil || status < http.StatusBadRequest || a.admitted || a.refused {
		return
	}
	a.refused = true
	switch n := a.conn.Refusals.Add(1); {
	case n > mostRefusals:
		a.cut = true
		panic(http.ErrAbortHandler) // leave counts it off
	case n > fullRefusals:
		a.bare = true
		a.Header().Del("Content-Type")
		a.Header().Set("Content-Length", "0")
	}
}

// leave counts a refusal off when the handler has returned. It waits until the refusal is on
// its way, because net/http sends the last of an answer after that.
func (a *answer) leave() {
	if !a.refused {
		return
	}
	if !a.cut {
		_ = a.control.Flush()
	}
	a.conn.Refusals.Add(-1)
}
