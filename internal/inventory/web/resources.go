package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/accept"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

const (
	jsonType   = "application/json"
	ndjsonType = "application/x-ndjson"
)

// The limits of a page.
const (
	defaultLimit = 1_000
	maxLimit     = 10_000
	maxPage      = 4 << 20 // bytes of its resources; a single one may be longer
	maxLooked    = 50_000  // resources that are read for it, also those of other collections
)

const (
	streamRoom = 1 << 20  // the memory of an answer that is sent while it is read
	writeAt    = 64 << 10 // bytes that are written at a time
)

// A listing is what a client asks for at {set}/resources.
type listing struct {
	set    string
	whole  inventory.Range // the range of the count and the digests
	rest   inventory.Range // the range that the client has not read yet
	filter feed.Filter     // what else chooses resources: a collection
	limit  int             // 0: none
	stream bool            // as NDJSON, else as a page of JSON
	query  url.Values      // the query for the next page, without at and after
}

// parseListing reads a request, and the cursor in it, if there is one.
func parseListing(r *http.Request, set string) (l listing, at feed.Cursor, err error) {
	q := r.URL.Query()
	if err := once(q, "prefix", "after", "limit", "loc", "at", "collection"); err != nil {
		return l, at, err
	}
	if at, err = cursor(q, "at"); err != nil {
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
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > maxLimit {
			return l, at, resourcesync.Invalidf("limit: got %.20q, want 1 to %d", v, maxLimit)
		}
		l.limit = n
		l.query.Set("limit", v)
	}
	l.whole = inventory.Prefix(q.Get("prefix"))
	if q.Has("prefix") {
		l.query.Set("prefix", q.Get("prefix"))
	}
	if c := q.Get("collection"); c != "" {
		if l.filter, err = feed.ParseFilter(url.Values{"collection": {c}}); err != nil {
			return l, at, err
		}
		l.query.Set("collection", c)
	}
	if loc := q.Get("loc"); loc != "" {
		if q.Has("prefix") || q.Has("after") || q.Has("collection") {
			return l, at, resourcesync.Invalidf("loc cannot be combined with prefix, after or collection")
		}
		l.whole = only(loc)
	}
	l.rest = l.whole
	if after := q.Get("after"); after != "" {
		l.rest.From = max(l.rest.From, after+"\x00")
	}
	return l, at, nil
}

// only returns the range of one loc.
func only(loc string) inventory.Range { return inventory.Range{From: loc, To: loc + "\x00"} }

// ServeResources answers GET and HEAD of {base}/sets/{set}/resources with the resources
// of a set, each with its newest change, in the order of loc. All pages that are linked
// to each other are from one state. An error means that nothing was answered.
func (s *Server) ServeResources(w http.ResponseWriter, r *http.Request, set string) error {
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	w.Header().Add("Vary", "Accept")
	l, at, err := parseListing(r, set)
	if err != nil {
		return err
	}
	share, err := s.opts.Streams.Acquire(r.Context(), streamRoom)
	if err != nil {
		return err
	}
	defer share.Release()
	held, err := s.pinned(r.Context(), set, at)
	if err != nil {
		return err
	}
	defer held.Release()
	look, err := audit.Summarize(r.Context(), held.State, l.whole)
	if err != nil {
		return fmt.Errorf("resources of set %q: %w", set, err)
	}
	look.Set, look.Complete = set, held.Complete
	p := page{listing: l, held: held, head: look.AppendJSON(nil)}
	if err := p.measure(r.Context()); err != nil {
		return fmt.Errorf("resources of set %q: %w", set, err)
	}
	h := w.Header()
	h.Set("RS-Inventory", string(p.head))
	h.Set("Cache-Control", "no-store")
	if h.Set("Content-Type", jsonType); l.stream {
		h.Set("Content-Type", ndjsonType)
	}
	if p.more {
		l.query.Set("at", look.Cursor.String())
		l.query.Set("after", p.last)
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
		panic(http.ErrAbortHandler) // so that the client does not take the part for a whole answer
	}
	return nil
}

// pinned returns the state at a cursor, or the newest state if the cursor is
// zero.
func (s *Server) pinned(ctx context.Context, set string, at feed.Cursor) (*inventory.Pinned, error) {
	if at.IsZero() {
		return s.states.State(ctx, set, at, 0)
	}
	held, err := s.states.At(ctx, set, at)
	return held, gone(err, "the hub no longer has the resources at "+at.String()+"; start the list over")
}

// A page is the answer to a listing.
type page struct {
	listing
	held *inventory.Pinned
	head []byte // the beginning as one object of JSON
	next string // URL of the next page; empty: there is none

	last string // loc of the last resource that was read, if the answer is limited
	more bool   // resources come after that
}

// measure finds out where a page ends, because the answer says that before its
// resources. A stream without a limit is not measured.
func (p *page) measure(ctx context.Context) error {
	if p.limit == 0 {
		return nil
	}
	var text []byte
	n, size, looked := 0, 0, 0
	for e, err := range p.held.Walk(ctx, p.rest) {
		if err != nil {
			return err
		}
		if looked++; looked > maxLooked {
			p.more = true
			break
		}
		if !p.filter.Match(&e.Change) {
			p.last = e.Change.Loc
			continue
		}
		text = feed.JSON.Page.Entry(text[:0], p.set, e, n == 0)
		if size += len(text); n == p.limit || n > 0 && size > maxPage {
			p.more = true
			break
		}
		p.last = e.Change.Loc
		n++
	}
	p.rest.To = p.last + "\x00"
	if p.last == "" {
		p.rest = inventory.Range{From: "\x00", To: "\x00"}
	}
	return nil
}

// errClient means that the client is gone, or does not read the answer.
var errClient = errors.New("write to client failed")

// write writes the answer as fast as the client reads it.
func (p *page) write(ctx context.Context, w http.ResponseWriter) error {
	text := make([]byte, 0, writeAt+16<<10)
	flush := func() error {
		if err := ctx.Err(); err != nil { // a walk in memory does not look at ctx
			return err
		}
		if _, err := w.Write(text); err != nil {
			return fmt.Errorf("%w: %w", errClient, err)
		}
		text = text[:0]
		return nil
	}
	format, begin, end := feed.JSON, `,"resources":[`, "]}\n"
	if p.stream {
		format, begin, end = feed.NDJSON, "}\n", ""
	} else if p.next != "" {
		begin = `,"next":` + strconv.Quote(p.next) + begin // Go quotes a URL like JSON does
	}
	text = append(append(text, p.head[:len(p.head)-1]...), begin...)
	first := true
	for e, err := range p.held.Walk(ctx, p.rest) {
		if err != nil {
			return err
		}
		if !p.filter.Match(&e.Change) {
			continue
		}
		if text = format.Page.Entry(text, p.set, e, first); len(text) >= writeAt {
			if err := flush(); err != nil {
				return err
			}
		}
		first = false
	}
	text = append(text, end...)
	return flush()
}
