package subscribe

import (
	"context"
	"errors"
	"net/http"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
)

// serveBaselinePage serves a page of a baseline: the next resources, or the end of the baseline.
// It reads the resources twice: first to find the end of the page, which precedes the resources
// in the text, and then as the client reads them.
func (s *Server) serveBaselinePage(w http.ResponseWriter, r *http.Request, set, since string, p poll) error {
	format := s.pageFormat(r)
	if format.Baseline == nil {
		return noBaselines(format.MediaType)
	}
	b, err := s.baseline(r.Context(), set, since, p.filter)
	if err != nil {
		return err
	}
	defer b.close()
	page, n, err := b.page(r.Context(), format, p.limit)
	if errors.Is(err, feed.ErrGone) { // since the baseline was opened
		b.releaseSnapshot()
		b.restart = true
		if err = b.openSnapshot(r.Context(), feed.BaselineCursor{}); err == nil {
			page, n, err = b.page(r.Context(), format, p.limit)
		}
	}
	if err != nil {
		return err
	}
	next := s.nextURL(set, page.Cursor(), r.URL.Query(), p.filter)
	h := w.Header()
	h.Add("Link", "<"+next+`>; rel="next"`) // in addition to the topic's links
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", format.MediaType)
	h.Set("RS-Baseline", page.HeaderValue())
	if r.Method == http.MethodHead {
		return nil
	}
	if err := s.sendResources(w, r, b, page, n, format, next); err != nil {
		if r.Context().Err() == nil {
			s.opts.Logger.ErrorContext(r.Context(), "page of a baseline aborted", "set", set, "err", err)
		}
		panic(http.ErrAbortHandler) // so that the client does not mistake a part for the whole
	}
	return nil
}

// page returns the next page and its number of resources. It does not move b.
func (b *baseline) page(ctx context.Context, f *feed.Format, limit int) (*feed.BaselinePart, int, error) {
	p := b.part()
	if b.position.Rank == b.end {
		return p, 0, b.finish(ctx, p)
	}
	w, size := f.Baseline(), 0
	passed, n, _, err := b.walk(ctx, func(e *feed.Entry, n int) (bool, error) {
		if n == limit {
			return false, nil
		}
		b.buf = w.Entry(b.buf[:0], e, n == 0)
		size += len(b.buf)
		return n == 0 || size <= maxPage, nil
	})
	p.Next.Rank += passed
	return p, n, err
}

// sendResources writes a page with n resources as the client reads it.
func (s *Server) sendResources(w http.ResponseWriter, r *http.Request, b *baseline, page *feed.BaselinePart, n int, f *feed.Format, next string) error {
	writer := f.Baseline()
	text, sent := writer.Head(make([]byte, 0, maxChunk+maxIdle), page, next), 0
	flush := func() error {
		err := s.write(w, text)
		sent += len(text)
		text = text[:0]
		return err
	}
	if n > 0 {
		_, got, _, err := b.walk(r.Context(), func(e *feed.Entry, i int) (bool, error) {
			if i == n {
				return false, nil
			}
			if text = writer.Entry(text, e, i == 0); len(text) < maxChunk {
				return true, nil
			}
			return true, flush()
		})
		if err == nil && got != n {
			err = b.countError()
		}
		if err != nil {
			return err
		}
	}
	text = writer.Tail(text, page, next)
	if err := flush(); err != nil {
		return err
	}
	s.countBaseline(byLongPoll, n, sent)
	return nil
}

// noBaselines returns the problem for a format without baselines.
func noBaselines(format string) error {
	return problem.New(http.StatusNotAcceptable, "not-acceptable", "format "+format+" has no baselines")
}
