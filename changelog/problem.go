package changelog

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/rshub/rshub/resourcesync"
)

// A Problem is an error as an HTTP client sees it (RFC 9457). As an error value
// it carries its own status; every other error gets one from NewProblem.
type Problem struct {
	Type   string `json:"type"` // a URI under resourcesync.Terms that programs decide by
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Entry  int    `json:"entry,omitempty"` // which entry of the batch, from 1
	Line   int    `json:"line,omitempty"`  // which line of the input, from 1
	Loc    string `json:"loc,omitempty"`   // that entry's loc

	RequestID string `json:"requestId,omitempty"` // of the answer's X-Request-Id; the log's lines have it too

	// What an NDJSON stream had accepted before the error.
	Accepted *Accepted `json:"accepted,omitempty"`

	RetryAfter int         `json:"-"` // seconds, for the header of that name
	Header     http.Header `json:"-"` // further headers
	Err        error       `json:"-"` // what it was made from, for the log; nil where nothing is left to say
}

// Accepted says how much of a stream is in the memory.
type Accepted struct {
	Count  int    `json:"count"`            // changes
	Line   int    `json:"line"`             // the last line that was accepted
	Cursor string `json:"cursor,omitempty"` // of the last entry; empty when there is none
}

// Error is for the log: it says what Err says, where there is one.
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

// NewStatus returns the Problem for a status, with the usual title. name ends
// its type.
func NewStatus(status int, name, detail string) *Problem {
	return &Problem{Type: resourcesync.Terms + "problems/" + name, Title: http.StatusText(status), Status: status, Detail: detail}
}

// NewProblem is the one place where errors become HTTP. What a client cannot
// act on is 500 without detail: the error is for the log. A Problem in err is
// returned as it is, for others Err is err.
func NewProblem(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	p := newProblem(err)
	p.Err = err
	return p
}

func newProblem(err error) *Problem {
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		p := NewStatus(http.StatusBadRequest, "invalid", e.Error())
		if errors.Is(e, resourcesync.ErrTooLarge) {
			p = NewStatus(http.StatusRequestEntityTooLarge, "too-large", e.Error())
		}
		p.Entry, p.Line, p.Loc = e.Entry, e.Line, e.Loc
		return p
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return NewStatus(http.StatusRequestEntityTooLarge, "too-large", "the body is larger than "+strconv.FormatInt(e.Limit, 10)+" bytes")
	}
	switch {
	case errors.Is(err, ErrGone):
		return NewStatus(http.StatusGone, "gone", "the change memory does not reach back that far: read the resources of the source anew, then follow from since=start")
	case errors.Is(err, ErrNoSet):
		return NewStatus(http.StatusNotFound, "no-such-set", "there is no such set; GET /sets lists them")
	case errors.Is(err, ErrKeyReused):
		return NewStatus(http.StatusUnprocessableEntity, "key-reused", "this Idempotency-Key was used before with other content")
	case errors.Is(err, ErrFull):
		return NewStatus(http.StatusInsufficientStorage, "full", "the change memory has no room; nothing was written")
	case errors.Is(err, ErrUnknown):
		return retry(NewStatus(http.StatusServiceUnavailable, "unknown", "unknown whether the change memory has it: send again with the same Idempotency-Key"))
	case errors.Is(err, ErrClock):
		return retry(NewStatus(http.StatusServiceUnavailable, "clock", "the hub's clock is behind the change memory; nothing was written"))
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return retry(NewStatus(http.StatusServiceUnavailable, "unavailable", "the change memory cannot be reached now; nothing was written"))
	}
	return NewStatus(http.StatusInternalServerError, "internal", "the hub failed; its log says why")
}

// retry says that trying again soon makes sense.
func retry(p *Problem) *Problem {
	p.RetryAfter = 2
	return p
}

// WriteError answers a request with the problem that err is, and returns that
// problem so that the caller can log what is the hub's own fault. An X-Request-Id
// that the answer has is in the problem too.
func WriteError(w http.ResponseWriter, r *http.Request, err error) *Problem {
	p := NewProblem(err)
	h := w.Header()
	for name, values := range p.Header {
		h[name] = values
	}
	for _, name := range []string{"Etag", "Last-Modified", "Content-Encoding", "Content-Length", "Link"} {
		if p.Header.Get(name) == "" {
			h.Del(name) // what the handler meant for the document
		}
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	shown := *p // others may answer with the same one
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

// NotAllowed answers a request whose method is not for its URL. methods are
// those that are, by comma.
func NotAllowed(w http.ResponseWriter, r *http.Request, methods string) {
	p := NewStatus(http.StatusMethodNotAllowed, "method-not-allowed", r.Method+" is not for this URL; it takes "+methods)
	p.Header = http.Header{"Allow": {methods}}
	WriteError(w, r, p)
}
