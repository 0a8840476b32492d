package server

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/rshub/rshub/internal/forwarded"
	"github.com/rshub/rshub/internal/trail"
)

// requestIDHeader has the ID of a request, in the request and in its response.
const requestIDHeader = "X-Request-Id"

type requestIDKey struct{}

// maxRequestID is the maximum length in bytes of an ID in a request.
const maxRequestID = 128

// validRequestID reports whether an ID from a request is safe in logs and responses.
func validRequestID(id string) bool {
	return id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune("-_.:=+/@", c)
	})
}

// A requestLog gives each request an ID and a line in the log.
type requestLog struct {
	log      *slog.Logger
	trail    *trail.Log        // nil without an audit log
	proxies  forwarded.Proxies // trusted for the address of the client
	starting atomic.Bool       // whether the hub waits for its memory, so that a 503 is not a failure
	closing  atomic.Bool       // whether the hub is stopping, so that connections are closed after a response
}

// logged gives each request an ID: its own X-Request-Id, or a new one. The response and all lines
// logged with the context of the request have it. logged also stores the address of the client for
// forwarded.Client. It logs each request, at the level debug, or failed if the status is 5xx and the
// client has not left.
func (q *requestLog) logged(failed slog.Level) step {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id := r.Header.Get(requestIDHeader)
			if !validRequestID(id) {
				id = rand.Text()
			}
			a := responseOf(w)
			a.Header().Set(requestIDHeader, id)
			if q.closing.Load() { // so that the client connects to another hub
				a.Header().Set("Connection", "close")
			}
			client := q.proxies.Client(r)
			ctx := forwarded.NewContext(context.WithValue(r.Context(), requestIDKey{}, id), client)
			var record *trail.Record
			if q.trail != nil {
				record = &trail.Record{RequestID: id, Client: client, Method: r.Method, Path: shownPath(r.URL.Path)}
				ctx = trail.NewContext(ctx, record)
			}
			start := time.Now()
			defer func() {
				p := recover()
				if p != nil && p != http.ErrAbortHandler {
					q.log.ErrorContext(ctx, "panic in a request", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
					p = http.ErrAbortHandler // so that net/http does not log the panic again
				}
				if p == nil {
					a.setStatus(http.StatusOK) // net/http sends 200 if a handler sends nothing
				}
				level := slog.LevelDebug
				starting := a.status == http.StatusServiceUnavailable && q.starting.Load()
				if a.status >= http.StatusInternalServerError && !starting && r.Context().Err() == nil { // a failure of the hub
					level = failed
				}
				if q.log.Enabled(ctx, level) {
					q.log.Log(ctx, level, "request", "method", r.Method, "path", shownPath(r.URL.Path), "status", a.status, "client", client.String(),
						"bytes", a.bytes, "seconds", time.Since(start).Seconds())
				}
				if record != nil && p != nil {
					q.trail.Add(record, 0)
				} else if record != nil {
					q.trail.Add(record, a.status)
				}
				if p != nil {
					panic(p)
				}
			}()
			next.ServeHTTP(a, r.WithContext(ctx))
		})
	}
}

// shownPath returns a path for logs: long paths are cut, unprintable characters replaced, and the
// secret in the URL of a subscription, which gives access to it, is omitted.
func shownPath(path string) string {
	const maxLen = 200
	if before, name, ok := strings.Cut(path, "/subscriptions/"); ok {
		id, _, _ := strings.Cut(name, ".")
		path = before + "/subscriptions/" + id // the secret follows the dot
	}
	if len(path) > maxLen {
		path = path[:maxLen] + "…"
	}
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return unicode.ReplacementChar
	}, path)
}

// A requestHandler adds the ID of the request to log lines with the context of a request.
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
