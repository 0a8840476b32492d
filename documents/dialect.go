package documents

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/rshub/rshub/feed"
)

// A Dialect is another form in which the changes of a set are shown to those who pull: a
// document that clients begin at, the top, and numbered pages, each with a link to the one
// before. Page n has the entries at the positions (n-1)·DialectPage+1 to n·DialectPage. It is
// closed once the next page has begun, and never changes then.
//
// A Dialect is a value that says how its documents are written. It knows no log.
type Dialect struct {
	Top            string // name of the top, such as atom.xml
	Prefix, Suffix string // of the names of the pages: {Prefix}{begin}-{n}{Suffix}
	MediaType      string
	Recent         bool                            // the top has entries: those of the newest page, and of the page before
	Topic          func(set string) (topic string) // the topic that delivers what the top shows; nil: there is none
	NewestFirst    bool                            // order of the entries in a document; else the oldest is first

	// Writer returns what writes one document. Its bytes depend on nothing but the page and
	// the entries.
	Writer func(p *Page) *PageWriter
}

// A PageWriter appends one document of a Dialect in parts. Only one goroutine uses it.
type PageWriter struct {
	Head  func(dst []byte) []byte                            // what stands before the first entry
	Entry func(dst []byte, e *feed.Entry, first bool) []byte // an entry; first: there is none before it
	Tail  func(dst []byte) []byte                            // what stands behind the last entry
}

// DialectPage is how many entries a page of a Dialect has. Clients of other dialects expect
// smaller documents than those of ResourceSync.
const DialectPage = 1000

// A Page is what is said of a document of a Dialect besides its entries.
type Page struct {
	Set    string
	Title  string // of the set; empty for a numbered page, whose bytes do not depend on it
	Number uint64 // 0: it is the top
	Closed bool   // it is a numbered page that never changes

	Self, Top string // URLs of the document, and of the top
	Hub       string // URL of the hub that delivers what Top shows; only in the top; empty: none does
	Prev      string // URL of the page before; for a top that has entries, of the newest page that it does not repeat; empty: there is none
	Next      string // URL of the page that follows; empty: there is none
	First     string // URL of the oldest page that is kept; only in the top; empty: there is no page
	Last      string // URL of the newest page; only in the top; empty: there is no page

	Total uint64 // entries of all pages that are kept
	Index uint64 // of a numbered page: the entries that the log has had before it
	Begin int64  // when the log began, in microseconds since 1970
	Until int64  // datetime of the newest entry of the document, or of the log for the top; Begin if there is none
}

// pages are the numbers of the pages of a log.
type pages struct{ oldest, newest uint64 } // newest < oldest: there is none

// pagesOf returns the pages that a log has whole. Its newest page counts also if retention
// has removed a part of it: nobody was told yet that it never changes.
func pagesOf(s feed.State) pages {
	p := pages{oldest: (s.Floor.Position+DialectPage-1)/DialectPage + 1, newest: (s.Head.Position + DialectPage - 1) / DialectPage}
	if s.Len() > 0 {
		p.oldest = min(p.oldest, p.newest)
	}
	return p
}

// pageName returns the name of page n. As listName does, it says which log is meant. The
// epoch is that of the list in which the next page begins: a page names the next one, and an
// epoch in which that is filled anew gives another name to both.
func (l *Dialect) pageName(s feed.State, n uint64) string {
	next := n*DialectPage/uint64(s.ListSize) + 1
	return l.Prefix + listLog(s, next) + "-" + strconv.FormatUint(n, 10) + l.Suffix
}

