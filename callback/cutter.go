package callback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/flight"
	"github.com/rshub/rshub/internal/lru"
)

const (
	// keptBytes bounds the batches that are kept, of all sets, in bytes.
	keptBytes = 32 << 20

	// readTime bounds a read of the log: the reader has a slot meanwhile.
	readTime = 30 * time.Second
)

// errNothing means that nothing follows a cursor now.
var errNothing = errors.New("nothing to deliver")

// A cutter makes cuts. It keeps the batches that they are made of: what was published, and
// what it has read from the log. The longest unused go first.
//
// The hub has a window of what was published, too, and the two share the batches. The
// hub's window has nothing that begins within a batch, as a cut may.
//
// Its methods may be called by any goroutine. cut blocks, so Engine.mu must not be held
// when it is called.
type cutter struct {
	log     Log
	changes int // most entries that are looked at for a cut, and so most changes in it
	bytes   int // most bytes of entries as XML in a cut, unless there is only one

	kept    *lru.Cache[batchKey, *feed.Batch]
	reading flight.Group[batchKey, *feed.Batch]
}

// A view is what a delivery knows of a topic: which log it has, and what is in there.
type view struct {
	set      string
	restarts int // how often the log may have become another one
	version  int // how often something new came
}

// A batchKey says where a batch begins: behind a cursor of a log. A batch that is kept
// stays the same, so its key has no version. A read that began before a publish may find
// nothing, and its result must not go to a sub that was woken by the publish. So the key
// of a read has the version.
type batchKey struct {
	view
	after feed.Cursor
}

func newCutter(log Log, changes, bytes int) *cutter {
	return &cutter{log: log, changes: changes, bytes: bytes, kept: lru.New[batchKey, *feed.Batch](keptBytes)}
}

// key returns the key of what is kept behind a cursor.
func (v view) key(after feed.Cursor) batchKey {
	v.version = 0
	return batchKey{v, after}
}

// keep keeps a batch of the log that a view has, with the text that it gets once.
func (c *cutter) keep(v view, b *feed.Batch) {
	c.kept.Add(v.key(b.After), b, 2*int64(b.Size()))
}

// cut returns what comes next at a point: at most limit changes of the entries that the
// log had in a view, and perhaps of later ones. Where the log has lost its tail cut
// corrects the point and marks it. It returns errNothing, or an error of Log.Since.
func (c *cutter) cut(ctx context.Context, v view, at *point, f *filter, limit int) (*cut, error) {
	want := c.changes
	if at.until.Position > at.cursor.Position {
		want = int(at.until.Position - at.cursor.Position)
	}
	batches, err := c.batches(ctx, v, at, want)
	if err != nil {
		return nil, err
	}
	x := newBuilder(at, f, want, limit, c.bytes)
	for _, b := range batches {
		if n := x.take(b); n < len(b.Entries) {
			// The next cut begins here, for all who get this one.
			c.keep(v, &feed.Batch{Set: b.Set, After: x.cursor, Cursor: b.Cursor, Entries: slices.Clone(b.Entries[n:])})
			break
		}
	}
	if b := batches[0]; x.changes == len(b.Entries) && x.cursor == b.Cursor && x.from == b.After && at.diverged == b.Diverged {
		x.cut.body = [][]byte{b.XML()} // as the followers that hold a connection get it
		return &x.cut, nil
	}
	return x.done(at.diverged), nil
}

// batches returns what holds the want entries behind a point, or fewer.
func (c *cutter) batches(ctx context.Context, v view, at *point, want int) (batches []*feed.Batch, err error) {
	for after := at.cursor; want > 0; {
		b, ok := c.kept.Get(v.key(after))
		if !ok {
			// Rare: a cut is tried again, and not all of it is in memory any more.
			if len(batches) > 0 && at.until.IsZero() {
				break
			}
			if b, err = c.read(ctx, v, after); err != nil {
				return nil, err
			}
			if b.Diverged && len(batches) > 0 { // what was tried is not in the log any more
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
		batches, after, want = append(batches, b), b.Cursor, want-len(b.Entries)
	}
	return batches, nil
}

// read reads the entries of the log behind a cursor. All reads end at the same positions,
// so that subs which are behind go on together, wherever each of them begins.
func (c *cutter) read(ctx context.Context, v view, after feed.Cursor) (*feed.Batch, error) {
	return c.reading.Do(ctx, batchKey{v, after}, func() (*feed.Batch, error) {
		if b, ok := c.kept.Get(v.key(after)); ok { // another goroutine read it meanwhile
			return b, nil
		}
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		b, err := c.log.Since(ctx, v.set, after, c.changes-int(after.Position%uint64(c.changes)))
		if err != nil {
			return nil, fmt.Errorf("read set %q after %v: %w", v.set, after, err)
		}
		if len(b.Entries) > 0 {
			c.keep(v, b)
		}
		return b, nil
	})
}
