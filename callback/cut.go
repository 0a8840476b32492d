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

// A point is the position of a subscription in the log of its set.
type point struct {
	cursor   feed.Cursor
	from     feed.Cursor // Progress.From
	until    feed.Cursor // end of the cut to be repeated; zero if the next cut is a new one
	number   uint64      // number of the delivery to be repeated; zero if the next one is new
	diverged bool        // whether the log has lost its tail and no delivery has reported it
}

// start returns where the interval of the next delivery starts.
func (p *point) start() feed.Cursor { return cmp.Or(p.from, p.cursor) }

// A cut is the changes of one delivery: a change notification (Change Notification section 3) of the
// entries after a cursor that a filter matches.
type cut struct {
	from    feed.Cursor // start of its interval
	cursor  feed.Cursor // cursor of the last entry that was examined
	first   int64       // datetime of the first entry that was examined
	changes int         // zero if the filter matches no entry
	body    [][]byte    // shared with other cuts, so it must not be modified
}

// sizeOf returns the length of a body in bytes.
func sizeOf(body [][]byte) (n int64) {
	for _, part := range body {
		n += int64(len(part))
	}
	return n
}

// smallBody is the largest body in bytes that is joined to one part, so that net/http sends it with the
// headers in one write.
const smallBody = 16 << 10

// notification is the format of subscriptions without a form. A < in a value is escaped, so nothing but
// an entry has the text of its start or end.
var notification = &outlet.Format{
	Batch: feed.XML,
	Head: func(b *feed.Batch) []byte {
		return feed.NewXMLWriter().AppendHeader(make([]byte, 0, 512), b.Header())
	},
	Begin: []byte("  <url>"), End: []byte("</url>\n"),
	Tail:  resourcesync.AppendXMLFooter(nil, &resourcesync.Header{}),
	Stamp: []byte("<rs:md"),
}

// stamp returns a body with the number of its delivery and the gap before it, if the format has a place
// for them. The signature covers them there, so that a replayed delivery can be recognized. The text of
// the changes remains shared.
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

// errNothing reports that nothing follows a cursor now.
var errNothing = errors.New("nothing to deliver")

// cut returns the next cut after a point, with at most limit changes. If the log has lost its tail, it
// corrects the point. It returns errNothing, or an error of Follower.Next.
func (e *Engine) cut(ctx context.Context, set string, at *point, format *outlet.Format, f *feed.Filter, limit int) (*cut, error) {
	batches, err := e.next(ctx, set, at, f, limit)
	if err != nil {
		return nil, err
	}
	x := builder{
		cut: cut{from: at.start(), cursor: at.cursor}, format: format, filter: f,
		entries: e.opts.MaxChanges, limit: limit, bytes: e.opts.MaxBytes,
	}
	again := at.until.Position > at.cursor.Position
	if again { // the same cut, whatever the limits are now
		x.entries = int(at.until.Position - at.cursor.Position)
		x.limit, x.bytes = x.entries, math.MaxInt
	}
	for i, b := range batches {
		before := x
		if x.add(b) == len(b.Entries) {
			continue
		}
		if i > 0 && !again {
			x = before // followers share what starts with a batch, so a cut ends with one if possible
		}
		break
	}
	return x.done(batches[0], at.diverged), nil
}

// next returns the batches after a point that a cut of at most limit changes needs. It returns errNothing
// if there are none.
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
	// A cut that is repeated may need several reads.
	for end := batches[len(batches)-1].Cursor; end.Position < at.until.Position; {
		more, err := e.follower.Next(ctx, set, end, e.opts.MaxChanges)
		if err != nil {
			return nil, err
		}
		if len(more) == 0 || more[0].Diverged { // the log no longer has that cut
			at.until, at.number = feed.Cursor{}, 0
			break
		}
		batches = slices.Concat(batches, more) // followers share both
		end = more[len(more)-1].Cursor
	}
	return batches, nil
}

// A builder makes a cut from batches. It uses their text, which is encoded once for all followers.
type builder struct {
	cut
	format  *outlet.Format
	filter  *feed.Filter
	entries int      // number of entries that may still be examined
	limit   int      // most changes
	bytes   int      // number of bytes that may still be added, if there are several changes
	parts   [][]byte // text of the entries that the filter matches
}

// add adds the entries of a batch for which there is room, and returns their number.
func (x *builder) add(b *feed.Batch) int {
	entries := b.Entries[:min(x.entries, len(b.Entries))]
	if !x.matches(entries) {
		return x.examined(entries) // the text is not needed
	}
	text, entryEnd := b.Encode(x.format.Batch), x.format.End
	text = text[bytes.Index(text, x.format.Begin) : len(text)-len(x.format.Tail)]
	if x.filter.IsZero() && len(entries) == len(b.Entries) && len(entries) <= x.limit-x.changes && len(text) <= x.bytes {
		x.changes += len(entries) // all of them, so where each ends does not matter
		x.bytes -= len(text)
		x.addText(text)
		return x.examined(entries)
	}
	start, end := 0, 0 // of the matching text that is not in parts yet
	for i := range entries {
		size := bytes.Index(text[end:], entryEnd) + len(entryEnd)
		switch {
		case !x.filter.Match(&entries[i].Change):
			x.addText(text[start:end])
			start = end + size
		case x.changes == x.limit, x.changes > 0 && size > x.bytes:
			x.addText(text[start:end])
			return x.examined(entries[:i])
		default:
			x.changes++
			x.bytes -= size
		}
		end += size
	}
	x.addText(text[start:end])
	return x.examined(entries)
}

// matches reports whether the filter matches any of the entries.
func (x *builder) matches(entries []feed.Entry) bool {
	for i := range entries {
		if x.filter.Match(&entries[i].Change) {
			return true
		}
	}
	return false
}

// examined notes that entries were examined, and returns their number.
func (x *builder) examined(entries []feed.Entry) int {
	if n := len(entries); n > 0 {
		if x.first == 0 {
			x.first = entries[0].Micros
		}
		x.cursor = entries[n-1].Cursor
		x.entries -= n
	}
	return len(entries)
}

func (x *builder) addText(text []byte) {
	if len(text) > 0 {
		x.parts = append(x.parts, text[:len(text):len(text)])
	}
}

// done returns the cut. first is the batch that was added first.
func (x *builder) done(first *feed.Batch, diverged bool) *cut {
	c := x.cut
	switch {
	case c.changes == len(first.Entries) && c.cursor == first.Cursor && c.from == first.After && diverged == first.Diverged:
		c.body = [][]byte{first.Encode(x.format.Batch)} // as followers over a connection receive it
	case c.changes > 0:
		// If a subscription is older than its set, its first interval starts with the first entry.
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
