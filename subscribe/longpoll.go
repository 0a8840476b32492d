package subscribe

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/accept"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/resourcesync"
)

// Limits of a poll.
const (
	defaultLimit = 1_000
	maxLimit     = 10_000
	maxExamined  = 50_000 // entries read for one page, including those that a filter leaves out
	maxWait      = 5 * time.Minute

	compressFrom = 16 << 10 // minimum size of a compressed page in bytes; compressing a smaller one takes longer than building it
)

// pageParameters are the query parameters of a page that the URL of the next page repeats.
var pageParameters = []string{"limit", "wait"}

// A poll is a request for a page: the next changes after a cursor.
type poll struct {
	limit  int
	wait   time.Duration
	filter feed.Filter
}

// parsePoll parses the parameters of a poll, except for its cursor.
func parsePoll(q url.Values) (p poll, err error) {
	if err := refuseResumption(q); err != nil {
		return p, err
	}
	p.limit = defaultLimit
	if v := q.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > maxLimit {
			return p, resourcesync.Invalidf("limit: got %.20q, want 1 to %d", v, maxLimit)
		}
		p.limit = n
	}
	if v := q.Get("wait"); v != "" {
		text := v
		if _, nerr := strconv.Atoi(v); nerr == nil {
			text += "s"
		}
		if p.wait, err = time.ParseDuration(text); err != nil {
			return p, resourcesync.Invalidf("wait: got %.20q, want a duration such as 30s", v)
		}
		if p.wait < 0 || p.wait > maxWait {
			return p, resourcesync.Invalidf("wait: got %.20q, want 0s to %v", v, maxWait)
		}
	}
	p.filter, err = feed.ParseFilter(q)
	return p, err
}

// servePoll serves a page in the format that r prefers. A poll with a wait is a long poll: if
// there are no changes, it is answered when there is one, or with an empty page after the wait.
func (s *Server) servePoll(w http.ResponseWriter, r *http.Request, set string) error {
	q := r.URL.Query()
	p, err := parsePoll(q)
	if err != nil {
		return err
	}
	if since := q.Get("since"); isBaseline(since) {
		return s.serveBaselinePage(w, r, set, since, p)
	}
	begin, err := s.startFinder.Find(r.Context(), set, q.Get("since"))
	if err != nil {
		return err
	}
	looked := func(feed.Cursor) {}
	if p.wait > 0 {
		progress, leave := s.addPoll(set, begin.Cursor)
		defer leave()
		looked = progress.moveTo
	}
	page := s.newPage(begin, p, s.pageFormat(r))
	defer page.release()
	if err := s.collect(r.Context(), page, looked); err != nil {
		return err
	}
	next := s.nextURL(set, page.batch.Cursor.String(), q, p.filter)
	h := w.Header()
	h.Add("Link", "<"+next+`>; rel="next"`) // in addition to the topic's links
	h.Set("Cache-Control", "no-store")
	if page.immutable(q.Get("since"), s.opts.Now()) {
		h.Set("Cache-Control", access.Immutable(r)) // so that a cache can serve clients that catch up
	}
	if page.batch.Diverged {
		h.Set("RS-Diverged", "true")
	}
	h.Add("Vary", "Accept-Encoding")
	h.Set("Content-Type", page.format.MediaType)
	length := page.finish(next)
	if page.zstd = length >= compressFrom && accept.Zstd(r.Header); page.zstd {
		h.Set("Content-Encoding", "zstd")
	} else {
		h.Set("Content-Length", strconv.Itoa(length))
	}
	if r.Method == http.MethodHead {
		return nil
	}
	if length, err := s.send(w, r, page); err == nil { // otherwise the client left or is too slow
		var t tally
		t.add(page.count, length)
		s.count(byLongPoll, set, &t)
	}
	return nil
}

// collect fills a page, and waits if it is empty. It calls looked with the cursor of the last
// entry examined, even if the filter left the entry out, because entries that a filter leaves
// out do not make a follower late.
func (s *Server) collect(ctx context.Context, page *page, looked func(feed.Cursor)) error {
	if err := page.reserve(ctx); err != nil {
		return err
	}
	p, examined := page.poll, 0
	for examined < maxExamined && !page.full {
		n := p.limit - page.count
		if !p.filter.IsZero() {
			n = max(n, defaultLimit) // the filter may leave most of them out
		}
		b, err := s.memory.Since(ctx, page.batch.Set, page.batch.Cursor, n)
		if err != nil {
			return err
		}
		page.extend(b)
		looked(page.batch.Cursor)
		if len(b.Entries) == 0 {
			break
		}
		examined += len(b.Entries)
	}
	if page.count > 0 || page.batch.Diverged || p.wait == 0 || examined >= maxExamined {
		return nil
	}
	page.release() // so that other requests can use the memory during the wait
	held, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer s.watchRights(ctx, page.batch.Set, end)()
	ctx, cancel := context.WithTimeout(held, p.wait)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	for batches, err := range s.follower.Follow(ctx, page.batch.Set, page.batch.Cursor) {
		if err == nil {
			err = page.reserve(ctx)
		}
		if err != nil && ctx.Err() != nil {
			break // the wait is over
		}
		if err != nil {
			return err
		}
		for _, b := range batches {
			page.extend(b)
		}
		looked(page.batch.Cursor)
		if page.count > 0 || page.batch.Diverged {
			break
		}
		page.release()
	}
	return context.Cause(held) // reason why the client may no longer follow, or nil
}

// nextURL returns the URL of the page after a cursor, or after a cursor in a baseline.
func (s *Server) nextURL(set, since string, q url.Values, filter feed.Filter) string {
	next := filter.Values()
	for _, name := range pageParameters {
		if v := q.Get(name); v != "" {
			next.Set(name, v)
		}
	}
	next.Set("since", since)
	return s.opts.Base.Topic(set) + "?" + next.Encode()
}
