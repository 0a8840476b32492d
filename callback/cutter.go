package callback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/flight"
)

// readTime bounds a read of the log: the reader has a slot meanwhile.
const readTime = 30 * time.Second

// errNothing means that nothing follows a cursor now.
var errNothing = errors.New("nothing to deliver")

// A cutter makes cuts, of what was published and of what it reads from the log. The cache
// has both. Its methods may be called by any goroutine. cut blocks, so Engine.mu must not
// be held when it is called.
type cutter struct {
	log     Log
	changes int // most entries that are looked at for a cut, and so most changes in it
	bytes   int // most bytes of entries in a cut, unless there is only one

	cache   cache
	reading flight.Group[read, *feed.Batch]
}

// A view is what a delivery knows of a topic: which log it has, and what is in there.
type view struct {
	logKey
	version int // how often something new came
}

// A read is one of the entries of a log behind a cursor. One that began before a publish
// may find nothing, and its result must not go to a sub that was woken by the publish.
type read struct {
	view
	after feed.Cursor
}

// A part is a batch from one of its entries on.
type part struct {
	*feed.Batch
	first int // index of the entry
}

// cut returns what comes next at a point: at most limit changes of the entries that the
// log had in a view, and perhaps of later ones. Where the log has lost its tail cut
// corrects the point and marks it. It returns errNothing, or an error of Log.Since.
func (c *cutter) cut(ctx context.Context, v view, at *point, format *outlet.Format, f *filter, limit int) (*cut, error) {
	want := c.changes
	if at.until.Position > at.cursor.Position {
		want = int(at.until.Position - at.cursor.Position)
	}
	parts, err := c.parts(ctx, v, at, want)
	if err != nil {
		return nil, err
	}
	x := newBuilder(at, format, f, want, limit, c.bytes)
	for _, p := range parts {
		if x.take(p) < len(p.Entries) {
			break
		}
	}
	if b := parts[0].Batch; x.changes == len(b.Entries) && x.cursor == b.Cursor && x.from == b.After && at.diverged == b.Diverged {
		whole := x.cut
		whole.body = [][]byte{b.In(format.Batch)} // as the followers over a connection get it
		return &whole, nil
	}
	return x.done(v.set, at.diverged), nil
}

// parts returns what has the want entries behind a point, or fewer.
func (c *cutter) parts(ctx context.Context, v view, at *point, want int) (parts []part, err error) {
	for after := at.cursor; want > 0; {
		b, first := c.cache.find(v.logKey, after)
		if b == nil {
			// Rare: a cut is tried again, and not all of it is in memory any more.
			if len(parts) > 0 && at.until.IsZero() {
				break
			}
			if b, err = c.read(ctx, v, after); err != nil {
				return nil, err
			}
			if b.Diverged && len(parts) > 0 { // what was tried is not in the log any more
				at.until = feed.Cursor{}
				break
			}
			if b.Diverged {
				*at = point{cursor: b.After, diverged: true}
			}
			if len(b.Entries) == 0 {
				return nil, errNothing
			}
		}
		parts, after, want = append(parts, part{b, first}), b.Cursor, want-len(b.Entries)+first
	}
	return parts, nil
}

// read reads the entries of the log behind a cursor.
func (c *cutter) read(ctx context.Context, v view, after feed.Cursor) (*feed.Batch, error) {
	return c.reading.Do(ctx, read{v, after}, func() (*feed.Batch, error) {
		if b, first := c.cache.find(v.logKey, after); b != nil && first == 0 { // another goroutine read it meanwhile
			return b, nil
		}
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		b, err := c.log.Since(ctx, v.set, after, c.changes)
		if err != nil {
			return nil, fmt.Errorf("read set %q after %v: %w", v.set, after, err)
		}
		if len(b.Entries) > 0 {
			c.cache.add(v.logKey, b)
		}
		return b, nil
	})
}
