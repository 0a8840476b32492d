// Package activitystreams writes a set's changes as an ordered collection of ActivityStreams 2.0,
// as the IIIF Change Discovery API 1.0 (level 2) and Entity Metadata Management require.
//
// Clients start at the last page of the collection and walk back until they find a time that they
// know. Package dialect defines the interface.
package activitystreams

import (
	"bytes"
	"encoding/json"
	"mime"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/dialect"
	"github.com/rshub/rshub/resourcesync"
)

// Form has the collection and its pages.
var Form = &dialect.Form{
	Newest:    "activity/collection.json",
	Page:      "activity/page-*.json",
	MediaType: `application/ld+json; profile="` + context + ` https://www.w3.org/ns/activitystreams"`,
	Overview:  overview,
	Head:      head,
	Entry:     entry,
	Tail:      func(dst []byte, _ *dialect.Page) []byte { return append(dst, "]}\n"...) },
}

// context is the JSON-LD context of everything. It has that of ActivityStreams in it.
const context = "http://iiif.io/api/discovery/1/context.json"

// A reference names another object.
type reference struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Format string `json:"format,omitempty"` // its media type
}

// pageAt returns a reference to the page at a URL; nil: there is none.
func pageAt(url string) *reference {
	if url == "" {
		return nil
	}
	return &reference{ID: url, Type: "OrderedCollectionPage"}
}

// overview appends the collection (IIIF Change Discovery section 2.2.1).
func overview(dst []byte, p *dialect.Page) []byte {
	dst = appendJSON(dst, struct {
		Context    string     `json:"@context"`
		ID         string     `json:"id"`
		Type       string     `json:"type"`
		Name       string     `json:"name"`
		TotalItems uint64     `json:"totalItems"`
		First      *reference `json:"first,omitempty"`
		Last       *reference `json:"last"`
		SeeAlso    reference  `json:"seeAlso"`
	}{
		context, p.URL, "OrderedCollection", p.Title, p.Last.Position - p.After.Position, pageAt(p.First), pageAt(p.Final),
		reference{p.Base.CapabilityList(p.Set), "Dataset", "application/xml"},
	})
	return append(dst, '\n')
}

// head appends a page up to its first activity (section 2.2.2).
func head(dst []byte, p *dialect.Page) []byte {
	dst = appendJSON(dst, struct {
		Context    string     `json:"@context"`
		ID         string     `json:"id"`
		Type       string     `json:"type"`
		PartOf     reference  `json:"partOf"`
		StartIndex uint64     `json:"startIndex"`
		Prev       *reference `json:"prev,omitempty"`
		Next       *reference `json:"next,omitempty"`
	}{context, p.URL, "OrderedCollectionPage", reference{ID: p.Newest, Type: "OrderedCollection"}, p.After.Position, pageAt(p.Prev), pageAt(p.Next)})
	return append(dst[:len(dst)-1], `,"orderedItems":[`...)
}

// types are the activities of changes (section 2.2.4).
var types = map[resourcesync.ChangeType]string{resourcesync.Created: "Create", resourcesync.Updated: "Update", resourcesync.Deleted: "Delete"}

// entry appends an activity (section 2.2.3). Its endTime is when the hub accepted the change,
// because clients walk back by it, so it must never decrease. updated is what the source says
// of the resource itself.
func entry(dst []byte, p *dialect.Page, e *feed.Entry, first bool) []byte {
	if !first {
		dst = append(dst, ',')
	}
	type object struct {
		reference
		Updated string `json:"updated,omitempty"`
	}
	o := object{reference: reference{ID: e.Change.Loc, Type: typeOf(e.Change.Type), Format: e.Change.Type}}
	if !e.Change.Lastmod.IsZero() {
		o.Updated = string(resourcesync.AppendTime(nil, e.Change.Lastmod))
	}
	return appendJSON(append(dst, '\n'), struct {
		ID      string `json:"id"`
		Type    string `json:"type"`
		Object  object `json:"object"`
		EndTime string `json:"endTime"`
	}{p.ID(e.Cursor), types[e.Change.Change], o, string(resourcesync.AppendTimeMicro(nil, e.Micros))})
}

// typeOf returns the type of a resource with a media type: a class of IIIF, or one of
// ActivityStreams (Vocabulary section 3.3).
func typeOf(mediaType string) string {
	t, params, err := mime.ParseMediaType(mediaType)
	if err != nil {
		return "Object"
	}
	if strings.HasPrefix(params["profile"], "http://iiif.io/api/presentation/") {
		return "Manifest"
	}
	switch kind, _, _ := strings.Cut(t, "/"); {
	case kind == "image":
		return "Image"
	case kind == "audio":
		return "Audio"
	case kind == "video":
		return "Video"
	case t == "text/html":
		return "Page"
	}
	return "Document"
}

// appendJSON appends v, on one line. v is of this package, and can always be written.
func appendJSON(dst []byte, v any) []byte {
	b := bytes.NewBuffer(dst)
	to := json.NewEncoder(b)
	to.SetEscapeHTML(false) // nobody reads it as HTML
	_ = to.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
