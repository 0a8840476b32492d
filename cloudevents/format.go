// Package cloudevents speaks CloudEvents 1.0 in its JSON format: it reads changes out of
// events that others send, and writes changes as events. It knows no hub and no HTTP.
package cloudevents

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// The media types of one event, and of a JSON array of events (JSON Event Format for
// CloudEvents, sections 3 and 4).
const (
	One   = "application/cloudevents+json"
	Batch = "application/cloudevents-batch+json"
)

// typePrefix begins the type of events that rshub writes. A ChangeType ends it.
const typePrefix = "com.github.rshub."

// Format returns the format of a page of changes as a JSON array of events. base begins the
// source of each event, which is the topic of its set. An event's id is the cursor of its
// change, so source and id name each event once; its time is the hub's datetime, its
// subject the loc, and its data the entry as feed.JSON has it. An array has no place for
// the cursors of the page, so they are in the headers of the answer.
func Format(base feed.Base) *feed.Format {
	parts := &feed.Parts{
		Head: func(dst []byte, _ *feed.Batch, _ string) []byte { return append(dst, '[') },
		Entry: func(dst []byte, set string, e *feed.Entry, first bool) []byte {
			return appendEvent(dst, base, set, e, first)
		},
		Tail: func(dst []byte) []byte { return append(dst, "]\n"...) },
	}
	return &feed.Format{MediaType: Batch, Parts: parts, Append: func(dst []byte, b *feed.Batch, next string) []byte {
		dst = parts.Head(slices.Grow(dst, 600*len(b.Entries)), b, next)
		for i := range b.Entries {
			dst = parts.Entry(dst, b.Set, &b.Entries[i], i == 0)
		}
		return parts.Tail(dst)
	}}
}

func appendEvent(dst []byte, base feed.Base, set string, e *feed.Entry, first bool) []byte {
	if !first {
		dst = append(dst, ",\n"...)
	}
	dst = append(dst, `{"specversion":"1.0","id":"`...)
	dst = e.Cursor.Append(dst)
	dst = append(dst, `","source":`...)
	dst = strconv.AppendQuote(dst, base.Topic(set)) // Go quotes a URL like JSON does
	dst = append(dst, `,"type":"`+typePrefix...)
	dst = append(append(dst, e.Change.Change...), `","subject":`...)
	dst, _ = jsontext.AppendQuote(dst, e.Change.Loc) // fails only where it is not UTF-8, and still appends
	dst = append(dst, `,"time":"`...)
	dst = resourcesync.AppendTimeMicro(dst, e.Micros)
	dst = append(dst, `","datacontenttype":"application/json","data":`...)
	return append(e.AppendJSON(dst), '}')
}
