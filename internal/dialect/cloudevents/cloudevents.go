// Package cloudevents converts between changes and CloudEvents 1.0. It supports the JSON format
// (single and batched events), the three modes of the HTTP binding, and the messages of the
// WebSocket binding.
//
// A Mapping in the description of a set defines the meaning of the events of its source. The
// package is independent of the server: package hub decodes events with it, and packages subscribe
// and callback encode them.
package cloudevents

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// Media types of events in JSON, and the WebSocket subprotocol with one event per message.
const (
	MediaType      = "application/cloudevents+json"
	BatchMediaType = "application/cloudevents-batch+json"
	Subprotocol    = "cloudevents.json"
)

// Prefix is the prefix of the types of the hub's own events, followed by the kind of the change:
// created, updated or deleted. Events that are not changes have one of the other two suffixes.
const (
	Prefix       = "io.github.rshub."
	cursorType   = "cursor"
	divergedType = "diverged"
)

// A Writer encodes changes as events.
type Writer struct{ Base feed.Base } // base URL of the hub

// Message returns the format of single events. A batch without entries becomes an event that is not
// a change; its ID is the cursor of the follower.
func (w Writer) Message() *feed.Format {
	return &feed.Format{Name: Subprotocol, MediaType: MediaType, Single: true, Append: func(dst []byte, b *feed.Batch, _ string) []byte {
		if len(b.Entries) == 0 {
			return w.appendCursorEvent(dst, b)
		}
		return w.appendChangeEvent(dst, b.Set, &b.Entries[0])
	}}
}

// Page returns the format of a page: an array of events, one per change.
func (w Writer) Page() *feed.Format {
	parts := &feed.PageWriter{
		Head: func(dst []byte, _ *feed.Batch, _ string) []byte { return append(dst, '[') },
		Entry: func(dst []byte, set string, e *feed.Entry, first bool) []byte {
			if !first {
				dst = append(dst, ',')
			}
			return w.appendChangeEvent(dst, set, e)
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

// appendChangeEvent appends the event of a change. Its source and ID together identify the entry
// permanently, and its ID is the cursor to resume from.
func (w Writer) appendChangeEvent(dst []byte, set string, e *feed.Entry) []byte {
	dst = w.appendContext(dst, e.Cursor, w.Base.Topic(set), string(e.Change.Change))
	dst = append(dst, `,"subject":`...)
	dst, _ = jsontext.AppendQuote(dst, e.Change.Loc) // no error: a loc is valid UTF-8
	dst = append(dst, `,"datacontenttype":"application/json","data":`...)
	return append(e.AppendJSON(dst), '}')
}

// appendCursorEvent appends an event with the cursor of a follower. Its source differs from that of
// changes, because a change may have the same ID, and a consumer that drops duplicates would
// mistake the event for the change.
func (w Writer) appendCursorEvent(dst []byte, b *feed.Batch) []byte {
	kind := cursorType
	if b.Diverged {
		kind = divergedType
	}
	return append(w.appendContext(dst, b.Cursor, w.Base.Topic(b.Set)+"#"+kind, kind), '}')
}

// appendContext appends the start of an event, with the attributes common to all events.
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
