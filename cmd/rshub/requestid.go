package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"
)

// requestIDHeader carries the id of a request, both ways.
const requestIDHeader = "X-Request-Id"

type requestIDKey struct{}

// maxRequestID bounds an id that comes with a request, in bytes.
const maxRequestID = 128

// goodRequestID reports whether an id that came with a request can stay: it is
// written to logs and into answers.
func goodRequestID(id string) bool {
	return id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune("-_.:=+/@", c)
	})
}

// logged gives each request an id, its own X-Request-Id or a new one, which is
// sent back and is in every line that is logged with the request's context. Each
// request has a line: at the level debug, and where the hub failed at failed.
func (s *server) logged(next http.Handler, failed slog.Level) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestIDHeader)
		if !goodRequestID(id) {
			id = rand.Text()
		}
		w.Header().Set(requestIDHeader, id)
		if s.stopping.Load() { // so that the client connects to another hub
			w.Header().Set("Connection", "close")
		}
		ctx := context.WithValue(r.Context(), requestIDKey{}, id)
		answer := &notedAnswer{ResponseWriter: w}
		begun := time.Now()
		defer func() {
			p := recover()
			if p != nil && p != http.ErrAbortHandler {
				s.log.ErrorContext(ctx, "http: panic in a request", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				p = http.ErrAbortHandler // net/http has nothing to add
			}
			if p == nil {
				answer.note(http.StatusOK) // what net/http says for who says nothing
			}
			level := slog.LevelDebug
			if answer.status >= http.StatusInternalServerError && r.Context().Err() == nil {
				level = failed
			}
			if s.log.Enabled(ctx, level) {
				s.log.Log(ctx, level, "request", "method", r.Method, "path", shownPath(r.URL.Path), "status", answer.status,
					"bytes", answer.bytes, "seconds", time.Since(begun).Seconds())
			}
			if p != nil {
				panic(p)
			}
		}()
		next.ServeHTTP(answer, r.WithContext(ctx))
	})
}

// shownPath is a path as logs show it: without what is a right for whoever
// knows it, and not longer than it needs to be.
func shownPath(path string) string {
	const most = 200
	if before, name, ok := strings.Cut(path, "/subscriptions/"); ok {
		id, _, _ := strings.Cut(name, ".")
		path = before + "/subscriptions/" + id // what follows the dot is the right
	}
	if len(path) > most {
		path = path[:most] + "…"
	}
	return path
}

// A notedAnswer notes what is answered. The status is 0 while there is no answer,
// and 101 when the connection was taken over, as by a WebSocket.
type notedAnswer struct {
	http.ResponseWriter
	begins func(status int) // called once, when the answer begins; nil: nobody wants to know
	status int
	bytes  int64
}

// note notes the first status of an answer; what comes before it, such as 103, is
// none.
func (a *notedAnswer) note(status int) {
	if a.status != 0 || status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return
	}
	a.status = status
	if a.begins != nil {
		a.begins(status)
	}
}

// Unwrap lets http.ResponseController find what the connection can do.
func (a *notedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *notedAnswer) WriteHeader(status int) {
	a.note(status)
	a.ResponseWriter.WriteHeader(status)
}

func (a *notedAnswer) Write(p []byte) (int, error) {
	a.note(http.StatusOK)
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}

// Hijack is how a WebSocket begins.
func (a *notedAnswer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.note(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// A requestHandler adds to what is logged with the context of a request the
// request's id.
type requestHandler struct{ slog.Handler }

func (h requestHandler) Handle(ctx context.Context, r slog.Record) error {
	if id, ok := ctx.Value(requestIDKey{}).(string); ok {
		r = r.Clone()
		r.AddAttrs(slog.String("requestId", id))
	}
	return h.Handler.Handle(ctx, r)
}

func (h requestHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return requestHandler{h.Handler.WithAttrs(attrs)}
}

func (h requestHandler) WithGroup(name string) slog.Handler {
	return requestHandler{h.Handler.WithGroup(name)}
}
