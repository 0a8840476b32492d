package callback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/flight"
)

// readTime bounds a read of the log: the reader has a slot meanwhile.
const readTime = 30 * time.Second

// errNothing means that nothing follows a cursor now.
var errNothing = errors.New("nothing to deliver")

// A source is where a set's entries come from: the topic's window, then the readings,
// then the log. It blocks, and its window function locks Engine.mu, so Engine.mu must
// not be held when it is called.
type source struct {
	// Set when the source is made, never changed.
	set    string
	log    Log
	format *outlet.Format
	limits limits
	window func(feed.Cursor, int) ([]*span, int) // window.behind of the topic

	// Guarded by mutexes of their own.
	readings *readings
	reading  flight.Group[asked, *span]
}

// An asked is what a read of the log was for. It has the version of the topic, because a
// read that began before a publish may find nothing. Its result must not go to a sub that
// was woken by the publish.
type asked struct {
	cursor  feed.Cursor
	version int // of the topic
}

// limits bound a cut.
type limits struct {
	changes int // entries that are looked at, and so changes that are delivered
	bytes   int // bytes of entries as XML, unless there is only one entry
}

// cut returns what comes next at a point: at most limit changes of the entries that the
// log had at a version of the topic, and perhaps of later ones. Where the log has lost
// its tail cut corrects the point and marks it. It returns errNothing, or an error of
// Log.Since.
func (s *source) cut(ctx context.Context, at *point, f *filter, limit, version int) (*cut, error) {
	want := s.limits.changes
	if at.until.Position > at.cursor.Position {
		want = int(at.until.Position - at.cursor.Position)
	}
	spans, first, err := s.spans(ctx, at, want, version)
	if err != nil {
		return nil, err
	}
	x := extent{filter: f, limit: limit, bytes: s.limits.bytes}
	if !at.until.IsZero() {
		x.limit, x.bytes = want, 1<<31-1 // the same cut again, whatever the limits are by now
	}
	for _, p := range spans {
		if !x.take(p, first, want-x.looked) {
			break
		}
		first = 0
	}
	c := &cut{from: at.begin(), cursor: x.cursor, first: x.begins, changes: x.changes}
	if c.changes == 0 && c.from.IsZero() {
		c.from.Micros = x.begins - 1 // the zero cursor would mean that nothing was left out
	}
	if c.changes > 0 {
		c.body = slices.Concat([][]byte{s.head(ctx, c, at.diverged, x.begins)}, x.parts, [][]byte{s.format.Foot})
		if c.size() <= smallBody {
			c.body = [][]byte{slices.Concat(c.body...)}
		}
	}
	return c, nil
}

// spans returns the spans that hold the want entries behind a point, or fewer, and the
// index of the first of these entries in the first span.
func (s *source) spans(ctx context.Context, at *point, want, version int) ([]*span, int, error) {
	if spans, first := s.window(at.cursor, want); len(spans) > 0 {
		return spans, first, nil
	}
	p, first, err := s.read(ctx, at, version)
	if err != nil {
		return nil, 0, err
	}
	spans := []*span{p}
	// Rare: a cut is tried again that came out of the window, or of several spans.
	for !at.until.IsZero() && p.batch.Cursor.Position < at.until.Position {
		next := point{cursor: p.batch.Cursor}
		if p, _, err = s.read(ctx, &next, version); err != nil {
			return nil, 0, err
		}
		if next.diverged {
			at.until = feed.Cursor{}
			break
		}
		spans = append(spans, p)
	}
	return spans, first, nil
}

// read returns a span with entries behind a point, and the index of the first of them.
// The span comes from the readings, or else from the log.
func (s *source) read(ctx context.Context, at *point, version int) (*span, int, error) {
	if p, first := s.readings.behind(s.set, at.cursor); p != nil {
		return p, first, nil
	}
	p, err := s.reading.Do(ctx, asked{at.cursor, version}, func() (*span, error) {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		b, err := s.log.Since(ctx, feed.LogOf(s.set), at.cursor, s.limits.changes)
		if err != nil {
			return nil, fmt.Errorf("read set %q after %v: %w", s.set, at.cursor, err)
		}
		p := newSpan(b, s.format)
		if len(b.Entries) > 0 {
			s.readings.add(s.set, p)
		}
		return p, nil
	})
	if err != nil {
		return nil, 0, err
	}
	if p.batch.Diverged {
		*at = point{cursor: p.batch.After, diverged: true}
	}
	if len(p.batch.Entries) == 0 {
		return nil, 0, errNothing
	}
	return p, 0, nil
}
