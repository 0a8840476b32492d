package callback

import (
	"bytes"
	"math"
	"slices"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
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
type cut struct {
	from    feed.Cursor // where its interval begins
	cursor  feed.Cursor // of the last entry that was looked at
	first   int64       // datetime of the first entry that was looked at
	changes int         // 0: no entry passed the filter, so there is nothing to deliver
	body    [][]byte    // shared with other cuts, so nobody may change it
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

// notification is the form of subscriptions that name none: a change notification. A < in a
// value is escaped, so nothing but an entry begins or ends as one.
var notification = &outlet.Format{
	Batch: feed.XML,
	Head: func(b *feed.Batch) []byte {
		return feed.NewXMLWriter().AppendHeader(make([]byte, 0, 512), b.Header())
	},
	Begin: []byte("  <url>"), End: []byte("</url>\n"),
	Tail: resourcesync.AppendXMLFooter(nil, &resourcesync.Header{}),
}

// header returns the text before the entries: that of a batch with the cursors of the
// cut. The interval of a batch begins with its first entry if the batch follows the zero
// cursor, because the subscription is older than its set.
func (c *cut) header(set string, f *outlet.Format, diverged bool) []byte {
	return f.Head(&feed.Batch{Set: set, After: c.from, Cursor: c.cursor, Diverged: diverged, Entries: []feed.Entry{{Cursor: feed.Cursor{Micros: c.first}}}})
}

// A builder makes a cut out of batches. It takes their text from the batches themselves,
// which are encoded once for all who get them. One goroutine uses it.
type builder struct {
	cut
	format  *outlet.Format
	filter  *filter
	entries int      // most entries to look at, less those that were
	limit   int      // most changes
	bytes   int      // most bytes of entries, unless there is only one, less those that are in parts
	parts   [][]byte // the text of the entries that pass
}

// newBuilder returns a builder of a cut at a point, of at most so many entries. at.until
// must be zero if they do not end there.
func newBuilder(at *point, format *outlet.Format, f *filter, entries, limit, bytes int) builder {
	if !at.until.IsZero() {
		limit, bytes = entries, math.MaxInt // the same cut again, whatever the limits are by now
	}
	return builder{cut: cut{from: at.begin(), cursor: at.cursor}, format: format, filter: f, entries: entries, limit: limit, bytes: bytes}
}

// take takes entries of a part, as many as there is room for. It returns the index in the
// batch of the first that it did not take.
func (x *builder) take(p part) (next int) {
	entries := p.Entries[p.first:]
	entries = entries[:min(x.entries, len(entries))]
	some := false
	for i := 0; i < len(entries) && !some; i++ {
		some = x.filter.match(&entries[i].Change)
	}
	if !some {
		return p.first + x.look(entries) // the text is not needed
	}
	text, entryEnd := p.In(x.format.Batch), x.format.End
	text = text[bytes.Index(text, x.format.Begin) : len(text)-len(x.format.Tail)]
	for range p.first {
		text = text[bytes.Index(text, entryEnd)+len(entryEnd):]
	}
	if x.filter.key == "" && p.first+len(entries) == len(p.Entries) && len(entries) <= x.limit-x.changes && len(text) <= x.bytes {
		x.changes += len(entries) // all of them, so where each ends does not matter
		x.bytes -= len(text)
		x.add(text)
		return p.first + x.look(entries)
	}
	begin, end := 0, 0 // of the text that passes, and is not in parts yet
	for i := range entries {
		size := bytes.Index(text[end:], entryEnd) + len(entryEnd)
		switch {
		case !x.filter.match(&entries[i].Change):
			x.add(text[begin:end])
			begin = end + size
		case x.changes == x.limit, x.changes > 0 && size > x.bytes:
			x.add(text[begin:end])
			return p.first + x.look(entries[:i])
		default:
			x.changes++
			x.bytes -= size
		}
		end += size
	}
	x.add(text[begin:end])
	return p.first + x.look(entries)
}

// look notes that entries were looked at, and returns how many.
func (x *builder) look(entries []feed.Entry) int {
	if n := len(entries); n > 0 {
		if x.first == 0 {
			x.first = entries[0].Micros
		}
		x.cursor = entries[n-1].Cursor
		x.entries -= n
	}
	return len(entries)
}

func (x *builder) add(text []byte) {
	if len(text) > 0 {
		x.parts = append(x.parts, text[:len(text):len(text)])
	}
}

// done returns the cut, once there is no more to take.
func (x *builder) done(set string, diverged bool) *cut {
	c := x.cut
	switch {
	case c.changes > 0:
		c.body = slices.Concat([][]byte{c.header(set, x.format, diverged)}, x.parts, [][]byte{x.format.Tail})
		if c.size() <= smallBody {
			c.body = [][]byte{slices.Concat(c.body...)}
		}
	case c.from.IsZero():
		c.from.Micros = c.first - 1 // the zero cursor would mean that nothing was left out
	}
	return &c
}
