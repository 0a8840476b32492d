package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/accept"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

const (
	jsonType   = "application/json"
	ndjsonType = "application/x-ndjson"
)

// Limits of a page.
const (
	defaultLimit = 1_000
	maxLimit     = 10_000
	maxPage      = 4 << 20 // bytes of resources; a single one may be larger
	maxWalked    = 50_000  // resources that are read, including those that the filter excludes
)

const (
	streamBytes = 1 << 20  // memory of an answer that is sent while the resources are read
	flushBytes  = 64 << 10 // bytes of a write
)

// A listing is a request for {set}/resources.
type listing struct {
	set    string
	whole  inventory.Range // range of the count and the digests
	rest   inventory.Range // part of whole that the client has not read yet
	filter feed.Filter     // a collection
	limit  int             // zero means unlimited
	stream bool            // whether the answer is NDJSON
	query  url.Values      // query of the next page, without at and after
}

// parseListing parses a request, and the cursor in it, which may be zero.
func parseListing(r *http.Request, set string) (l listing, at feed.Cursor, err error) {
	q, err := parseQuery(r, "prefix", "after", "limit", "loc", "at", "collection")
	if err != nil {
		return l, at, err
	}
	if at, err = parseCursor(q, "at"); err != nil {
		return l, at, err
	}
	l = listing{set: set, limit: defaultLimit, query: url.Values{}}
	switch accept.Media(r.Header, jsonType, ndjsonType) {
	case ndjsonType:
		l.stream, l.limit = true, 0
	case "":
		return l, at, problem.New(http.StatusNotAcceptable, "not-acceptable", "Accept allows none of the available types: "+jsonType+" and "+ndjsonType)
	}
	if v := q.Get("limit"); v != "" {
		if l.limit, err = strconv.Atoi(v); err != nil || l.limit < 1 || l.limit > maxLimit {
			return l, at, resourcesync.Invalidf("limit: got %.20q, want 1 to %d", v, maxLimit)
		}
		l.query.Set("limit", v)
	}
	if q.Has("prefix") {
		l.query.Set("prefix", q.Get("prefix"))
	}
	if c := q.Get("collection"); c != "" {
		if l.filter, err = feed.ParseFilter(url.Values{"collection": {c}}); err != nil {
			return l, at, err
		}
		l.query.Set("collection", c)
	}
	l.whole = inventory.Prefix(q.Get("prefix"))
	if loc := q.Get("loc"); loc != "" {
		if q.Has("prefix") || q.Has("after") || q.Has("collection") {
			return l, at, resourcesync.Invalidf("loc cannot be combined with prefix, after or collection")
		}
		l.whole = inventory.Range{From: loc, To: loc + "\x00"}
	}
	l.rest = l.whole
	if after := q.Get("after"); after != "" {
		l.rest.From = max(l.rest.From, after+"\x00")
	}
	return l, at, nil
}

// ServeResources answers GET and HEAD of {base}/sets/{set}/resources with the resources of a set, each
// with its newest change, ordered by loc. All pages that link to each other show one state. If it
// returns an error, no answer was written.
func (s *Server) ServeResources(w http.ResponseWriter, r *http.Request, set string) error {
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	w.Header().Add("Vary", "Accept")
	l, at, err := parseListing(r, set)
	if err != nil {
		return err
	}
	share, err := s.opts.Streams.Acquire(r.Context(), streamBytes)
	if err != nil {
		return err
	}
	defer share.Release()
	state, err := s.pinState(r.Context(), set, at)
	if err != nil {
		return err
	}
	defer state.Release()
	summary, err := summarize(r.Context(), set, state, l.whole)
	if err != nil {
		return err
	}
	p := page{listing: l, state: state, head: summary.AppendJSON(nil)}
	last, more, err := p.findEnd(r.Context())
	if err != nil {
		return fmt.Errorf("resources of set %q: %w", set, err)
	}
	h := w.Header()
	h.Set("RS-Inventory", string(p.head))
	h.Set("Cache-Control", "no-store")
	if h.Set("Content-Type", jsonType); l.stream {
		h.Set("Content-Type", ndjsonType)
	}
	if more {
		l.query.Set("at", summary.Cursor.String())
		l.query.Set("after", last)
		p.next = s.base.Resources(set) + "?" + l.query.Encode()
		h.Add("Link", "<"+p.next+`>; rel="next"`)
	}
	if r.Method == http.MethodHead {
		return nil
	}
	if err := p.write(r.Context(), w); err != nil {
		if !errors.Is(err, errClient) && r.Context().Err() == nil {
			s.opts.Logger.ErrorContext(r.Context(), "list of resources aborted", "set", set, "err", err)
		}
		panic(http.ErrAbortHandler) // so that the client does not mistake the part for a whole answer
	}
	return nil
}

// pinState returns the state at a cursor, or the newest state if the cursor is zero.
func (s *Server) pinState(ctx context.Context, set string, at feed.Cursor) (*inventory.Pinned, error) {
	if at.IsZero() {
		return s.states.State(ctx, set, at, 0)
	}
	return s.stateAt(ctx, set, at, "resources", "start the list over")
}

// A page is the answer to a listing.
type page struct {
	listing
	state *inventory.Pinned
	head  []byte // summary as a JSON object, with which the answer starts
	next  string // URL of the next page; empty if this is the last one
}

// findEnd finds the last resource of a page, because the answer links to the next page before its
// resources. It cuts p.rest there, and reports whether more resources follow. A stream without a limit
// is not read.
func (p *page) findEnd(ctx context.Context) (last string, more bool, err error) {
	if p.limit == 0 {
		return "", false, nil
	}
	var text []byte
	n, size, walked := 0, 0, 0
	for e, err := range p.state.Walk(ctx, p.rest) {
		if err != nil {
			return "", false, err
		}
		if walked++; walked > maxWalked {
			more = true
			break
		}
		if p.filter.Match(&e.Change) {
			text = feed.JSON.Page.Entry(text[:0], p.set, e, n == 0)
			if size += len(text); n == p.limit || n > 0 && size > maxPage {
				more = true
				break
			}
			n++
		}
		last = e.Change.Loc
	}
	last = strings.Clone(last) // it outlives the decoded page
	if p.rest.To = last + "\x00"; last == "" {
		p.rest.From = p.rest.To // an empty range
	}
	return last, more, nil
}

var errClient = errors.New("write to client failed")

// write writes the answer while it reads the resources.
func (p *page) write(ctx context.Context, w http.ResponseWriter) error {
	text := make([]byte, 0, flushBytes+16<<10)
	flush := func() error {
		if err := ctx.Err(); err != nil { // a walk in memory does not check ctx
			return err
		}
		if _, err := w.Write(text); err != nil {
			return fmt.Errorf("%w: %w", errClient, err)
		}
		text = text[:0]
		return nil
	}
	format, start, end := feed.JSON, `,"resources":[`, "]}\n"
	if p.stream {
		format, start, end = feed.NDJSON, "}\n", ""
	} else if p.next != "" {
		start = `,"next":` + strconv.Quote(p.next) + start // for a URL, the same as in JSON
	}
	text = append(append(text, p.head[:len(p.head)-1]...), start...)
	first := true
	for e, err := range p.state.Walk(ctx, p.rest) {
		if err != nil {
			return err
		}
		if !p.filter.Match(&e.Change) {
			continue
		}
		if text = format.Page.Entry(text, p.set, e, first); len(text) >= flushBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		first = false
	}
	text = append(text, end...)
	return flush()
}
