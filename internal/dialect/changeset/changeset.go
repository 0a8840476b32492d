// Package changeset encodes the changes of a set as changesets of the ResourceSync draft of 2012,
// the Sitemap-based Approach (section 4.1).
//
// A client stores the rel=next link of the last changeset that it read, which leads to the changes
// since. Package dialect defines the interface.
package changeset

import (
	"cmp"
	"strconv"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/dialect"
	"github.com/rshub/rshub/resourcesync"
)

// Form encodes the newest changeset and the earlier ones.
var Form = &dialect.Form{
	Newest:    "changeset.xml",
	Page:      "changeset-*.xml",
	MediaType: "application/xml",
	Begin:     "  <sm:url>",
	End:       "</sm:url>\n",
	Head:      head,
	Entry:     func(dst []byte, p *dialect.Page, e *feed.Entry, _ bool) []byte { return entry(dst, p, e) },
	Tail:      func(dst []byte, _ *dialect.Page) []byte { return append(dst, "</changeset>\n"...) },
}

func head(dst []byte, p *dialect.Page) []byte {
	dst = append(dst, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+
		`<changeset xmlns="http://resourcesync.org/ns/" xmlns:rs="http://resourcesync.org/ns/" xmlns:sm="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:atom="http://www.w3.org/2005/Atom">`+"\n"...)
	if p.Pushed {
		return dst // a pushed changeset has no links (section 4.3)
	}
	dst = link(dst, "self", p.URL)
	dst = link(dst, "prev", p.Prev)
	dst = link(dst, "next", cmp.Or(p.Next, p.More))
	return link(dst, "last", p.Newest)
}

// link appends a link to a changeset. It appends nothing if the URL is empty.
func link(dst []byte, rel, url string) []byte {
	if url == "" {
		return dst
	}
	dst = resourcesync.AppendXMLText(append(dst, `  <atom:link href="`...), url)
	return append(append(append(dst, `" rel="`...), rel...), " rs:changeset\"/>\n"...)
}

// entry appends a change. Its tags, by which clients filter, are the collections of the resource.
func entry(dst []byte, p *dialect.Page, e *feed.Entry) []byte {
	c := &e.Change
	dst = append(dst, "  <sm:url><rs:eventid>"...)
	dst = resourcesync.AppendXMLText(dst, p.ID(e.Cursor))
	dst = append(dst, "</rs:eventid><sm:loc>"...)
	dst = resourcesync.AppendXMLText(dst, c.Loc)
	dst = append(dst, "</sm:loc><sm:lastmod>"...)
	if c.Lastmod.IsZero() {
		dst = resourcesync.AppendTimeMicro(dst, e.Micros)
	} else {
		dst = resourcesync.AppendTime(dst, c.Lastmod)
	}
	dst = append(dst, "</sm:lastmod>"...)
	if c.Length != nil {
		dst = strconv.AppendInt(append(dst, "<rs:size>"...), *c.Length, 10)
		dst = append(dst, "</rs:size>"...)
	}
	if sum := resourcesync.Digest(c.Hash, "md5"); sum != "" {
		dst = append(append(append(dst, "<rs:md5>"...), sum...), "</rs:md5>"...)
	}
	for i := range c.Links {
		if l := &c.Links[i]; l.Rel == "collection" {
			dst = resourcesync.AppendXMLText(append(dst, "<rs:tag>"...), l.Href)
			dst = append(dst, "</rs:tag>"...)
		}
	}
	dst = append(append(dst, "<rs:eventtype>"...), c.Change...)
	return append(dst, "</rs:eventtype></sm:url>\n"...)
}
