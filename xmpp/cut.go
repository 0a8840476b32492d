package xmpp

import (
	"bytes"
	"strconv"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// maxChanges is how many changes one notification has at most.
const maxChanges = 1_000

// A notification is what one item carries: a change notification (Change Notification section
// 3). One that tells a gap has no changes.
type notification struct {
	after, cursor feed.Cursor // what it covers
	changes       int
	gap           string // positions that are missing, "first-last" or "first-"; empty: none
	payload       []byte
	acknowledged  bool // by the service; only the cursor is not kept yet
}

// item returns the id of the item.
func (n *notification) item() string { return n.cursor.String() }

// A cutter makes the notifications of one set.
type cutter struct {
	set   string
	links []resourcesync.Link
}

// A backlog is what waits behind a cursor. Notifications are cut from it, one after the other.
type backlog struct {
	batches  []*feed.Batch
	first    int         // index of the next entry in the first batch
	at       feed.Cursor // before the next entry
	diverged bool        // the next notification is to say so
}

// next cuts the next notification from a backlog. Its payload has at most room bytes. An entry
// that is too large alone becomes a notification of a gap. nil: no entry is left.
func (c cutter) next(b *backlog, room int) *notification {
	w, body, entries := feed.NewXMLWriter(), []byte(nil), []feed.Entry(nil)
	room -= len(c.payload(&widest, true, nil))
	after := b.at
	for len(b.batches) > 0 && len(entries) < maxChanges {
		batch := b.batches[0]
		if b.first == 0 && batch.Diverged {
			if len(entries) > 0 {
				break
			}
			b.diverged, b.at, after = true, batch.After, batch.After
		}
		if b.first == len(batch.Entries) {
			b.batches, b.first = b.batches[1:], 0
			continue
		}
		e := &batch.Entries[b.first]
		length := len(body)
		if body = w.AppendEntry(body, e); len(body) > room {
			if len(entries) > 0 {
				body = body[:length]
				break
			}
			b.first++
			b.at = e.Cursor
			return c.missing(after, e.Cursor, b.told())
		}
		entries = append(entries, *e)
		b.first++
		b.at = e.Cursor
	}
	if len(entries) == 0 {
		return nil
	}
	n := &notification{after: after, cursor: b.at, changes: len(entries)}
	n.payload = c.payload(&feed.Batch{After: after, Cursor: b.at, Entries: entries, Diverged: b.told()}, false, body)
	return n
}

// told returns diverged, which is told once.
func (b *backlog) told() bool {
	d := b.diverged
	b.diverged = false
	return d
}

// missing returns the notification that the entries behind after up to cursor are not
// published.
func (c cutter) missing(after, cursor feed.Cursor, diverged bool) *notification {
	n := &notification{after: after, cursor: cursor, gap: lost(after, cursor)}
	n.payload = c.payload(&feed.Batch{After: after, Cursor: cursor, Diverged: diverged}, true, nil)
	return n
}

// lost says which positions are missing: "first-last". In a set that was made again,
// positions begin anew. Then only where the gap begins is known: "first-".
func lost(after, cursor feed.Cursor) string {
	text := strconv.FormatUint(after.Position+1, 10) + "-"
	if cursor.Position > after.Position {
		text += strconv.FormatUint(cursor.Position, 10)
	}
	return text
}

// payload returns a notification with the header of a batch, around entries.
func (c cutter) payload(b *feed.Batch, gap bool, entries []byte) []byte {
	w, h := feed.NewXMLWriter(), b.Header()
	h.Links = c.links
	if gap {
		h.Attrs = append(h.Attrs, resourcesync.Attr{Namespace: resourcesync.Terms, Name: "gap", Value: lost(b.After, b.Cursor)})
	}
	text := w.AppendHeader(make([]byte, 0, len(entries)+1_000), h)
	text = text[bytes.Index(text, []byte("<urlset")):] // an XML declaration stands at the beginning of a stream only
	return resourcesync.AppendXMLFooter(append(text, entries...), h)
}

// widest is a batch with the longest header that there is.
var widest = feed.Batch{After: feed.Cursor{Position: feed.MaxNumber - 1, Micros: mostMicros}, Cursor: feed.Cursor{Position: feed.MaxNumber, Micros: mostMicros}, Diverged: true}

// mostMicros is the end of the year 9999.
const mostMicros = 253402300799_999_999
