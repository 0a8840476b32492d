package problem

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// Limits of Read.
const (
	maxDocument = 1 << 20 // bytes
	maxText     = 500     // runes of each text
)

// Read is the client's counterpart of Write: it returns the Problem of an unsuccessful response. If
// the body is not a problem document, the Problem has only the status. Err is the feed.Error that
// the document's type names, so clients can use errors.Is(p, feed.ErrGone) as the hub's own callers
// do. RetryAfter comes from the header of that name, in seconds from now even if the header is a
// date.
//
// Texts are made safe for a terminal: one line of bounded length. An error means that the response
// was interrupted. The caller must close the body.
func Read(resp *http.Response, now time.Time) (*feed.Problem, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err != nil {
		return nil, fmt.Errorf("read response with status %d: %w", resp.StatusCode, err)
	}
	p := new(feed.Problem)
	if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t != "application/problem+json" || json.Unmarshal(body, p) != nil {
		p = &feed.Problem{Type: "about:blank"} // RFC 9457 section 4.2.1: no information beyond the status
	}
	p.Status = resp.StatusCode
	p.RetryAfter = int((RetryAfter(resp.Header, now) + time.Second - 1) / time.Second) // rounded up, so that the client never retries too early
	Clean(p)
	return p, nil
}

// Clean completes a problem document that a client has decoded: it makes the texts safe for a
// terminal, and sets Err as Read does.
func Clean(p *feed.Problem) {
	p.Title, p.Detail, p.Loc = sanitize(p.Title), sanitize(p.Detail), sanitize(p.Loc)
	p.Errors = p.Errors[:min(len(p.Errors), resourcesync.MaxErrors)]
	for i := range p.Errors {
		p.Errors[i].Loc, p.Errors[i].Detail = sanitize(p.Errors[i].Loc), sanitize(p.Errors[i].Detail)
	}
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	if code, ok := strings.CutPrefix(p.Type, resourcesync.Terms+"problems/"); ok {
		if e := feed.ErrorFromCode(code); e != nil {
			p.Err = e
		}
	}
}

// RetryAfter parses the header Retry-After of a response, which is a number of seconds or a date.
// It returns the time from now until the client may retry: at most 1e9 s, and 0 if the header is
// missing or invalid.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	const most = 1e9 * time.Second
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0 // without the cost of errors
	}
	if s, err := strconv.Atoi(v); err == nil || errors.Is(err, strconv.ErrRange) { // on ErrRange, s is the largest or smallest number
		return time.Duration(min(max(s, 0), 1e9)) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return min(max(t.Sub(now), 0), most)
	}
	return 0
}

// sanitize makes a text from a server safe for a terminal: one line of bounded length.
func sanitize(s string) string {
	r := []rune(s)
	if len(r) > maxText {
		r = append(r[:maxText], '…')
	}
	for i, c := range r {
		if !unicode.IsPrint(c) {
			r[i] = ' '
		}
	}
	return string(r)
}
