package callback

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
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
	number   uint64      // of the delivery that is tried again; zero: the next cut is a new one
	diverged bool        // the log has lost its tail, and the subscription is still to be told
}

// begin returns where the interval of the next delivery begins.
func (p *point) begin() feed.Cursor {
	return cmp.Or(p.from, p.cursor)
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

// sizeOf returns the length of a body in bytes.
func sizeOf(body [][]byte) (n int64) {
	for _, part := range body {
		n += int64(len(part))
	}
	return n
}

// smallBody is the size up to which a body is put together in one piece, in bytes.
// net/http knows that such a body is in memory, and sends it with the headers in one
// write.
const smallBody = 16 << 10

// notification is the form of subscriptions that name none: a change notification. A < in a
// value is escaped, so nothing but an entry begins or ends as one.
var notification = &outlet.Format{
	Batch: feed.XML,
	Head: func(b *feed.Batch) []byte {
		return feed.NewXMLWriter().AppendHeader(make([]byte, 0, 512), b.Header())
	},
	Begin: []byte("  <url>"), End: []byte("</url>\n"),
	Tail:  resourcesync.AppendXMLFooter(nil, &resourcesync.Header{}),
	Stamp: []byte("<rs:md"),
}

// stamp returns a body with the number of its delivery and the gap before it, if the form
// has a place for them. The signature covers them there, so that an old delivery cannot be
// passed off as a new one. The text of the changes stays shared.
func stamp(body [][]byte, format *outlet.Format, number uint64, gap string) [][]byte {
	if format.Stamp == nil {
		return body
	}
	attrs := fmt.Appendf(make([]byte, 0, 64), ` h:delivery="%d"`, number)
	if gap != "" {
		attrs = fmt.Appendf(attrs, ` h:gap="%s"`, gap)
	}
	head := body[0]
	at := bytes.Index(head, format.Stamp) + len(format.Stamp)
	body = slices.Concat([][]byte{head[:at:at], attrs, head[at:]}, body[1:])
	if sizeOf(body) <= smallBody {
		return [][]byte{slices.Concat(body...)}
	}
	return body
}

// errNothing means that nothing follows a cursor now.
var errNothing = errors.New("nothing to deliver")

// cut returns what comes next at a point: at most limit changes. Where the log has lost its
// tail, cut corrects the point and marks it. It returns errNothing, or an error of
// Follower.Next. It may read the log, so the mutex must not be held.
func (e *Engine) cut(ctx context.Context, set string, at *point, format *outlet.Format, f *feed.Filter, limit int) (*cut, error) {
	batches, err := e.next(ctx, set, at, f, limit)
	if err != nil {
		return nil, err
	}
	x := builder{
		cut: cut{from: at.begin(), cursor: at.cursor}, format: format, filter: f,
		entries: e.opts.MaxChanges, limit: limit, bytes: e.opts.MaxBytes,
	}
	again := at.until.Position > at.cursor.Position
	if again { // the same cut, whatever the limits are by now
		x.entries = int(at.until.Position - at.cursor.Position)
		x.limit, x.bytes = x.entries, math.MaxInt
	}
	for i, b := range batches {
		before := x
		if x.take(b) == len(b.Entries) {
			continue
		}
		if i > 0 && !again {
			x = before // followers share what begins with a batch, so a cut ends with one if it can
		}
		break
	}
	return x.done(batches[0], at.diverged), nil
}

// next returns the batches behind a point from which a cut of at most limit changes is made.
// It returns errNothing if there are none.
func (e *Engine) next(ctx context.Context, set string, at *point, f *feed.Filter, limit int) ([]*feed.Batch, error) {
	most := e.opts.MaxChanges
	if f.IsZero() {
		most = min(most, limit)
	}
	batches, err := e.follower.Next(ctx, set, at.cursor, most)
	if err != nil {
		return nil, err
	}
	if len(batches) > 0 && batches[0].Diverged {
		*at = point{cursor: batches[0].After, diverged: true}
	}
	if len(batches) == 0 || len(batches[0].Entries) == 0 {
		return nil, errNothing
	}
	// A cut that is tried again may have to be put together from several reads.
	for end := batches[len(batches)-1].Cursor; end.Position < at.until.Position; {
		more, err := e.follower.Next(ctx, set, end, e.opts.MaxChanges)
		if err != nil {
			return nil, err
		}
		if len(more) == 0 || more[0].Diverged { // what was tried is not in the log any more
			at.until, at.number = feed.Cursor{}, 0
			break
		}
		batches = slices.Concat(batches, more) // followers share both
		end = more[len(more)-1].Cursor
	}
	return batches, nil
}

// A builder makes a cut out of batches. It takes their text from the batches themselves,
// which are encoded once for all who get them. One goroutine uses it.
type builder struct {
	cut
	format  *outlet.Format
	filter  *feed.Filter
	entries int      // most entries to look at, less those that were
	limit   int      // most changes
	bytes   int      // most bytes of entries, unless there is only one, less those that are in parts
	parts   [][]byte // the text of the entries that pass
}

// take takes entries of a batch, as many as there is room for, and returns how many.
func (x *builder) take(b *feed.Batch) int {
	entries := b.Entries[:min(x.entries, len(b.Entries))]
	if !x.wants(entries) {
		return x.look(entries) // the text is not needed
	}
	text, entryEnd := b.Encode(x.format.Batch), x.format.End
	text = text[bytes.Index(text, x.format.Begin) : len(text)-len(x.format.Tail)]
	if x.filter.IsZero() && len(entries) == len(b.Entries) && len(entries) <= x.limit-x.changes && len(text) <= x.bytes {
		x.changes += len(entries) // all of them, so where each ends does not matter
		x.bytes -= len(text)
		x.add(text)
		return x.look(entries)
	}
	begin, end := 0, 0 // of the text that passes, and is not in parts yet
	for i := range entries {
		size := bytes.Index(text[end:], entryEnd) + len(entryEnd)
		switch {
		case !x.filter.Match(&entries[i].Change):
			x.add(text[begin:end])
			begin = end + size
		case x.changes == x.limit, x.changes > 0 && size > x.bytes:
			x.add(text[begin:end])
			return x.look(entries[:i])
		default:
			x.changes++
			x.bytes -= size
		}
		end += size
	}
	x.add(text[begin:end])
	return x.look(entries)
}

// wants reports whether any of the entries passes the filter.
func (x *builder) wants(entries []feed.Entry) bool {
	for i := range entries {
		if x.filter.Match(&entries[i].Change) {
			return true
		}
	}
	return false
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

// done returns the cut, once there is no more to take. first is the batch that was taken first.
func (x *builder) done(first *feed.Batch, diverged bool) *cut {
	c := x.cut
	switch {
	case c.changes == len(first.Entries) && c.cursor == first.Cursor && c.from == first.After && diverged == first.Diverged:
		c.body = [][]byte{first.Encode(x.format.Batch)} // as the followers over a connection get it
	case c.changes > 0:
		// The first entry is there for a cut that follows the zero cursor, because the
		// subscription is older than its set: its interval begins with the entry.
		entries := []feed.Entry{{Cursor: feed.Cursor{Micros: c.first}}}
		head := x.format.Head(&feed.Batch{Set: first.Set, After: c.from, Cursor: c.cursor, Diverged: diverged, Entries: entries})
		c.body = slices.Concat([][]byte{head}, x.parts, [][]byte{x.format.Tail})
		if x.format.Stamp == nil && sizeOf(c.body) <= smallBody { // else stamp does it
			c.body = [][]byte{slices.Concat(c.body...)}
		}
	case c.from.IsZero():
		c.from.Micros = c.first - 1 // the zero cursor would mean that nothing was left out
	}
	return &c
}
