package problem

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/rshub/rshub/feed"
)

// A Handler answers a request, or returns an error without having answered
// anything.
type Handler func(w http.ResponseWriter, r *http.Request) error

// An Adapter makes http.Handlers of Handlers. It answers with the errors that
// they return, and logs the hub's own faults.
type Adapter struct {
	Logger *slog.Logger
	Path   func(path string) string                                              // how the log shows a path; default: unchanged
	Write  func(w http.ResponseWriter, r *http.Request, err error) *feed.Problem // answers with an error; default: Write
}

// Handle returns h as an http.Handler.
func (a *Adapter) Handle(h Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			a.writeError(w, r, err)
		}
	}
}

func (a *Adapter) writeError(w http.ResponseWriter, r *http.Request, err error) {
	write := Write
	if a.Write != nil {
		write = a.Write
	}
	p := write(w, r, err)
	path := r.URL.Path
	if a.Path != nil {
		path = a.Path(path)
	}
	switch {
	case r.Context().Err() != nil && errors.Is(err, context.Canceled): // the client went away, and that is all
	case p.Status == http.StatusInternalServerError:
		a.Logger.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", path, "err", err)
	case p.Status > http.StatusInternalServerError && p.Err != nil: // without Err, the hub refuses on purpose
		a.Logger.WarnContext(r.Context(), "request refused", "method", r.Method, "path", path, "err", err)
	}
}

// Write answers a request with the problem document for err (RFC 9457), and
// returns the problem. If the answer has an X-Request-Id, the document carries
// it too. Nothing may have been answered before. Headers that the handler set
// for its own document are removed.
func Write(w http.ResponseWriter, r *http.Request, err error) *feed.Problem {
	p := From(err)
	h := w.Header()
	SetHeader(h, p)
	for _, name := range []string{"Etag", "Last-Modified", "Content-Encoding", "Content-Length", "Link"} {
		if http.Header(p.Header).Get(name) == "" {
			h.Del(name) // the handler meant it for its document
		}
	}
	h.Set("Content-Type", "application/problem+json")
	shown := *p // other requests may be answered with the same Problem
	shown.RequestID = h.Get("X-Request-Id")
	body, _ := json.Marshal(&shown) // strings and numbers only
	body = append(body, '\n')
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone; there is nobody else to tell
	}
	return p
}

// WriteText answers with err as one line of text, which WebSub asks for where a
// form is refused (section 5.1.2), and returns the problem. Nothing may have
// been answered before.
func WriteText(w http.ResponseWriter, err error) *feed.Problem {
	p := From(err)
	h := w.Header()
	SetHeader(h, p)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(p.Status)
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	_, _ = w.Write([]byte(strings.ReplaceAll(text, "\n", " ") + "\n")) // the client may be gone
	return p
}

// WriteJSON answers with v as JSON, which no cache may keep.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

// SetHeader sets the headers of an answer with p, whatever form its body has.
func SetHeader(h http.Header, p *feed.Problem) {
	for name, values := range p.Header {
		h[name] = values
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	h.Set("Cache-Control", "no-store")
}
