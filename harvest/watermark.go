package harvest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

const (
	pageSize  = 1000      // entries of the log that are read at once
	searchMax = 50_000    // entries that are searched; a log without a datetime of the source in them counts as new to the source
	maxAhead  = time.Hour // how far a datetime may lie in the future; a datetime that is far off would hide all earlier ones
)

// A watermark says what a set's log has of its source: every change up to a
// datetime of the source, and of the changes at exactly that datetime those
// that are counted. A source's list is in the order of its datetimes (core
// section 12), so later changes are new.
type watermark struct {
	datetime time.Time    // zero: the log has nothing of the source
	counts   map[fact]int // how often the log has each fact of that datetime
	cursor   feed.Cursor  // of the newest entry with that datetime; if there is none, of the place where the search ended
}

// A fact is what happened to a resource at one datetime.
type fact struct {
	loc    string
	change resourcesync.ChangeType
}

// readWatermark searches a set's log backwards, from its head, for the newest
// datetime of the source. It does not stop at the first datetime, because
// others may have published entries with older datetimes, or with none, in
// between.
func readWatermark(ctx context.Context, log Memory, set string) (watermark, error) {
	w := watermark{counts: map[fact]int{}}
	state, err := log.State(ctx, set)
	if err != nil {
		return w, err
	}
	least := state.Floor.Position
	if state.Head.Position > searchMax {
		least = max(least, state.Head.Position-searchMax)
	}
	end := state.Head
	for end.Position > least {
		begin := least
		if end.Position > pageSize {
			begin = max(begin, end.Position-pageSize)
		}
		after, err := log.At(ctx, set, begin)
		if errors.Is(err, feed.ErrGone) {
			break // retention has just removed it
		}
		if err != nil {
			return w, err
		}
		dated, newest, err := w.read(ctx, log, set, after, end)
		if err != nil {
			return w, err
		}
		end = after
		if dated && !newest {
			break
		}
	}
	if w.datetime.IsZero() {
		w.cursor = end
	}
	return w, nil
}

// read takes in the entries after one cursor, up to another. dated says whether
// any of them has a datetime of the source. newest says whether one of those
// datetimes is the newest so far.
func (w *watermark) read(ctx context.Context, log Memory, set string, after, end feed.Cursor) (dated, newest bool, err error) {
	horizon := time.Now().Add(maxAhead)
	for after.Position < end.Position {
		b, err := log.Since(ctx, set, after, int(end.Position-after.Position))
		if err != nil {
			return dated, newest, err
		}
		if b.Diverged || len(b.Entries) == 0 {
			return dated, newest, errors.New("meanwhile the log lost its newest changes")
		}
		for i := range b.Entries {
			at := b.Entries[i].Change.Datetime
			if at.IsZero() || at.After(horizon) {
				continue
			}
			dated = true
			if !at.Before(w.datetime) {
				newest = true
				w.add(&b.Entries[i].Change, b.Entries[i].Cursor)
			}
		}
		after = b.Cursor
	}
	return dated, newest, nil
}

// add takes in a change at a cursor. Its datetime must not be before the
// watermark.
func (w *watermark) add(c *resourcesync.Change, at feed.Cursor) {
	if c.Datetime.After(w.datetime) {
		w.datetime, w.cursor = c.Datetime, feed.Cursor{}
		clear(w.counts)
	}
	w.counts[fact{c.Loc, c.Change}]++
	if at.Position > w.cursor.Position {
		w.cursor = at
	}
}

// reaches reports whether a list that ends at a time may contain something new.
func (w *watermark) reaches(until time.Time) bool { return until.IsZero() || !until.Before(w.datetime) }

// news returns what is new in a list, sorted by datetime and validated. If one
// change of the list is not acceptable, it returns an error and nothing else.
func (w *watermark) news(doc *resourcesync.Document) ([]resourcesync.Change, error) {
	var news []resourcesync.Change
	seen := maps.Clone(w.counts)
	horizon := time.Now().Add(maxAhead)
	for i := range doc.Items {
		c := &doc.Items[i].Change
		rule := ""
		switch {
		case c.Datetime.IsZero():
			rule = "datetime is missing: without it, nothing shows whether a change is new"
		case c.Datetime.After(horizon):
			rule = "datetime lies in the future"
		}
		if rule != "" {
			return nil, &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: i + 1, Loc: fmt.Sprintf("%.80s", c.Loc), Rule: rule}
		}
		if c.Datetime.Before(w.datetime) {
			continue
		}
		if f := (fact{c.Loc, c.Change}); c.Datetime.Equal(w.datetime) && seen[f] > 0 {
			seen[f]--
			continue
		}
		if err := c.Validate(); err != nil {
			if e, ok := errors.AsType[*resourcesync.Error](err); ok {
				e.Entry = i + 1
			}
			return nil, err
		}
		news = append(news, *c)
	}
	slices.SortStableFunc(news, func(a, b resourcesync.Change) int { return a.Datetime.Compare(b.Datetime) })
	return news, nil
}
