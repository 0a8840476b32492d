package subscribe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/problem"
)

const eventStream = "text/event-stream"

// serveEvents lets a client follow by an event stream (HTML Standard, Server-sent
// events). The data of an event is a batch as JSON. Its id is the cursor to resume
// from. Every event has data. A browser does not show its page an event without data,
// but other clients do, and their JSON parsers fail on an empty text.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request, set string) error {
	since := r.URL.Query().Get("since")
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		since = id // a browser that connects again uses its first URL, with the old since
	}
	filter, err := feed.ParseFilter(r.URL.Query())
	if err != nil {
		return err
	}
	begin, baseline := &feed.Batch{Set: set}, (*baseline)(nil)
	if isBaseline(since) {
		if baseline, err = s.baseline(r.Context(), set, since, filter); err == nil {
			defer baseline.close()
			begin.Cursor = baseline.place.Cursor
		}
	} else {
		begin, err = s.begin.Find(r.Context(), set, since)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(nil) })()
	defer s.cancelLater(ctx, set, cancel)()

	h := w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store, no-transform") // a proxy that compresses would hold events back
	h.Set("X-Accel-Buffering", "no")                 // so that nginx does not buffer the stream
	if begin.Diverged {
		h.Set("RS-Diverged", "true")
	}
	if r.Method == http.MethodHead {
		return nil
	}
	progress, leave := s.enter(byEventStream, set, begin.Cursor)
	defer leave()
	defer s.follower.Attend(set)()
	e := eventWriter{
		write: func(p []byte) error { return s.write(w, p) }, cursor: begin.Cursor,
		progress: progress, delivered: func(t *tally) { s.count(byEventStream, set, t) },
	}
	e.buf = append(e.buf, "retry: 1000\n"...)
	if baseline != nil {
		err = s.streamBaseline(ctx, &e, baseline)
	} else {
		e.event(begin)
	}
	for err == nil {
		if err = e.flush(); err != nil || ctx.Err() != nil {
			break
		}
		if err = s.streamEvents(ctx, &e, set, filter); err != nil || ctx.Err() != nil {
			break
		}
		e.heartbeat(set)
	}
	if err == nil && errors.Is(context.Cause(ctx), errNoRight) {
		err = errNoRight // the client connects again, and is told why it may not
	}
	s.streamClosed(r, err)
	return nil // the response has begun, so an error can be told only in the stream
}

// errNoRight marks the end of a wait because the client may not follow any more.
var errNoRight = errors.New("the right to follow has ended")

// while calls end when the client of ctx may not follow a set any more, until release.
func (s *Server) while(ctx context.Context, set string, end func(why error)) (release func()) {
	if s.opts.Rights == nil {
		return func() {}
	}
	return s.opts.Rights.WhileFollowing(ctx, set, end)
}

// cancelLater ends a context with errNoRight, and why, when the client of ctx may not follow
// a set any more, until release.
func (s *Server) cancelLater(ctx context.Context, set string, cancel context.CancelCauseFunc) (release func()) {
	return s.while(ctx, set, func(why error) { cancel(fmt.Errorf("%w: %w", errNoRight, why)) })
}

// errFollow marks an error of following, to tell it from an error of writing.
var errFollow = errors.New("following failed")

// streamBaseline writes the parts of a baseline as events, until its end or until ctx is
// done, and then returns nil. An error ends the stream.
func (s *Server) streamBaseline(ctx context.Context, e *eventWriter, b *baseline) error {
	defer b.close()
	for ended := false; !ended && ctx.Err() == nil; {
		p, err := b.next(ctx, feed.JSON)
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			e.gone(err)
			s.logFailure(b.set, err)
			return errors.Join(errFollow, err, e.flush())
		}
		n, err := e.part(p)
		if err != nil {
			return err
		}
		s.metrics.baselines[byEventStream].count(p.resources, n)
		ended = p.End
	}
	return nil
}

// part writes a part of a baseline at once, as an event of n bytes.
func (e *eventWriter) part(p *part) (n int, err error) {
	e.cursor, e.told = p.Place.Cursor, p.Place.Cursor
	e.buf = append(e.buf, "id: "+p.Cursor()+"\ndata: "...)
	e.buf = append(e.buf, p.head...)
	n = len(e.buf) + len(p.body) + len(p.tail) + 2
	if len(p.body) > 0 {
		if err := e.flush(); err != nil {
			return n, err
		}
		if err := e.write(p.body); err != nil {
			return n, err
		}
	}
	e.buf = append(append(e.buf, p.tail...), "\n\n"...)
	return n, e.flush()
}

