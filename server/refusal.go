package server

import (
	"context"
	"net/http"

	"github.com/rshub/rshub/limit"
)

// Over HTTP/2 a client has many requests under way on one connection, and does not have to
// take any answer. Requests that a user's limits admit are bounded by these limits. Those
// that are refused are not, and each would hold memory until a deadline ends it. So a
// connection has few refusals at the same time that its client may take when it likes.
const (
	fullRefusals = 8  // further ones have no body, so they need no room that the client grants
	mostRefusals = 64 // further requests are cut off, so they do not even wait for the connection
)

// bounded bounds what refused requests hold. See refusals.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := limit.ConnOf(r.Context())
		if c == nil || r.ProtoMajor < 2 {
			next.ServeHTTP(w, r)
			return
		}
		a := &arrival{ResponseWriter: w, conn: c}
		defer a.leave()
		next.ServeHTTP(a, r.WithContext(context.WithValue(r.Context(), arrivalKey{}, a)))
	})
}

// An arrival is a request over HTTP/2. It is a refusal if it is answered with an error and
// was not admitted before.
type arrival struct {
	http.ResponseWriter
	conn     *limit.Conn
	admitted bool
	refused  bool
	bare     bool // the answer has no body
	cut      bool // there is no answer
}

type arrivalKey struct{}

// admit notes that the limits of somebody count for the request of ctx.
func admit(ctx context.Context) {
	if a, _ := ctx.Value(arrivalKey{}).(*arrival); a != nil {
		a.admitted = true
	}
}

// Unwrap lets http.ResponseController find what the connection can do.
func (a *arrival) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *arrival) WriteHeader(status int) {
	if status >= http.StatusBadRequest && !a.admitted && !a.refused {
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
	a.ResponseWriter.WriteHeader(status)
}

func (a *arrival) Write(p []byte) (int, error) {
	if a.bare {
		return len(p), nil
	}
	return a.ResponseWriter.Write(p)
}

// leave is called when the handler has returned. It waits until a refusal is on its way,
// because net/http sends the last of an answer after that.
func (a *arrival) leave() {
	if a.refused {
		if !a.cut {
			_ = http.NewResponseController(a.ResponseWriter).Flush()
		}
		a.conn.Refusals.Add(-1)
	}
}
