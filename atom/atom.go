// Package atom writes the changes of a set as an Atom feed (RFC 4287) with archived pages
// (RFC 5005 section 4) and deletions (RFC 6721), and what is new in it for the callbacks of
// WebSub. It knows no log and no HTTP.
package atom

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/documents"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// MediaType is the media type of a feed.
const MediaType = "application/atom+xml"

// Dialect returns the feed of each set: atom.xml with the newest changes, newest first, and
// its archive in pages that never change.
//
// An entry is a resource that was created or updated. Its id is the resource's URI, so a
// reader shows the newest state of each resource; deletions are deleted-entry elements.
// Its links and tags are links and categories of Atom. rs:md and rs:ln say all of it again,
// and the rest, as in a Change List.
func Dialect() *documents.Dialect {
	return &documents.Dialect{
		Top: "atom.xml", Prefix: "atom-", Suffix: ".xml", MediaType: MediaType, Recent: true, NewestFirst: true, Topic: feed.AtomTopic,
		Writer: func(p *documents.Page) *documents.PageWriter {
			xml := feed.NewXMLWriter()
			return &documents.PageWriter{
				Head:  func(dst []byte) []byte { return appendHead(dst, p, xml) },
				Entry: func(dst []byte, e *feed.Entry, _ bool) []byte { return appendEntry(dst, e, xml) },
				Tail:  func(dst []byte) []byte { return append(dst, foot...) },
			}
		},
	}
}

const foot = "</feed>\n"

// Delivery returns the format of what is delivered for the AtomTopic of a set: the feed with
// nothing but the new entries, the oldest first (WebSub section 7). title returns the title of a
// set, or nothing.
func Delivery(base feed.Base, title func(ctx context.Context, set string) string) *outlet.Format {
	return &outlet.Format{
		MediaType: MediaType,
		Head: func(ctx context.Context, dst []byte, b *feed.Batch) []byte {
			set, url := feed.SetOf(b.Set), base.Topic(b.Set)
			p := &documents.Page{Set: set, Title: title(ctx, set), Self: url, Top: url, Hub: base.Hub(), Until: b.Cursor.Micros}
			return appendHead(dst, p, feed.NewXMLWriter())
		},
		Entry: appendEntry,
		Foot:  []byte(foot),
	}
}

// appendHead appends what stands before the entries. The id is the same in all documents of a
// feed: RFC 5005 section 4 says that pages of one feed have one id.
func appendHead(dst []byte, p *documents.Page, xml *feed.XMLWriter) []byte {
	dst = append(dst, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+
		`<feed xmlns="http://www.w3.org/2005/Atom" xmlns:at="http://purl.org/atompub/tombstones/1.0" xmlns:fh="http://purl.org/syndication/history/1.0"`...)
	dst = append(xml.AppendDeclarations(dst), ">\n"...)
	title := cmp.Or(p.Title, p.Set)
	dst = appendElement(dst, "  <id>", p.Top, "</id>\n")
	dst = appendElement(dst, "  <title>", title, "</title>\n")
	dst = appendElement(dst, "  <author><name>", p.Set, "</name></author>\n")
	dst = append(resourcesync.AppendTimeMicro(append(dst, "  <updated>"...), p.Until), "</updated>\n"...)
	dst = appendLink(dst, "self", p.Self)
	dst = appendLink(dst, "hub", p.Hub)
	if p.Closed {
		dst = append(dst, "  <fh:archive/>\n"...)
	}
	if p.Number > 0 {
		dst = appendLink(dst, "current", p.Top)
	}
	dst = appendLink(dst, "prev-archive", p.Prev)
	return appendLink(dst, "next-archive", p.Next)
}

func appendElement(dst []byte, begin, text, end string) []byte {
	return append(resourcesync.AppendXMLText(append(dst, begin...), text), end...)
}

// appendLink appends a link, unless it leads nowhere.
func appendLink(dst []byte, rel, href string) []byte {
	if href == "" {
		return dst
	}
	return appendElement(append(append(dst, `  <link rel="`...), rel...), `" href="`, href, `"/>`+"\n")
}

func appendEntry(dst []byte, e *feed.Entry, xml *feed.XMLWriter) []byte {
	if e.Change.Change == resourcesync.Deleted {
		dst = appendElement(dst, `  <at:deleted-entry ref="`, e.Change.Loc, `" when="`)
		dst = append(resourcesync.AppendTimeMicro(dst, e.Micros), `">`...)
		return append(xml.AppendDetails(dst, e), "</at:deleted-entry>\n"...)
	}
	dst = appendElement(dst, "  <entry><id>", e.Change.Loc, "</id>")
	dst = appendElement(dst, "<title>", e.Change.Loc, "</title>")
	dst = append(resourcesync.AppendTimeMicro(append(dst, "<updated>"...), e.Micros), "</updated>"...)
	dst = appendElement(dst, `<link rel="alternate" href="`, e.Change.Loc, `"`)
	if e.Change.Type != "" {
		dst = appendElement(dst, ` type="`, e.Change.Type, `"`)
	}
	dst = append(dst, "/>"...)
	dst = appendLinks(dst, &e.Change)
	for tag := range e.Change.Tags() {
		dst = appendElement(dst, `<category term="`, tag, `"/>`)
	}
	dst = append(dst, "<summary>"...)
	dst = append(append(dst, e.Change.Change...), "</summary>"...)
	return append(xml.AppendDetails(dst, e), "</entry>\n"...)
}

// appendLinks appends the links of a change. Of the alternates with one type it appends the
// first, because an entry has only one (RFC 4287 section 4.1.2). The link to the resource is
// one of them.
func appendLinks(dst []byte, c *resourcesync.Change) []byte {
	for i := range c.Links {
		l := &c.Links[i]
		same := func(other resourcesync.Link) bool { return other.Rel == l.Rel && other.Type == l.Type }
		if l.Rel == "alternate" && (l.Type == c.Type || slices.ContainsFunc(c.Links[:i], same)) {
			continue
		}
		dst = appendElement(dst, `<link rel="`, l.Rel, `"`)
		dst = appendElement(dst, ` href="`, l.Href, `"`)
		if l.Type != "" {
			dst = appendElement(dst, ` type="`, l.Type, `"`)
		}
		if l.Length != nil {
			dst = append(strconv.AppendInt(append(dst, ` length="`...), *l.Length, 10), '"')
		}
		dst = append(dst, "/>"...)
	}
	return dst
}
