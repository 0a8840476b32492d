package feed

import (
	"strconv"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// appendJSON appends the batch as one JSON object on one line, without a newline. It has a member
// "next" unless next is empty.
func (b *Batch) appendJSON(dst []byte, next string) []byte {
	dst = b.appendJSONHead(dst, next)
	for i := range b.Entries {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = b.Entries[i].AppendJSON(dst)
	}
	return append(dst, "]}"...)
}

// appendJSONHead appends the JSON object up to its first entry.
func (b *Batch) appendJSONHead(dst []byte, next string) []byte {
	dst = append(dst, `{"set":"`...)
	dst = append(dst, b.Set...) // the name of a set needs no escaping
	dst = append(dst, `","after":"`...)
	dst = b.After.Append(dst)
	if from, until, ok := b.interval(); ok {
		dst = append(dst, `","from":"`...)
		dst = resourcesync.AppendTimeMicro(dst, from)
		dst = append(dst, `","until":"`...)
		dst = resourcesync.AppendTimeMicro(dst, until)
	}
	dst = append(dst, `","cursor":"`...)
	dst = b.Cursor.Append(dst)
	dst = append(dst, '"')
	if b.Diverged {
		dst = append(dst, `,"diverged":true`...)
	}
	if next != "" {
		dst = append(dst, `,"next":`...)
		dst = strconv.AppendQuote(dst, next) // for a URL, Go and JSON have the same quoting
	}
	return append(dst, `,"changes":[`...)
}

// appendMember appends e as an element of a JSON array.
func appendMember(dst []byte, e *Entry, first bool) []byte {
	if !first {
		dst = append(dst, ',')
	}
	return e.AppendJSON(dst)
}

// appendLine appends e as a line of NDJSON.
func appendLine(dst []byte, e *Entry, _ bool) []byte { return append(e.AppendJSON(dst), '\n') }

// AppendJSON appends the entry as a JSON object on one line, without a newline, and returns the
// extended slice. It has the members of the change, and position, datetime (the hub's) and
// sourceDatetime (the source's).
func (e *Entry) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"position":`...)
	dst = strconv.AppendUint(dst, e.Position, 10)
	dst = append(dst, `,"datetime":"`...)
	dst = resourcesync.AppendTimeMicro(dst, e.Micros)
	dst = append(dst, `",`...)
	c := e.Change
	if !c.Datetime.IsZero() {
		dst = append(dst, `"sourceDatetime":"`...)
		dst = resourcesync.AppendTime(dst, c.Datetime)
		dst = append(dst, `",`...)
		c.Datetime = time.Time{} // the member datetime is the hub's
	}
	dst = resourcesync.AppendJSONMembers(dst, &c)
	return append(dst, '}')
}
