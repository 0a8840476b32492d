// Package problem turns errors into answers. An error carries its own status,
// as a *Problem, a *feed.Error or a *resourcesync.Error; every other error is a
// failure of the hub. From is the only place that decides which status an error
// has. Adapter is the only place that answers with it and logs it. At the other
// end, Read turns such an answer into a Problem again. The package knows no
// store.
package problem

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Problem is an error as an HTTP client sees it (RFC 9457). As a Go error it
// carries its own status; From makes one of every other error.
type Problem struct {
	Type   string `json:"type"` // a URI under resourcesync.Terms, by which programs decide
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Entry  int    `json:"entry,omitempty"` // the entry of the batch that is wrong, from 1
	Line   int    `json:"line,omitempty"`  // the line of the input that is wrong, from 1
	Loc    string `json:"loc,omitempty"`   // the loc of that entry

	// Errors lists the mistakes in the batch if there is more than one, the first
	// included, up to resourcesync.MaxErrors. Detail has them, too.
	Errors []EntryError `json:"errors,omitempty"`

	RequestID string `json:"requestId,omitempty"` // the answer's X-Request-Id, which is in the log's lines too

	// Accepted says what an NDJSON stream had accepted before the error.
	Accepted *Accepted `json:"accepted,omitempty"`

	RetryAfter int         `json:"-"` // seconds for the header Retry-After; 0: none
	Header     http.Header `json:"-"` // further headers of the answer
	Err        error       `json:"-"` // the error behind it, for the log; nil when the other fields say all
}

// An EntryError is one of several things that are wrong in a batch.
type EntryError struct {
	Entry  int    `json:"entry,omitempty"`
	Line   int    `json:"line,omitempty"`
	Loc    string `json:"loc,omitempty"`
	Detail string `json:"detail"`
}

// Accepted says how much of a stream is in the change memory.
type Accepted struct {
	Count  int    `json:"count"`            // number of changes
	Line   int    `json:"line"`             // number of the last line that was accepted
	Cursor string `json:"cursor,omitempty"` // cursor of the last entry; empty when there is none
}

// Error returns the text for the log: the title, and what Err says. Without Err
// it is the title and the detail.
func (p *Problem) Error() string {
	switch {
	case p.Err != nil:
		return p.Title + ": " + p.Err.Error()
	case p.Detail != "":
		return p.Title + ": " + p.Detail
	}
	return p.Title
}

// Unwrap returns Err.
func (p *Problem) Unwrap() error { return p.Err }

// New returns the Problem for a status, with the usual title. Its type is
// resourcesync.Terms + "problems/" + name.
func New(status int, name, detail string) *Problem {
	return &Problem{Type: resourcesync.Terms + "problems/" + name, Title: http.StatusText(status), Status: status, Detail: detail}
}

// From is the only place where errors become HTTP. A Problem in err is returned
// as it is. Otherwise Err of the Problem is err. An error on which a client
// cannot act is a 500 without detail, because its text is for the log.
func From(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	p := newProblem(err)
	p.Err = err
	return p
}

func newProblem(err error) *Problem {
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		p := New(http.StatusBadRequest, "invalid", e.Error())
		if errors.Is(e, resourcesync.ErrTooLarge) {
			p = New(http.StatusRequestEntityTooLarge, "too-large", e.Error())
		}
		p.Entry, p.Line, p.Loc = e.Entry, e.Line, e.Loc
		if len(e.More) > 0 {
			for _, one := range append([]*resourcesync.Error{e}, e.More...) {
				p.Errors = append(p.Errors, EntryError{one.Entry, one.Line, one.Loc, one.Rule})
			}
		}
		return p
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return New(http.StatusRequestEntityTooLarge, "too-large", "the body is larger than "+strconv.FormatInt(e.Limit, 10)+" bytes")
	}
	e, ok := errors.AsType[*feed.Error](err)
	if !ok && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		e, ok = feed.ErrUnavailable, true
	}
	if ok {
		p := New(e.Status, e.Code, e.Detail)
		p.RetryAfter = e.Retry
		return p
	}
	return New(http.StatusInternalServerError, "internal", "the hub failed; its log says why")
}

// Retry sets p's Retry-After to a few seconds and returns p. Use it where
// trying again soon makes sense.
func Retry(p *Problem) *Problem {
	p.RetryAfter = 2
	return p
}

// NotAllowed returns the problem of a request whose method the URL does not
// take. methods are those that it takes, separated by commas.
func NotAllowed(r *http.Request, methods string) error {
	p := New(http.StatusMethodNotAllowed, "method-not-allowed", r.Method+" is not for this URL; it takes "+methods)
	p.Header = http.Header{"Allow": {methods}}
	return p
}

// OnlyRead returns nil for GET and HEAD, and NotAllowed for every other method.
// methods are those that the URL takes, separated by commas.
func OnlyRead(r *http.Request, methods string) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	return NotAllowed(r, methods)
}