// number returns the number in the name of a page. Only pageName can say whether a set has a
// page of that name.
func (l *Dialect) number(name string) (n uint64, ok bool) {
	rest, begins := strings.CutPrefix(name, l.Prefix)
	rest, ends := strings.CutSuffix(rest, l.Suffix)
	_, number, hasTwo := strings.Cut(rest, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	return n, begins && ends && hasTwo && err == nil && n > 0
}

// dialect returns what plans a document of one of the server's dialects, or nil if none of
// them has a document of that name.
func (d *Server) dialect(name string) planner {
	for _, l := range d.opts.Dialects {
		if name == l.Top {
			return func(ctx context.Context, s feed.State) (*document, error) { return d.top(ctx, s, l) }
		}
		if n, ok := l.number(name); ok {
			return func(ctx context.Context, s feed.State) (*document, error) { return d.dialectPage(ctx, s, l, name, n) }
		}
	}
	return nil
}

// InDialect reports whether a document of that name would be one of a Dialect.
func (d *Server) InDialect(name string) bool { return d.dialect(name) != nil }

// top returns the document that clients of a dialect begin at.
func (d *Server) top(ctx context.Context, s feed.State, l *Dialect) (*document, error) {
	all := pagesOf(s)
	p := &Page{
		Set: s.Set, Title: s.Title, Self: d.base.Document(s.Set, l.Top), Top: d.base.Document(s.Set, l.Top),
		Begin: s.Begin, Until: max(s.Head.Micros, s.Begin),
	}
	after := s.Head.Position
	if all.newest >= all.oldest {
		p.Total = s.Head.Position - max(s.Floor.Position, (all.oldest-1)*DialectPage)
		p.First, p.Last = d.base.Document(s.Set, l.pageName(s, all.oldest)), d.base.Document(s.Set, l.pageName(s, all.newest))
	}
	if l.Recent {
		shown := max(all.newest, 2) - 1 // the first page that the top repeats
		after = max(s.Floor.Position, (shown-1)*DialectPage)
		if shown > all.oldest {
			p.Prev = d.base.Document(s.Set, l.pageName(s, shown-1))
		}
	}
	if l.Topic != nil {
		p.Hub = d.base.Hub()
	}
	doc := d.dialectDocument(s, l, p, after, s.Head)
	doc.tag = d.tag(doc.tag, history(s))
	if l.Topic != nil {
		doc.link = d.base.Link(l.Topic(s.Set))
	}
	return doc, nil
}

// dialectPage returns page n of a dialect.
func (d *Server) dialectPage(ctx context.Context, s feed.State, l *Dialect, name string, n uint64) (*document, error) {
	all := pagesOf(s)
	switch {
	case l.pageName(s, n) != name || n > all.newest:
		return nil, notFound("there is no such page; " + d.base.Document(s.Set, l.Top) + " names those that there are")
	case n < all.oldest:
		return nil, fmt.Errorf("page %d of set %q: %w", n, s.Set, feed.ErrGone)
	}
	last, closed := s.Head, n < all.newest
	if closed {
		var err error
		if last, err = d.at(ctx, s.Set, n*DialectPage); err != nil {
			return nil, err
		}
	}
	after := max(s.Floor.Position, (n-1)*DialectPage)
	p := &Page{
		Set: s.Set, Number: n, Closed: closed, Self: d.base.Document(s.Set, name), Top: d.base.Document(s.Set, l.Top),
		Index: after, Begin: s.Begin, Until: last.Micros,
	}
	if n > 1 { // also if retention has removed it: a page never changes
		p.Prev = d.base.Document(s.Set, l.pageName(s, n-1))
	}
	if closed {
		p.Next = d.base.Document(s.Set, l.pageName(s, n+1))
	}
	doc := d.dialectDocument(s, l, p, after, last)
	if doc.closed = closed; closed { // else retention, and another title, change the document too
		doc.modified = last.Micros
	}
	return doc, nil
}

// dialectDocument returns the document of a page, with the entries from behind a position up
// to last.
func (d *Server) dialectDocument(s feed.State, l *Dialect, p *Page, after uint64, last feed.Cursor) *document {
	return &document{
		tag:       d.tag("dialect", l.Top, after, last, fmt.Sprintf("%+v", *p)), // names of pages say which log is meant
		keep:      d.keep(last.Position - after),
		mediaType: l.MediaType,
		write: func(ctx context.Context, w io.Writer) error {
			begin, err := d.at(ctx, s.Set, after)
			if err != nil {
				return err
			}
			return d.writeDialect(ctx, w, l, p, begin, last)
		},
	}
}

// writeDialect writes a whole document of a dialect. If the log no longer has exactly the
// entries behind after up to last, it returns an error, and never writes a document that
// looks complete.
func (d *Server) writeDialect(ctx context.Context, w io.Writer, l *Dialect, p *Page, after, last feed.Cursor) error {
	entries := d.entries
	if l.NewestFirst {
		entries = d.entriesBack
	}
	page := l.Writer(p)
	buf := page.Head(make([]byte, 0, writePage+4<<10))
	first := true
	for some, err := range entries(ctx, p.Set, after, last) {
		if err != nil {
			return err
		}
		for i := range some {
			buf, first = page.Entry(buf, &some[i], first), false
			if len(buf) >= writePage {
				if _, err := w.Write(buf); err != nil {
					return err
				}
				buf = buf[:0]
			}
		}
	}
	_, err := w.Write(page.Tail(buf))
	return err
}

// entriesBack is entries, from the newest to the oldest.
func (d *Server) entriesBack(ctx context.Context, set string, after, last feed.Cursor) iter.Seq2[[]feed.Entry, error] {
	return func(yield func([]feed.Entry, error) bool) {
		for last != after {
			from := after
			if last.Position-after.Position > readPage {
				var err error
				if from, err = d.at(ctx, set, last.Position-readPage); err != nil {
					yield(nil, err)
					return
				}
			}
			page := make([]feed.Entry, 0, last.Position-from.Position)
			for some, err := range d.entries(ctx, set, from, last) {
				if err != nil {
					yield(nil, err)
					return
				}
				page = append(page, some...)
			}
			slices.Reverse(page)
			if !yield(page, nil) {
				return
			}
			last = from
		}
	}
}
