// Package cloudevents converts between changes and CloudEvents 1.0: the JSON format, single or
// batched, the HTTP binding in its three modes, and the messages of the WebSocket binding.
//
// A Mapping, from the description of a set, says what the events of a source mean. The package
// knows no server: package hub reads events with it, and packages subscribe and callback write
// them.
package cloudevents

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// The media types of events as JSON, and the WebSocket subprotocol whose messages are one
// event each.
const (
	MediaType      = "application/cloudevents+json"
	BatchMediaType = "application/cloudevents-batch+json"
	Subprotocol    = "cloudevents.json"
)

// Prefix begins the types of the hub's own events. The kind of the change follows: created,
// updated or deleted. Events that are no changes have the other two types.
const (
	Prefix       = "io.github.rshub."
	placeType    = "cursor"
	divergedType = "diverged"
)

// A Writer writes changes as events.
type Writer struct{ Base feed.Base } // the hub's own URL

// Message is the format of one event. A batch without an entry becomes an event that is no
// change: its id says where a follower is.
func (w Writer) Message() *feed.Format {
	return &feed.Format{Name: Subprotocol, MediaType: MediaType, Single: true, Append: func(dst []byte, b *feed.Batch, _ string) []byte {
		if len(b.Entries) == 0 {
			return w.appendPlace(dst, b)
		}
		return w.appendEvent(dst, b.Set, &b.Entries[0])
	}}
}

// Page is the format of a page: an array of events, of which each is a change.
func (w Writer) Page() *feed.Format {
	parts := &feed.PageWriter{
		Head: func(dst []byte, _ *feed.Batch, _ string) []byte { return append(dst, '[') },
		Entry: func(dst []byte, set string, e *feed.Entry, first bool) []byte {
			if !first {
				dst = append(dst, ',')
			}
			return w.appendEvent(dst, set, e)
		},
		Tail: func(dst []byte) []byte { return append(dst, "]\n"...) },
	}
	return &feed.Format{MediaType: BatchMediaType, Page: parts, Append: func(dst []byte, b *feed.Batch, next string) []byte {
		dst = parts.Head(dst, b, next)
		for i := range b.Entries {
			dst = parts.Entry(dst, b.Set, &b.Entries[i], i == 0)
		}
		return parts.Tail(dst)
	}}
}

// appendEvent appends a change. Its source and id together name the entry for ever, and its
// id is the cursor to resume from.
func (w Writer) appendEvent(dst []byte, set string, e *feed.Entry) []byte {
	dst = w.appendContext(dst, e.Cursor, w.Base.Topic(set), string(e.Change.Change))
	dst = append(dst, `,"subject":`...)
	dst, _ = jsontext.AppendQuote(dst, e.Change.Loc) // a loc is UTF-8
	dst = append(dst, `,"datacontenttype":"application/json","data":`...)
	return append(e.AppendJSON(dst), '}')
}

// appendPlace appends an event that says where a follower is in the log. Its source is not
// that of the changes, because a change may have the same id, and who drops repeats would
// take it for one.
func (w Writer) appendPlace(dst []byte, b *feed.Batch) []byte {
	kind := placeType
	if b.Diverged {
		kind = divergedType
	}
	return append(w.appendContext(dst, b.Cursor, w.Base.Topic(b.Set)+"#"+kind, kind), '}')
}

// appendContext appends the beginning of an event, with the attributes that all events have.
func (w Writer) appendContext(dst []byte, c feed.Cursor, source, kind string) []byte {
	dst = append(dst, `{"specversion":"1.0","id":"`...)
	dst = append(c.Append(dst), `","source":`...)
	dst, _ = jsontext.AppendQuote(dst, source)
	dst = append(dst, `,"type":"`+Prefix...)
	dst = append(append(dst, kind...), '"')
	if c.Micros != 0 {
		dst = append(dst, `,"time":"`...)
		dst = append(resourcesync.AppendTimeMicro(dst, c.Micros), '"')
	}
	return dst
}
