package subscribe

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/rshub/rshub/changelog"
)

const ndjson = "application/x-ndjson"

// Of a page.
const (
	defaultLimit = 1_000
	maxLimit     = 10_000
	maxExamined  = 50_000 // entries that a filter may leave out of one page
	maxWait      = 5 * time.Minute
)

// A pageRequest is what the query of a page says.
type pageRequest struct {
	limit  int
	wait   time.Duration
	filter changelog.Filter
}

func parsePage(q url.Values) (p pageRequest, err error) {
	p.limit = defaultLimit
	if v := q.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > maxLimit {
			return p, changelog.Invalid("limit=%.20s: a limit is a number from 1 to %d", v, maxLimit)
		}
		p.limit = n
	}
	if v := q.Get("wait"); v != "" {
		text := v
		if _, nerr := strconv.Atoi(v); nerr == nil {
			text += "s"
		}
		if p.wait, err = time.ParseDuration(text); err != nil {
			return p, changelog.Invalid("wait=%.20s: a wait is a duration such as 30s", v)
		}
		if p.wait < 0 || p.wait > maxWait {
			return p, changelog.Invalid("wait=%.20s: a wait is at least 0s and at most %v", v, maxWait)
		}
	}
	p.filter, err = changelog.ParseFilter(q)
	return p, err
}

// servePage answers with the next changes, as a JSON object or as NDJSON. With
// a wait it answers as soon as there is one, or empty when the wait is over.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request, set string) error {
	q := r.URL.Query()
	p, err := parsePage(q)
	if err != nil {
		return err
	}
	begin, err := s.begin.Find(r.Context(), set, q.Get("since"))
	if err != nil {
		return err
	}
	looked := func(changelog.Cursor) {}
	if p.wait > 0 {
		place, leave := s.enter(byLongPoll, set, begin.Cursor)
		defer leave()
		looked = place.moveTo
	}
	page, err := s.collect(r.Context(), begin, p, looked)
	if err != nil {
		return err
	}
	next := s.nextURL(set, page.Cursor, q, p.filter)
	h := w.Header()
	h.Add("Link", "<"+next+`>; rel="next"`) // beside those of the topic
	h.Set("Cache-Control", "no-store")
	if page.Diverged {
		h.Set("RS-Diverged", "true")
	}
	var body []byte
	if accepts(r, ndjson) && !accepts(r, "application/json") {
		h.Set("Content-Type", ndjson)
		for i := range page.Entries {
			body = append(page.Entries[i].AppendJSON(body), '\n')
		}
	} else {
		h.Set("Content-Type", "application/json")
		body = append(page.AppendJSON(nil, next), '\n')
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead && s.write(w, body) == nil { // else the client may be gone
		var t tally
		t.add(len(page.Entries), len(body))
		s.metrics.delivered[byLongPoll].count(&t)
	}
	return nil
}

// collect reads what is there, and waits if that is nothing. It tells looked up to
// where it has looked: what a filter leaves out, the follower is not behind by.
func (s *Server) collect(ctx context.Context, begin *changelog.Batch, p pageRequest, looked func(changelog.Cursor)) (*changelog.Batch, error) {
	page := &changelog.Batch{Set: begin.Set, After: begin.After, Cursor: begin.Cursor, Diverged: begin.Diverged}
	examined := 0
	for examined < maxExamined && len(page.Entries) < p.limit {
		n := p.limit - len(page.Entries)
		if !p.filter.IsZero() {
			n = max(n, defaultLimit) // most may be left out
		}
		b, err := s.memory.Since(ctx, begin.Set, page.Cursor, n)
		if err != nil {
			return nil, err
		}
		extend(page, b, p)
		looked(page.Cursor)
		if len(b.Entries) == 0 {
			break
		}
		examined += len(b.Entries)
	}
	if len(page.Entries) > 0 || page.Diverged || p.wait == 0 || examined >= maxExamined {
		return page, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.wait)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	for batches, err := range s.follower.Follow(ctx, begin.Set, page.Cursor) {
		if err != nil {
			return nil, err
		}
		for _, b := range batches {
			extend(page, b, p)
		}
		looked(page.Cursor)
		if len(page.Entries) > 0 || page.Diverged {
			break
		}
	}
	return page, nil
}

// extend adds to page what passes of b, up to the limit, and moves its cursor
// over what was looked at.
func extend(page, b *changelog.Batch, p pageRequest) {
	if b.Diverged {
		page.After, page.Diverged, page.Entries = b.After, true, nil
		page.Cursor = b.After
	}
	for i := range b.Entries {
		if len(page.Entries) == p.limit {
			return
		}
		if p.filter.Match(&b.Entries[i].Change) {
			page.Entries = append(page.Entries, b.Entries[i])
		}
		page.Cursor = b.Entries[i].Cursor
	}
}

// nextURL is where the page after a cursor is.
func (s *Server) nextURL(set string, cur changelog.Cursor, q url.Values, filter changelog.Filter) string {
	next := filter.Values()
	for _, name := range []string{"limit", "wait"} {
		if v := q.Get(name); v != "" {
			next.Set(name, v)
		}
	}
	next.Set("since", cur.String())
	return s.opts.BaseURL + "/sets/" + set + "/changes?" + next.Encode()
}
