package documents

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/dialect"
	"github.com/rshub/rshub/resourcesync"
)

// inDialect returns the planner of the document of another standard with the given name, or nil if there
// is none.
func (d *Server) inDialect(name string) planner {
	for _, f := range d.opts.Dialects {
		if name == f.Newest {
			return func(ctx context.Context, s feed.State) (*document, error) { return d.newest(ctx, s, f, nil) }
		}
		if page, ok := f.ParsePage(name); ok {
			return func(ctx context.Context, s feed.State) (*document, error) { return d.page(ctx, s, f, page) }
		}
	}
	return nil
}

// InDialect reports whether name is the name of a document of another standard.
func (d *Server) InDialect(name string) bool { return d.inDialect(name) != nil }

// minRecent is the minimum number of changes of the newest document, unless a Change List has fewer.
// Clients that do not follow pages poll it, so it must not become empty with each new list.
const minRecent = 1_000

// newest returns the newest document of a form: an overview of its pages, or the newest changes. values
// are those of the parameter after, a cursor. With it, the document has the changes after the cursor up
// to the end of the Change List in which they start.
func (d *Server) newest(ctx context.Context, s feed.State, f *dialect.Form, values []string) (*document, error) {
	k := uint64(s.ListSize)
	_, open := s.Lists()
	p := d.newPage(s, f)
	p.URL, p.Title, p.Last = p.Newest, cmp.Or(s.Title, s.Set), s.Head
	if f.Overview != nil {
		return d.overview(ctx, s, f, p)
	}
	start := max(s.Floor.Position, min((open-1)*k, s.Head.Position-min(s.Head.Position, k, minRecent)))
	if len(values) > 0 {
		after, err := d.parseAfter(ctx, s, values)
		if err != nil {
			return nil, err
		}
		start = after.Position
		p.URL += "?after=" + after.String()
		if end := (start/k + 1) * k; end < s.Head.Position {
			if p.Last, err = d.cursorAt(ctx, s.Set, end); err != nil {
				return nil, err
			}
		}
	}
	var err error
	if p.Prev, err = d.pageURL(ctx, s, f, (start+k-1)/k); err != nil {
		return nil, err
	}
	p.More = p.Newest + "?after=" + p.Last.String()
	doc := d.pageDocument(f, p, start, s.Begin, strconv.Quote(s.Title))
	if f.Begin != "" {
		doc.link = d.base.LinkIn(s.Set, f.Newest)
	}
	return doc, nil
}

// overview returns the newest document p of a form whose newest document only links to pages.
func (d *Server) overview(ctx context.Context, s feed.State, f *dialect.Form, p *dialect.Page) (*document, error) {
	oldest, final := s.Lists()
	if s.Head.Position == (final-1)*uint64(s.ListSize) && final > oldest {
		final-- // the open page is empty
	}
	var err error
	if p.First, err = d.pageURL(ctx, s, f, oldest); err != nil {
		return nil, err
	}
	if p.Final, err = d.pageURL(ctx, s, f, final); err != nil {
		return nil, err
	}
	p.After = s.Floor
	return d.whole(f.Overview(nil, p), f.MediaType), nil
}

// serveAfter serves the newest document of a form with the parameter after. Such documents are not
// stored in plans, because there are as many as changes.
func (d *Server) serveAfter(w http.ResponseWriter, r *http.Request, set, name string, values []string) error {
	i := slices.IndexFunc(d.opts.Dialects, func(f *dialect.Form) bool { return f.Newest == name && f.Overview == nil })
	if i < 0 {
		return resourcesync.Invalidf("%s has no parameter after", name)
	}
	doc, err := d.planNow(r.Context(), set, func(ctx context.Context, s feed.State) (*document, error) {
		return d.newest(ctx, s, d.opts.Dialects[i], values)
	})
	if err != nil {
		return err
	}
	return d.answer(w, r, doc)
}

