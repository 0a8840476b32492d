package callback

import (
	"context"

	"github.com/rshub/rshub/feed"
)

// A point is where a subscription stands in its set's log.
type point struct {
	cursor   feed.Cursor
	from     feed.Cursor // Progress.From
	until    feed.Cursor // the end of the cut that is tried again; zero: the next cut is a new one
	diverged bool        // the log has lost its tail, and the subscription is still to be told
}

// begin returns where the interval of the next delivery begins.
func (p *point) begin() feed.Cursor {
	if p.from.IsZero() {
		return p.cursor
	}
	return p.from
}

// A cut is what is delivered at once: a change notification (Change
// Notification section 3) of the entries behind a cursor that pass a filter.
// Its text is shared with all cuts that have the same entries.
type cut struct {
	from    feed.Cursor // where its interval begins
	cursor  feed.Cursor // of the last entry that was looked at
	first   int64       // datetime of the first entry that was looked at
	changes int         // 0: no entry passed the filter, so there is nothing to deliver
	body    [][]byte
}

// size returns the length of the body in bytes.
func (c *cut) size() (n int64) {
	for _, part := range c.body {
		n += int64(len(part))
	}
	return n
}

// smallBody is the size up to which a body is put together in one piece, in bytes.
// net/http knows that such a body is in memory, and sends it with the headers in one
// write.
const smallBody = 64 << 10

// head returns the text before the entries: that of a batch with the cursors of the
// cut. begins is the datetime of the first entry. The interval of a batch begins there if
// the batch follows the zero cursor, because the subscription is older than its set.
func (s *source) head(ctx context.Context, c *cut, diverged bool, begins int64) []byte {
	b := &feed.Batch{Set: s.set, After: c.from, Cursor: c.cursor, Diverged: diverged, Entries: []feed.Entry{{Cursor: feed.Cursor{Micros: begins}}}}
	return s.format.Head(ctx, make([]byte, 0, 512), b)
}
