// Package dialect defines how a set is written as the documents of a standard other than
// ResourceSync. Each standard is a package below this one.
//
// A Form only encodes: it knows no server and no store. Package internal/documents reads the change
// memory, calls the form, and serves the result. docs/dialects.md describes the standards for
// users.
package dialect

import (
	"strings"

	"github.com/rshub/rshub/feed"
)

// A Form is a way to write a set's changes as the documents of another standard. There is
// one document with a name that never changes, and one for each closed Change List, with the
// same changes. The functions append to dst, and may be called by any goroutine. What they
// append depends only on their arguments.
type Form struct {
	Newest    string // the name in its set of the document that clients begin with, such as "atom.xml"
	Page      string // the names of the pages; a star stands for the log and the number: "atom-*.xml"
	MediaType string

	// Overview returns the newest document, if it has no changes itself and only leads to
	// the pages. Nil: it is a page, with the changes of the open Change List, and some of the
	// one before if they are few.
	Overview func(dst []byte, p *Page) []byte

	Head  func(dst []byte, p *Page) []byte                            // what stands before the first change
	Entry func(dst []byte, p *Page, e *feed.Entry, first bool) []byte // a change, with what stands between it and the one before; first: there is none before
	Tail  func(dst []byte, p *Page) []byte                            // what stands behind the last change

	// Begin and End are what each change begins and ends with, and nothing else has. With them
	// the newest document is a topic, too: WebSub subscribers get changes in this form.
	Begin, End string
}

// Pushed returns the page with which a batch is pushed.
func (f *Form) Pushed(base feed.Base, b *feed.Batch) *Page {
	topic := base.TopicIn(b.Set, f.Newest)
	return &Page{Base: base, Set: b.Set, Title: b.Set, After: b.After, Last: b.Cursor, Topic: base.Topic(b.Set), URL: topic, Newest: topic, Pushed: true}
}

// Batches returns the format in which batches are pushed.
func (f *Form) Batches(base feed.Base) *feed.Format {
	return &feed.Format{MediaType: f.MediaType, Append: func(dst []byte, b *feed.Batch, _ string) []byte {
		p := f.Pushed(base, b)
		dst = f.Head(dst, p)
		for i := range b.Entries {
			dst = f.Entry(dst, p, &b.Entries[i], i == 0)
		}
		return f.Tail(dst, p)
	}}
}

// PageName returns the name of a page. page is what the star stands for.
func (f *Form) PageName(page string) string { return strings.Replace(f.Page, "*", page, 1) }

// ParsePage returns what the star stands for in the name of a page.
func (f *Form) ParsePage(name string) (page string, ok bool) {
	before, behind, _ := strings.Cut(f.Page, "*")
	if page, ok = strings.CutPrefix(name, before); ok {
		page, ok = strings.CutSuffix(page, behind)
	}
	return page, ok && page != ""
}

// A Page is a part of the change memory of a set: the changes after one cursor, up to another
// one. The URLs are empty where there is nothing.
type Page struct {
	Base  feed.Base
	Set   string
	Title string // of the set; its name if it has no title

	After, Last feed.Cursor // the position of After counts all changes before the page, also those that the memory no longer has
	Closed      bool        // its bytes never change again
	Pushed      bool        // it is not read, but sent to a subscriber

	Topic  string // of change notifications
	URL    string
	Prev   string // the page before it; the memory may not have it any more
	Next   string // the page behind it; it may have no changes yet
	More   string // the changes after Last, once there are any: what Next is for a page that is not closed
	Newest string // the newest document
	First  string // the oldest page that the memory has
	Final  string // the newest page with changes; if there is none, the one that comes first
}

// ID returns the id of a change, which is the same in all forms: the topic, #, and the cursor,
// from which a client can follow.
func (p *Page) ID(c feed.Cursor) string { return p.Topic + "#" + c.String() }
