// Package activitystreams encodes the changes of a set as an ordered collection of ActivityStreams
// 2.0, as required by the IIIF Change Discovery API 1.0 (level 2) and Entity Metadata Management.
//
// Clients start at the last page of the collection and read backwards until a time that they
// already processed. Package dialect defines the interface.
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

// Form encodes the collection and its pages.
var Form = &dialect.Form{
	Newest:    "activity/collection.json",
	Page:      "activity/page-*.json",
	MediaType: `application/ld+json; profile="` + context + ` https://www.w3.org/ns/activitystreams"`,
	Overview:  overview,
	Head:      head,
	Entry:     entry,
	Tail:      func(dst []byte, _ *dialect.Page) []byte { return append(dst, "]}\n"...) },
}

// context is the JSON-LD context of all documents. It includes the context of ActivityStreams.
const context = "http://iiif.io/api/discovery/1/context.json"

// A reference is a link to another object.
type reference struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Format string `json:"format,omitempty"` // media type
}

// pageReference returns a reference to the page at a URL, or nil if the URL is empty.
func pageReference(url string) *reference {
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
		context, p.URL, "OrderedCollection", p.Title, p.Last.Position - p.After.Position, pageReference(p.First), pageReference(p.Final),
		reference{p.Base.CapabilityList(p.Set), "Dataset", "application/xml"},
	})
	return append(dst, '\n')
}

// head appends the start of a page, up to its first activity (section 2.2.2).
func head(dst []byte, p *dialect.Page) []byte {
	dst = appendJSON(dst, struct {
		Context    string     `json:"@context"`
		ID         string     `json:"id"`
		Type       string     `json:"type"`
		PartOf     reference  `json:"partOf"`
		StartIndex uint64     `json:"startIndex"`
		Prev       *reference `json:"prev,omitempty"`
		Next       *reference `json:"next,omitempty"`
	}{context, p.URL, "OrderedCollectionPage", reference{ID: p.Newest, Type: "OrderedCollection"}, p.After.Position, pageReference(p.Prev), pageReference(p.Next)})
	return append(dst[:len(dst)-1], `,"orderedItems":[`...)
}

// types maps changes to types of activities (section 2.2.4).
var types = map[resourcesync.ChangeType]string{resourcesync.Created: "Create", resourcesync.Updated: "Update", resourcesync.Deleted: "Delete"}

// entry appends an activity (section 2.2.3). endTime is the time when the hub accepted the change:
// clients read backwards by it, so it must never decrease. updated is the modification time of the
// resource according to the source.
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

// typeOf returns the type of a resource by its media type: a class of IIIF or of ActivityStreams
// (Vocabulary section 3.3).
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

// appendJSON appends v on one line. v is a type of this package, for which encoding never fails.
func appendJSON(dst []byte, v any) []byte {
	b := bytes.NewBuffer(dst)
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false) // the output is not embedded in HTML
	_ = encoder.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
