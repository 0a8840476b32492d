// Package changeset writes the changes of a set as change sets, as the first draft of
// ResourceSync had them in 2012 (section 4.1 there). It knows no log and no HTTP.
package changeset

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/rshub/rshub/documents"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// MediaType is the media type of a change set.
const MediaType = "application/xml"

// Dialect returns the change sets of each set. changeset.xml has the newest changes, in the
// order in which they happened. Its link prev leads to older ones, and first to the oldest.
// Every change set has a link next. Whoever remembers that polls there for the changes that
// follow: the newest change set leads to itself until it is full. So the client leaves out
// the events whose rs:eventid it knows. An event id is the position of the change in the
// log.
func Dialect() *documents.Dialect {
	return &documents.Dialect{
		Top: "changeset.xml", Prefix: "changeset-", Suffix: ".xml", MediaType: MediaType, Recent: true,
		Writer: func(p *documents.Page) *documents.PageWriter {
			return &documents.PageWriter{
				Head:  func(dst []byte) []byte { return appendHead(dst, p) },
				Entry: func(dst []byte, e *feed.Entry, _ bool) []byte { return appendEvent(dst, e) },
				Tail:  func(dst []byte) []byte { return append(dst, "</rs:changeset>\n"...) },
			}
		},
	}
}

// appendHead appends what stands before the events.
func appendHead(dst []byte, p *documents.Page) []byte {
	dst = append(dst, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+
		`<rs:changeset xmlns:rs="http://resourcesync.org/ns/" xmlns:sm="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:atom="http://www.w3.org/2005/Atom">`+"\n"...)
	dst = appendLink(dst, "self", p.Self)
	dst = appendLink(dst, "first", p.First)
	dst = appendLink(dst, "prev", p.Prev)
	return appendLink(dst, "next", cmp.Or(p.Next, p.Last, p.Self))
}

// appendLink appends a link, unless it leads nowhere.
func appendLink(dst []byte, rel, href string) []byte {
	if href == "" {
		return dst
	}
	dst = appendText(dst, `  <atom:link href="`, href, `" rel="`)
	return append(append(dst, rel...), ` rs:changeset"/>`+"\n"...)
}

func appendText(dst []byte, before, text, after string) []byte {
	return append(resourcesync.AppendXMLText(append(dst, before...), text), after...)
}

// appendEvent appends an event. Its lastmod is when the hub took the change, if the source
// has not said when the resource changed.
func appendEvent(dst []byte, e *feed.Entry) []byte {
	c := &e.Change
	dst = append(dst, "  <sm:url><rs:eventid>"...)
	dst = append(strconv.AppendUint(dst, e.Position, 10), "</rs:eventid>"...)
	dst = appendText(dst, "<sm:loc>", c.Loc, "</sm:loc>")
	dst = append(dst, "<sm:lastmod>"...)
	if c.Lastmod.IsZero() {
		dst = resourcesync.AppendTimeMicro(dst, e.Micros)
	} else {
		dst = resourcesync.AppendTime(dst, c.Lastmod)
	}
	dst = append(dst, "</sm:lastmod>"...)
	if c.Length != nil {
		dst = append(strconv.AppendInt(append(dst, "<rs:size>"...), *c.Length, 10), "</rs:size>"...)
	}
	for hash := range strings.FieldsSeq(c.Hash) {
		if sum, ok := strings.CutPrefix(hash, "md5:"); ok {
			dst = appendText(dst, "<rs:md5>", sum, "</rs:md5>")
		}
	}
	if c.Changefreq != "" {
		dst = appendText(dst, "<sm:changefreq>", c.Changefreq, "</sm:changefreq>")
	}
	for tag := range c.Tags() {
		dst = appendText(dst, "<rs:tag>", tag, "</rs:tag>")
	}
	for i := range c.Links {
		dst = appendText(dst, `<atom:link href="`, c.Links[i].Href, `"`)
		dst = appendText(dst, ` rel="`, c.Links[i].Rel, `"/>`)
	}
	dst = append(append(dst, "<rs:eventtype>"...), c.Change...)
	return append(dst, "</rs:eventtype></sm:url>\n"...)
}
