// Package problem converts errors to HTTP responses, and back. An error carries its own status, as
// a *feed.Problem, a *feed.Error or a *resourcesync.Error; every other error is a failure of the
// hub.
//
// Only From decides which status an error has. Only Adapter writes and logs it. At the other end,
// Read parses such a response into a Problem again. The package knows no store.
package problem

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// New returns the Problem for a status, with the usual title. Its type is
// resourcesync.Terms + "problems/" + name.
func New(status int, name, detail string) *feed.Problem {
	return &feed.Problem{Type: resourcesync.Terms + "problems/" + name, Title: http.StatusText(status), Status: status, Detail: detail}
}

// From converts an error to a Problem. It is the only place that assigns a status to errors. If err
// contains a Problem, From returns it unchanged. Otherwise Err of the Problem is err. An error that
// a client cannot act upon becomes a 500 without detail, because its text is for the log.
func From(err error) *feed.Problem {
	if p, ok := errors.AsType[*feed.Problem](err); ok {
		return p
	}
	p := newProblem(err)
	p.Err = err
	return p
}

func newProblem(err error) *feed.Problem {
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		p := New(http.StatusBadRequest, "invalid", e.Error())
		if errors.Is(e, resourcesync.ErrTooLarge) {
			p = New(http.StatusRequestEntityTooLarge, "too-large", e.Error())
		}
		p.Entry, p.Line, p.Loc = e.Entry, e.Line, e.Loc
		if len(e.More) > 0 {
			for _, one := range append([]*resourcesync.Error{e}, e.More...) {
				p.Errors = append(p.Errors, feed.EntryError{Entry: one.Entry, Line: one.Line, Loc: one.Loc, Detail: one.Msg})
			}
		}
		return p
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return New(http.StatusRequestEntityTooLarge, "too-large", "body is larger than "+strconv.FormatInt(e.Limit, 10)+" bytes")
	}
	e, ok := errors.AsType[*feed.Error](err)
	if !ok && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		e, ok = feed.ErrUnavailable, true
	}
	if ok {
		p := New(e.Status, e.Code, e.Detail)
		p.RetryAfter = e.RetryAfter
		return p
	}
	return New(http.StatusInternalServerError, "internal", "internal error of the hub; see its log")
}

// Retry sets p's Retry-After to a few seconds and returns p. Use it if an early retry may succeed.
func Retry(p *feed.Problem) *feed.Problem {
	p.RetryAfter = 2
	return p
}

// NotAllowed returns the problem of a request with a method that the URL does not support. methods
// are the supported methods, separated by commas.
func NotAllowed(r *http.Request, methods string) error {
	p := New(http.StatusMethodNotAllowed, "method-not-allowed", r.Method+" is not allowed for this URL; use "+methods)
	p.Header = http.Header{"Allow": {methods}}
	return p
}

// RequireRead returns nil for GET and HEAD, and NotAllowed for every other method. methods are the
// methods that the URL supports, separated by commas.
func RequireRead(r *http.Request, methods string) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	return NotAllowed(r, methods)
}
