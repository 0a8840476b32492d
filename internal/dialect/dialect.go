// Package dialect defines the interface between the hub and the formats of standards other than
// ResourceSync. Each format is a subpackage.
//
// A Form only encodes documents, and has no access to a server or store. Package internal/documents
// reads the change memory, calls the form, and serves the result. See docs/dialects.md for the
// standards.
package dialect

import (
	"strings"

	"github.com/rshub/rshub/feed"
)

// A Form encodes the changes of a set as documents of another standard: one newest document with a
// fixed name, and one page with the same changes for each closed Change List. The functions append
// to dst and are safe for concurrent use. Their output depends only on their arguments.
type Form struct {
	Newest    string // name of the document where clients start, such as "atom.xml"
	Page      string // names of the pages, with a star for the log and the number, such as "atom-*.xml"
	MediaType string

	// Overview appends the newest document if that has no changes itself, but links to the pages.
	// If Overview is nil, the newest document is a page with the changes of the open Change List,
	// and, if these are few, some of the previous list.
	Overview func(dst []byte, p *Page) []byte

	Head  func(dst []byte, p *Page) []byte                            // appends everything before the first change
	Entry func(dst []byte, p *Page, e *feed.Entry, first bool) []byte // appends a change and the separator from the previous one; first means that there is none
	Tail  func(dst []byte, p *Page) []byte                            // appends everything after the last change

	// Begin and End mark the start and the end of each change in the output, and occur nowhere
	// else. If they are set, the newest document is also a topic, and WebSub subscribers can
	// receive changes in this form.
	Begin, End string
}

// PushedPage returns the page that is sent to subscribers for a batch.
func (f *Form) PushedPage(base feed.Base, b *feed.Batch) *Page {
	topic := base.TopicIn(b.Set, f.Newest)
	return &Page{Base: base, Set: b.Set, Title: b.Set, After: b.After, Last: b.Cursor, Topic: base.Topic(b.Set), URL: topic, Newest: topic, Pushed: true}
}

// BatchFormat returns the format of batches sent to subscribers.
func (f *Form) BatchFormat(base feed.Base) *feed.Format {
	return &feed.Format{MediaType: f.MediaType, Append: func(dst []byte, b *feed.Batch, _ string) []byte {
		p := f.PushedPage(base, b)
		dst = f.Head(dst, p)
		for i := range b.Entries {
			dst = f.Entry(dst, p, &b.Entries[i], i == 0)
		}
		return f.Tail(dst, p)
	}}
}

// PageName returns the name of a page, with page in place of the star in f.Page.
func (f *Form) PageName(page string) string { return strings.Replace(f.Page, "*", page, 1) }

// ParsePage returns the part of a page name that matches the star in f.Page.
func (f *Form) ParsePage(name string) (page string, ok bool) {
	before, behind, _ := strings.Cut(f.Page, "*")
	if page, ok = strings.CutPrefix(name, before); ok {
		page, ok = strings.CutSuffix(page, behind)
	}
	return page, ok && page != ""
}

// A Page is a range of the changes of a set, between two cursors. A URL is empty if there is no
// such document.
type Page struct {
	Base  feed.Base
	Set   string
	Title string // title of the set, or its name if it has none

	After, Last feed.Cursor // range of the changes; the position of After counts all earlier changes, even removed ones
	Closed      bool        // whether the page is final, so that its bytes never change
	Pushed      bool        // whether the page is sent to a subscriber, not requested by a client

	Topic  string // topic of the change notifications
	URL    string // URL of this page
	Prev   string // previous page; the memory may no longer have it
	Next   string // next page; it may still be empty
	More   string // future changes after Last, if the page is not closed, in place of Next
	Newest string // newest document
	First  string // oldest page in the memory
	Final  string // newest page with changes, or, if there is none, the first one
}

// ID returns the ID of a change, which is the same in all forms: the topic, "#", and the cursor of
// the change, from which a client can follow.
func (p *Page) ID(c feed.Cursor) string { return p.Topic + "#" + c.String() }