// streamEvents writes events until a heartbeat is due or ctx is done, and returns
// nil then. An error ends the stream.
func (s *Server) streamEvents(ctx context.Context, e *eventWriter, set string, filter feed.Filter) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Heartbeat)
	defer cancel()
	for ctx.Err() == nil {
		if err := s.streamChunk(ctx, e, set, filter); err != nil {
			return err
		}
	}
	return nil
}

// streamChunk writes events until there are more at once than one chunk holds, or ctx
// is done. It keeps no batch while the client takes a chunk, because that may take
// long and batches are large. The next call follows the rest anew.
func (s *Server) streamChunk(ctx context.Context, e *eventWriter, set string, filter feed.Filter) error {
	for batches, err := range s.follower.Follow(ctx, set, e.cursor) {
		if err != nil {
			e.gone(err)
			s.logFailure(set, err)
			return errors.Join(errFollow, err, e.flush())
		}
		if n := e.take(filter, batches); n < len(batches) {
			break
		}
		if err := e.flush(); err != nil {
			return err
		}
	}
	return e.flush()
}

// An eventWriter collects events and writes them in one call.
type eventWriter struct {
	write  func([]byte) error
	buf    []byte
	cursor feed.Cursor // of the last entry that was read, also if the filter left it out
	told   feed.Cursor // of the last event, which is its id

	progress  *progress
	tally     tally // of what is in buf
	delivered func(*tally)
}

// take writes batches until they fill a chunk, and returns how many it took.
func (e *eventWriter) take(filter feed.Filter, batches []*feed.Batch) int {
	for i, b := range batches {
		if e.batch(filter, b); len(e.buf) >= maxChunk {
			return i + 1
		}
	}
	return len(batches)
}

// batch writes an event with the entries that pass the filter. The event begins where
// the one before ended. So it covers the entries that the filter left out since.
func (e *eventWriter) batch(filter feed.Filter, b *feed.Batch) {
	if b.Diverged {
		e.told = b.After
	}
	if !filter.IsZero() {
		b = filter.Apply(b)
		b.After = e.told
	}
	e.cursor = b.Cursor
	if len(b.Entries) > 0 || b.Diverged {
		e.event(b)
	}
}

func (e *eventWriter) event(b *feed.Batch) {
	begin := len(e.buf)
	e.told = b.Cursor
	e.buf = append(e.buf, "id: "...)
	e.buf = b.Cursor.Append(e.buf)
	e.buf = append(e.buf, "\ndata: "...)
	e.buf = append(e.buf, b.In(feed.JSON)...)
	e.buf = append(e.buf, "\n\n"...)
	e.tally.add(len(b.Entries), len(e.buf)-begin)
}

// heartbeat writes a sign of life. If the filter has moved the cursor without an event,
// the sign of life is an event that tells the cursor. Otherwise it is a comment. No empty
// line follows the comment, because some clients take it for the end of an event.
func (e *eventWriter) heartbeat(set string) {
	if e.cursor != e.told {
		e.event(&feed.Batch{Set: set, After: e.told, Cursor: e.cursor})
		return
	}
	e.buf = append(e.buf, ":\n"...)
}

// gone writes the last event of the stream, which says why it ends. A browser then
// connects again, gets the same error as a status, and gives up.
func (e *eventWriter) gone(err error) {
	p := problem.From(err)
	name := "error"
	if p.Status == http.StatusGone {
		name = "gone"
	}
	body, _ := json.Marshal(p) // strings and numbers only
	e.buf = append(e.buf, "event: "+name+"\ndata: "...)
	e.buf = append(e.buf, body...)
	e.buf = append(e.buf, "\n\n"...)
}

func (e *eventWriter) flush() error {
	if len(e.buf) == 0 {
		e.progress.moveTo(e.cursor) // past the entries that a filter left out
		return nil
	}
	err := e.write(e.buf)
	if err == nil {
		e.progress.moveTo(e.cursor)
		e.delivered(&e.tally)
	}
	if e.buf = e.buf[:0]; cap(e.buf) > maxIdle {
		e.buf = nil // a stream is mostly silent
	}
	return err
}
