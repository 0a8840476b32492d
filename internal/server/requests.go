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

// requestIDHeader carries the id of a request, in the request and in its answer.
const requestIDHeader = "X-Request-Id"

type requestIDKey struct{}

// maxRequestID bounds an id that comes with a request, in bytes.
const maxRequestID = 128

// goodRequestID reports whether the hub can use an id that came with a request. The
// hub writes the id to logs and into answers, so a bad one could do harm there.
func goodRequestID(id string) bool {
	return id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune("-_.:=+/@", c)
	})
}

// requests gives each request an id, and a line in the log.
type requests struct {
	log      *slog.Logger
	trail    *trail.Log        // nil: there is no audit log
	proxies  forwarded.Proxies // that are believed when they say who the client is
	starting atomic.Bool       // the hub waits for its memory: an answer 503 is no failure
	closing  atomic.Bool       // the hub is stopping: each connection ends after its answer
}

// logged gives each request an id: its own X-Request-Id, or a new one. The answer
// has the id, and so has every line that is logged with the request's context. It notes
// the address of the client, so that forwarded.Client is right from here on. Each
// request has a line in the log. The level is debug, or failed if the answer is 5xx
// and the client has not left.
func (q *requests) logged(failed slog.Level) step {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id := r.Header.Get(requestIDHeader)
			if !goodRequestID(id) {
				id = rand.Text()
			}
			a := answerOf(w)
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
			begun := time.Now()
			defer func() {
				p := recover()
				if p != nil && p != http.ErrAbortHandler {
					q.log.ErrorContext(ctx, "http: panic in a request", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
					p = http.ErrAbortHandler // so that net/http does not log the panic again
				}
				if p == nil {
					a.begin(http.StatusOK) // net/http sends 200 if a handler sends nothing
				}
				level := slog.LevelDebug
				waits := a.status == http.StatusServiceUnavailable && q.starting.Load()
				if a.status >= http.StatusInternalServerError && !waits && r.Context().Err() == nil { // the hub failed, and a client met that
					level = failed
				}
				if q.log.Enabled(ctx, level) {
					q.log.Log(ctx, level, "request", "method", r.Method, "path", shownPath(r.URL.Path), "status", a.status, "client", client.String(),
						"bytes", a.bytes, "seconds", time.Since(begun).Seconds())
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

// shownPath returns a path as logs show it. It shortens long paths, shows no character that
// a terminal may obey, and leaves out the secret in the URL of a subscription: everybody who
// knows it may see the subscription.
func shownPath(path string) string {
	const most = 200
	if before, name, ok := strings.Cut(path, "/subscriptions/"); ok {
		id, _, _ := strings.Cut(name, ".")
		path = before + "/subscriptions/" + id // what follows the dot is the secret
	}
	if len(path) > most {
		path = path[:most] + "…"
	}
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return unicode.ReplacementChar
	}, path)
}

// A requestHandler adds the request's id to each line that is logged with the
// context of a request.
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
