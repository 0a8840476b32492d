package server

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
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
func (q *requests) logged(next http.Handler, failed slog.Level) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestIDHeader)
		if !goodRequestID(id) {
			id = rand.Text()
		}
		w.Header().Set(requestIDHeader, id)
		if q.closing.Load() { // so that the client connects to another hub
			w.Header().Set("Connection", "close")
		}
		client := q.proxies.Client(r)
		ctx := forwarded.NewContext(context.WithValue(r.Context(), requestIDKey{}, id), client)
		record := q.record(id, client, r)
		if record != nil {
			ctx = trail.NewContext(ctx, record)
		}
		answer := &notedAnswer{ResponseWriter: w}
		begun := time.Now()
		defer func() {
			p := recover()
			if p != nil && p != http.ErrAbortHandler {
				q.log.ErrorContext(ctx, "http: panic in a request", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				p = http.ErrAbortHandler // so that net/http does not log the panic again
			}
			if p == nil {
				answer.note(http.StatusOK) // net/http sends 200 if a handler sends nothing
			}
			level := slog.LevelDebug
			if answer.status >= http.StatusInternalServerError && r.Context().Err() == nil && !(answer.status == http.StatusServiceUnavailable && q.starting.Load()) {
				level = failed
			}
			if q.log.Enabled(ctx, level) {
				q.log.Log(ctx, level, "request", "method", r.Method, "path", shownPath(r.URL.Path), "status", answer.status, "client", client.String(),
					"bytes", answer.bytes, "seconds", time.Since(begun).Seconds())
			}
			if record != nil && p != nil {
				q.trail.Add(record, 0)
			} else if record != nil {
				q.trail.Add(record, answer.status)
			}
			if p != nil {
				panic(p)
			}
		}()
		next.ServeHTTP(answer, r.WithContext(ctx))
	})
}

// record returns what the audit log will say of a request. It is nil if there is none.
func (q *requests) record(id string, client netip.Addr, r *http.Request) *trail.Record {
	if q.trail == nil {
		return nil
	}
	return &trail.Record{RequestID: id, Client: client, Method: r.Method, Path: shownPath(r.URL.Path)}
}

// shownPath returns a path as logs show it. It shortens long paths, shows no character that
// a terminal may obey, and leaves out the secret in the URL of a subscription: whoever knows
// it may see the subscription.
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

// A notedAnswer notes the status and the size of an answer. The status is 0 until
// the answer begins, and 101 if a handler took over the connection, as for a
// WebSocket.
type notedAnswer struct {
	http.ResponseWriter
	begins func(status int) // called once, when the answer begins; may be nil
	status int
	bytes  int64
}

// note notes the status of an answer, once. It ignores informational statuses such
// as 103, because the answer comes after them.
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

// Hijack takes over the connection. It notes 101, as for a WebSocket. But who has set a
// Content-Type answers with 200, and goes on by itself, as an event stream does.
func (a *notedAnswer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		status := http.StatusSwitchingProtocols
		if a.Header().Get("Content-Type") != "" {
			status = http.StatusOK
		}
		a.note(status)
	}
	return conn, rw, err
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
