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

// A Handler responds to a request, or returns an error without having written a response.
type Handler func(w http.ResponseWriter, r *http.Request) error

// An Adapter converts Handlers to http.Handlers. It writes responses for the errors that they
// return, and logs failures of the hub.
type Adapter struct {
	Logger *slog.Logger
	Path   func(path string) string                                              // redacts a path for the log; default: unchanged
	Write  func(w http.ResponseWriter, r *http.Request, err error) *feed.Problem // writes the response for an error; default: Write
}

// Handle returns h as an http.Handler.
func (a *Adapter) Handle(h Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			a.writeError(w, r, err)
		}
	}
}

// writeError writes the response for an error and logs the error if necessary.
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
	case r.Context().Err() != nil && errors.Is(err, context.Canceled): // the client closed the connection
	case p.Status == http.StatusInternalServerError:
		a.Logger.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", path, "err", err)
	case p.Status > http.StatusInternalServerError && p.Err != nil: // without Err, the refusal is intentional
		a.Logger.WarnContext(r.Context(), "request refused", "method", r.Method, "path", path, "err", err)
	}
}

// Write responds with the problem document for err (RFC 9457), and returns the problem. If the
// response has an X-Request-Id, so has the document. Nothing may have been written before. Headers
// that the handler set for its own document are removed.
func Write(w http.ResponseWriter, r *http.Request, err error) *feed.Problem {
	p := From(err)
	h := w.Header()
	SetHeader(h, p)
	for _, name := range []string{"Etag", "Last-Modified", "Content-Encoding", "Content-Length", "Link"} {
		if http.Header(p.Header).Get(name) == "" {
			h.Del(name) // set by the handler for its own document
		}
	}
	h.Set("Content-Type", "application/problem+json")
	shown := *p // p may be shared with other requests
	shown.RequestID = h.Get("X-Request-Id")
	body, _ := json.Marshal(&shown) // cannot fail: strings and numbers only
	body = append(body, '\n')
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // an error means that the client closed the connection
	}
	return p
}

// WriteText responds with err as one line of text, which WebSub requires for a rejected form
// (section 5.1.2), and returns the problem. Nothing may have been written before.
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
	_, _ = w.Write([]byte(strings.ReplaceAll(text, "\n", " ") + "\n")) // an error means that the client closed the connection
	return p
}

// WriteJSON responds with v as JSON that must not be cached.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client closed the connection
}

// SetHeader sets the headers of a response with p, regardless of the format of its body.
func SetHeader(h http.Header, p *feed.Problem) {
	for name, values := range p.Header {
		h[name] = values
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	h.Set("Cache-Control", "no-store")
}
