package callback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/flight"
)

// readTime bounds a read of the log: the reader has a slot meanwhile.
const readTime = 30 * time.Second

// errNothing means that nothing follows a cursor now.
var errNothing = errors.New("nothing to deliver")

// A source is where a set's entries come from: what is kept in memory, then the log. It
// blocks, so Engine.mu must not be held when it is called.
type source struct {
	// Set when the source is made, never changed.
	set    string
	log    Log
	limits limits

	// Guarded by mutexes of their own.
	spans   *spans
	reading flight.Group[asked, *span]
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
	parts, err := s.parts(ctx, at, want, version)
	if err != nil {
		return nil, err
	}
	x := extent{filter: f, limit: limit, bytes: s.limits.bytes}
	if !at.until.IsZero() {
		x.limit, x.bytes = want, 1<<31-1 // the same cut again, whatever the limits are by now
	}
	for _, p := range parts {
		if !x.take(p, want-x.looked) {
			break
		}
	}
	c := &cut{from: at.begin(), cursor: x.cursor, first: x.begins, changes: x.changes}
	if c.changes == 0 && c.from.IsZero() {
		c.from.Micros = x.begins - 1 // the zero cursor would mean that nothing was left out
	}
	if c.changes > 0 {
		c.body = slices.Concat([][]byte{header(c, at.diverged, x.begins)}, x.parts, [][]byte{footer})
		if c.size() <= smallBody {
			c.body = [][]byte{slices.Concat(c.body...)}
		}
	}
	return c, nil
}

// parts returns what holds the want entries behind a point, or fewer.
func (s *source) parts(ctx context.Context, at *point, want, version int) (parts []part, err error) {
	for c := at.cursor; want > 0; c = parts[len(parts)-1].batch.Cursor {
		more := s.spans.behind(s.set, c, want)
		if len(more) == 0 {
			// Rare: a cut is tried again, and not all of it is in memory any more.
			if len(parts) > 0 && at.until.IsZero() {
				break
			}
			p, err := s.read(ctx, c, version)
			if err != nil {
				return nil, err
			}
			if p.batch.Diverged && len(parts) > 0 { // what was tried is not in the log any more
				at.until = feed.Cursor{}
				break
			}
			if p.batch.Diverged {
				*at = point{cursor: p.batch.After, diverged: true}
			}
			if len(p.batch.Entries) == 0 {
				return nil, errNothing
			}
			more = []part{{span: p}}
		}
		for _, p := range more {
			want -= len(p.batch.Entries) - p.first
		}
		parts = append(parts, more...)
	}
	return parts, nil
}

// read returns a span with the entries of the log behind a cursor.
func (s *source) read(ctx context.Context, c feed.Cursor, version int) (*span, error) {
	return s.reading.Do(ctx, asked{c, version}, func() (*span, error) {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		b, err := s.log.Since(ctx, s.set, c, s.limits.changes)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read set %q after %v: %w", s.set, c, err)
		case len(b.Entries) == 0:
			return newSpan(b), nil
		}
		return s.spans.add(b), nil
	})
}
