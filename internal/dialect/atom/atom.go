// Package atom encodes the changes of a set as an Atom feed (RFC 4287) with archives (RFC 5005
// section 4), for any feed reader.
//
// Package dialect defines the interface; package internal/documents serves the feed.
package atom

import (
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/dialect"
	"github.com/rshub/rshub/resourcesync"
)

// Form encodes the feed and its archives. The feed has the newest changes, and the archives have
// the older ones. A reader that must not miss any follows the rel=prev-archive links until it finds
// a known entry.
var Form = &dialect.Form{
	Newest:    "atom.xml",
	Page:      "atom-*.xml",
	MediaType: "application/atom+xml",
	Begin:     "  <entry>",
	End:       "</entry>\n",
	Head:      head,
	Entry:     func(dst []byte, p *dialect.Page, e *feed.Entry, _ bool) []byte { return entry(dst, p, e) },
	Tail:      func(dst []byte, _ *dialect.Page) []byte { return append(dst, "</feed>\n"...) },
}

// head appends the start of the feed, up to its first entry. The updated time of the feed is that
// of its newest entry.
func head(dst []byte, p *dialect.Page) []byte {
	dst = append(dst, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+`<feed xmlns="http://www.w3.org/2005/Atom" xmlns:rs="http://www.openarchives.org/rs/terms/"`...)
	if p.Closed {
		dst = append(dst, ` xmlns:fh="http://purl.org/syndication/history/1.0"`...)
	}
	dst = append(dst, ">\n  <id>"...)
	dst = resourcesync.AppendXMLText(dst, p.Newest)
	dst = append(dst, "</id>\n  <title>"...)
	dst = resourcesync.AppendXMLText(dst, p.Title)
	dst = append(dst, "</title>\n  <updated>"...)
	dst = resourcesync.AppendTimeMicro(dst, p.Last.Micros)
	dst = append(dst, "</updated>\n  <author><name>"...)
	dst = resourcesync.AppendXMLText(dst, p.Set)
	dst = append(dst, "</name></author>\n"...)
	dst = link(dst, "self", p.URL, "")
	dst = link(dst, "hub", p.Base.Hub(), "")
	dst = link(dst, "via", p.Base.CapabilityList(p.Set), "application/xml")
	if p.Closed {
		dst = append(dst, "  <fh:archive/>\n"...)
		dst = link(dst, "current", p.Newest, "")
	}
	return link(dst, "prev-archive", p.Prev, "")
}

// link appends a link of the feed. It appends nothing if the URL is empty.
func link(dst []byte, rel, url, mediaType string) []byte {
	if url == "" {
		return dst
	}
	dst = append(append(append(dst, `  <link rel="`...), rel...), `" href="`...)
	dst = resourcesync.AppendXMLText(dst, url)
	if mediaType != "" {
		dst = append(append(dst, `" type="`...), mediaType...)
	}
	return append(dst, "\"/>\n"...)
}

// micros selects microsecond precision, which all times of the hub have.
var micros = &resourcesync.Namespaces{Micros: true}

// entry appends an entry. Each change is an entry of its own, so the ID of an entry identifies the
// change, not the resource. rs:md and rs:ln are the same as in a Change List.
func entry(dst []byte, p *dialect.Page, e *feed.Entry) []byte {
	dst = append(dst, "  <entry><id>"...)
	dst = resourcesync.AppendXMLText(dst, p.ID(e.Cursor))
	dst = append(dst, "</id><title>"...)
	dst = append(append(dst, e.Change.Change...), ' ')
	dst = resourcesync.AppendXMLText(dst, e.Change.Loc)
	dst = append(dst, "</title><updated>"...)
	dst = resourcesync.AppendTimeMicro(dst, e.Micros)
	dst = append(dst, `</updated><link rel="alternate" href="`...)
	dst = resourcesync.AppendXMLText(dst, e.Change.Loc)
	dst = append(dst, `"/><category scheme="http://www.openarchives.org/rs/terms/" term="`...)
	dst = append(append(dst, e.Change.Change...), `"/>`...)
	it := resourcesync.Item{Change: e.Change}
	it.Datetime, it.Path = e.Time(), ""
	dst = resourcesync.AppendXMLDetails(dst, &it, micros)
	return append(dst, "</entry>\n"...)
}
