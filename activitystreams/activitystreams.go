// Package activitystreams writes the changes of a set as an ordered collection of activities,
// as IIIF Change Discovery 1.0 (level 2) has it on top of ActivityStreams 2.0. It knows no log
// and no HTTP.
package activitystreams

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rshub/rshub/documents"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// MediaType is the media type of a collection, and of its pages.
const MediaType = `application/ld+json;profile="http://iiif.io/api/discovery/1/context.json"`

const contexts = `{"@context":["http://iiif.io/api/discovery/1/context.json","https://www.w3.org/ns/activitystreams"],"id":`

// Dialect returns the collection of each set, activity/collection.json. It names the first and
// the last page. Harvesters begin at the last one, and walk back by prev until they reach what
// they know. The activities of a page are in the order in which they happened.
func Dialect() *documents.Dialect {
	return &documents.Dialect{
		Top: "activity/collection.json", Prefix: "activity/page-", Suffix: ".json", MediaType: MediaType,
		Writer: func(p *documents.Page) *documents.PageWriter {
			if p.Number == 0 {
				return &documents.PageWriter{
					Head:  func(dst []byte) []byte { return appendCollection(dst, p) },
					Entry: func(dst []byte, _ *feed.Entry, _ bool) []byte { return dst }, // there is none
					Tail:  func(dst []byte) []byte { return append(dst, "}\n"...) },
				}
			}
			return &documents.PageWriter{
				Head:  func(dst []byte) []byte { return appendPage(dst, p) },
				Entry: func(dst []byte, e *feed.Entry, first bool) []byte { return appendActivity(dst, p, e, first) },
				Tail:  func(dst []byte) []byte { return append(dst, "\n]}\n"...) },
			}
		},
	}
}

// appendCollection appends an Ordered Collection (IIIF Change Discovery section 3.1) up to its
// last brace.
func appendCollection(dst []byte, p *documents.Page) []byte {
	dst = quote(append(dst, contexts...), p.Self)
	dst = append(dst, `,"type":"OrderedCollection","totalItems":`...)
	dst = strconv.AppendUint(dst, p.Total, 10)
	dst = appendRef(dst, "first", "OrderedCollectionPage", p.First)
	return appendRef(dst, "last", "OrderedCollectionPage", p.Last)
}

// appendPage appends an Ordered Collection Page (section 3.2) up to its first activity.
func appendPage(dst []byte, p *documents.Page) []byte {
	dst = quote(append(dst, contexts...), p.Self)
	dst = append(dst, `,"type":"OrderedCollectionPage"`...)
	dst = appendRef(dst, "partOf", "OrderedCollection", p.Top)
	dst = append(dst, `,"startIndex":`...)
	dst = strconv.AppendUint(dst, p.Index, 10)
	dst = appendRef(dst, "prev", "OrderedCollectionPage", p.Prev)
	dst = appendRef(dst, "next", "OrderedCollectionPage", p.Next)
	return append(dst, `,"orderedItems":[`...)
}

// appendRef appends a member that refers to a document, unless there is none.
func appendRef(dst []byte, name, kind, id string) []byte {
	if id == "" {
		return dst
	}
	dst = append(append(append(dst, `,"`...), name...), `":{"id":`...)
	return append(append(append(quote(dst, id), `,"type":"`...), kind...), `"}`...)
}

// activities are the types of activities (section 3.3.1) by what happened.
var activities = map[resourcesync.ChangeType]string{resourcesync.Created: "Create", resourcesync.Updated: "Update", resourcesync.Deleted: "Delete"}

// appendActivity appends an activity (section 3.3). Its id is that of an anchor at the
// collection. endTime is the datetime of the hub, so it strictly increases. It has the change
// as it stands elsewhere besides, which no context explains.
func appendActivity(dst []byte, p *documents.Page, e *feed.Entry, first bool) []byte {
	if !first {
		dst = append(dst, ',')
	}
	dst = append(dst, "\n"+`{"id":`...)
	dst = quote(dst, p.Top+"#"+e.Cursor.String())
	dst = append(dst, `,"type":"`...)
	dst = append(append(dst, activities[e.Change.Change]...), `","endTime":"`...)
	dst = append(resourcesync.AppendTimeMicro(dst, e.Micros), `","object":{"id":`...)
	dst = append(quote(dst, e.Change.Loc), `,"type":"`...)
	dst = append(append(dst, objectType(e.Change.Type)...), '"')
	if e.Change.Type != "" {
		dst = quote(append(dst, `,"format":`...), e.Change.Type)
	}
	dst = append(dst, `},"`+resourcesync.Terms+`change":`...)
	return append(e.AppendJSON(dst), '}')
}

// presentation is in the profile of media types of IIIF's own resources.
const presentation = "http://iiif.io/api/presentation/"

// objectType returns the type of a resource: what IIIF calls its own, else what
// ActivityStreams calls it.
func objectType(mediaType string) string {
	kind, _, _ := strings.Cut(mediaType, "/")
	switch {
	case strings.Contains(mediaType, presentation):
		return "Manifest"
	case kind == "image":
		return "Image"
	case kind == "audio":
		return "Audio"
	case kind == "video":
		return "Video"
	}
	return "Document"
}

// quote appends a string as JSON.
func quote(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // fails only where it is not UTF-8, and still appends
	return dst
}