// parseAfter parses the values of the parameter after. It returns feed.ErrGone for a cursor that the log
// no longer has.
func (d *Server) parseAfter(ctx context.Context, s feed.State, values []string) (feed.Cursor, error) {
	after, err := feed.ParseCursor(values[0])
	switch {
	case err != nil || len(values) > 1:
		return after, resourcesync.Invalidf("after=%.80q: want one cursor, as in a link rel=next", strings.Join(values, ","))
	case after.Position > s.Head.Position:
		return after, fmt.Errorf("changes of set %q after %v: %w", s.Set, after, feed.ErrGone)
	}
	stored, err := d.cursorAt(ctx, s.Set, after.Position)
	if err == nil && stored != after {
		err = fmt.Errorf("changes of set %q after %v: %w", s.Set, after, feed.ErrGone)
	}
	return after, err
}

// page returns a page of a form: the changes of one Change List. text is the part of its name that
// the name of the list has, too. Unlike the list, the page may be empty, because the immutable page
// before it links to it.
func (d *Server) page(ctx context.Context, s feed.State, f *dialect.Form, text string) (*document, error) {
	none := notFound("no such page; " + d.base.Document(s.Set, f.Newest) + " links to the existing ones")
	id, ok := parseListID(text)
	if !ok || id.text(s) != text {
		return nil, none
	}
	p := d.newPage(s, f)
	p.URL, p.Title = d.listPageURL(s, f, id), s.Set
	var err error
	if p.Last, p.Closed, err = d.findList(ctx, s, id, none); err != nil {
		return nil, err
	}
	if p.Prev, err = d.pageURL(ctx, s, f, id.number-1); err != nil {
		return nil, err
	}
	if p.Closed { // the next page may be open, so that its closed name is not known yet
		p.Next = d.listPageURL(s, f, listID{id.number + 1, listFrom, p.Last.Micros})
	} else {
		p.More = p.Newest + "?after=" + p.Last.String()
	}
	doc := d.pageDocument(f, p, (id.number-1)*uint64(s.ListSize))
	if doc.immutable = id.end == listUntil; doc.immutable {
		doc.modified = id.micros
	}
	return doc, nil
}

// pageDocument returns the document of a page with the changes after the position start. more are further
// values that its bytes depend on.
func (d *Server) pageDocument(f *dialect.Form, p *dialect.Page, start uint64, more ...any) *document {
	return &document{
		tag:       d.tag(append(more, "dialect", p.URL, p.Prev, p.Next, start, p.Last)...),
		mediaType: f.MediaType,
		maxCached: d.cacheLimit(p.Last.Position - start),
		write: func(ctx context.Context, w io.Writer) error {
			after, err := d.cursorAt(ctx, p.Set, start)
			if err != nil {
				return err
			}
			page, first := *p, true
			page.After = after
			return writeEntries(w, f.Head(nil, &page), d.entries(ctx, p.Set, after, p.Last), func(dst []byte, e *feed.Entry) []byte {
				dst = f.Entry(dst, &page, e, first)
				first = false
				return dst
			}, f.Tail(nil, &page))
		},
	}
}

// newPage returns a page with the fields that all pages of a form of a set share.
func (d *Server) newPage(s feed.State, f *dialect.Form) *dialect.Page {
	return &dialect.Page{Base: d.base, Set: s.Set, Topic: d.base.Topic(s.Set), Newest: d.base.Document(s.Set, f.Newest)}
}

// pageURL returns the current URL of page n, or "" for page 0.
func (d *Server) pageURL(ctx context.Context, s feed.State, f *dialect.Form, n uint64) (string, error) {
	if n == 0 {
		return "", nil
	}
	id, err := d.listID(ctx, s, n)
	return d.listPageURL(s, f, id), err
}

// listPageURL returns the URL of the page of a list.
func (d *Server) listPageURL(s feed.State, f *dialect.Form, id listID) string {
	return d.base.Document(s.Set, f.PageName(id.text(s)))
}
