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

	"github.com/rshub/rshub/dialect"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// inDialect returns what plans the document of another standard that has a name; nil: no
// standard has such a document.
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

// InDialect reports whether a document of a set is one of another standard.
func (d *Server) InDialect(name string) bool { return d.inDialect(name) != nil }

// recent is how many changes the newest document has at least, or as many as a Change List if
// that is less: clients that know no pages poll it, so it must not begin anew with each list.
const recent = 1_000

// newest returns the newest document of a form: an overview of its pages, or the newest
// changes. values are those of the parameter after, a cursor. With it, the document has the
// changes behind the cursor, up to the end of the Change List in which they begin.
func (d *Server) newest(ctx context.Context, s feed.State, f *dialect.Form, values []string) (*document, error) {
	k := uint64(s.ListSize)
	oldest, open := s.Lists()
	final := open
	if s.Head.Position == (open-1)*k && open > oldest {
		final-- // the open page has no changes yet
	}
	p := d.pageOf(s, f)
	p.URL, p.Title, p.Last = p.Newest, cmp.Or(s.Title, s.Set), s.Head
	p.First, p.Final = d.pageURL(s, f, oldest), d.pageURL(s, f, final)
	if f.Overview != nil {
		p.After = s.Floor
		return d.whole(f.Overview(nil, p), f.MediaType), nil
	}
	start := max(s.Floor.Position, min((open-1)*k, s.Head.Position-min(s.Head.Position, k, recent)))
	if len(values) > 0 {
		after, err := d.parseAfter(ctx, s, values)
		if err != nil {
			return nil, err
		}
		start = after.Position
		p.URL += "?after=" + after.String()
		if end := (start/k + 1) * k; end < s.Head.Position {
			if p.Last, err = d.at(ctx, s.Set, end); err != nil {
				return nil, err
			}
		}
	}
	if before := (start + k - 1) / k; before > 0 {
		p.Prev = d.pageURL(s, f, before)
	}
	p.More = p.Newest + "?after=" + p.Last.String()
	doc := d.written(f, p, start, history(s), strconv.Quote(s.Title))
	if f.Begin != "" {
		doc.link = d.base.LinkIn(s.Set, f.Newest)
	}
	return doc, nil
}

// serveAfter answers a request for the newest document of a form, with the parameter after. Such
// documents are not kept for the case that the log cannot be reached: there are as many as changes.
func (d *Server) serveAfter(w http.ResponseWriter, r *http.Request, set, name string, values []string) error {
	i := slices.IndexFunc(d.opts.Dialects, func(f *dialect.Form) bool { return f.Newest == name && f.Overview == nil })
	if i < 0 {
		return resourcesync.Invalid("%s has no parameter after", name)
	}
	doc, err := d.planNow(r.Context(), set, func(ctx context.Context, s feed.State) (*document, error) {
		return d.newest(ctx, s, d.opts.Dialects[i], values)
	})
	if err != nil {
		return err
	}
	return d.answer(w, r, doc)
}

// parseAfter reads the values of the parameter after. It returns feed.ErrGone for a cursor
// that the log does not have any more.
func (d *Server) parseAfter(ctx context.Context, s feed.State, values []string) (feed.Cursor, error) {
	after, err := feed.ParseCursor(values[0])
	switch {
	case err != nil || len(values) > 1:
		return after, resourcesync.Invalid("after=%.80q: it is one cursor, as a link rel=next has it", strings.Join(values, ","))
	case after.Position > s.Head.Position:
		return after, fmt.Errorf("changes of set %q after %v: %w", s.Set, after, feed.ErrGone)
	}
	had, err := d.at(ctx, s.Set, after.Position)
	if err == nil && had != after {
		err = fmt.Errorf("changes of set %q after %v: %w", s.Set, after, feed.ErrGone)
	}
	return after, err
}

// page returns a page of a form: the changes of one Change List. text is what its name says of
// it. It differs from the list in that it may have no changes: what leads to it is in a page
// whose bytes never change, and which cannot know.
func (d *Server) page(ctx context.Context, s feed.State, f *dialect.Form, text string) (*document, error) {
	oldest, open := s.Lists()
	k := uint64(s.ListSize)
	n, err := strconv.ParseUint(text[strings.LastIndexByte(text, '-')+1:], 10, 64)
	switch {
	case err != nil || n == 0 || n > open || pageText(s, n) != text:
		return nil, notFound("there is no such page; " + d.base.Document(s.Set, f.Newest) + " leads to those that there are")
	case n < oldest:
		return nil, fmt.Errorf("page %d of %s of set %q: %w", n, f.Newest, s.Set, feed.ErrGone)
	}
	p := d.pageOf(s, f)
	p.URL, p.Title, p.Last, p.Closed = d.pageURL(s, f, n), s.Set, s.Head, n < open
	if n > 1 {
		p.Prev = d.pageURL(s, f, n-1)
	}
	if p.Closed {
		p.Next = d.pageURL(s, f, n+1)
		if p.Last, err = d.at(ctx, s.Set, n*k); err != nil {
			return nil, err
		}
	} else {
		p.More = p.Newest + "?after=" + p.Last.String()
	}
	doc := d.written(f, p, (n-1)*k)
	// The page names the next one. A loss of changes gives that another name, until it is
	// settled itself.
	if n+1 < open {
		end, err := d.at(ctx, s.Set, (n+1)*k)
		if err != nil {
			return nil, err
		}
		doc.closed, doc.modified = true, end.Micros
	}
	return doc, nil
}

// written returns the document of a page with the changes after the position start. more is
// what else its bytes depend on.
func (d *Server) written(f *dialect.Form, p *dialect.Page, start uint64, more ...any) *document {
	return &document{
		tag:       d.tag(append(more, "dialect", p.URL, p.Prev, p.Next, start, p.Last)...),
		mediaType: f.MediaType,
		keep:      d.keep(p.Last.Position - start),
		write: func(ctx context.Context, w io.Writer) error {
			after, err := d.at(ctx, p.Set, start)
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

// pageOf returns what every page of a form of a set has.
func (d *Server) pageOf(s feed.State, f *dialect.Form) *dialect.Page {
	return &dialect.Page{Base: d.base, Set: s.Set, Topic: d.base.Topic(s.Set), Newest: d.base.Document(s.Set, f.Newest)}
}

// pageText returns what the name of page n says of it: like the name of Change List n, it
// never means two different pages.
func pageText(s feed.State, n uint64) string {
	return listLog(s, n) + "-" + strconv.FormatUint(n, 10)
}

func (d *Server) pageURL(s feed.State, f *dialect.Form, n uint64) string {
	return d.base.Document(s.Set, f.PageName(pageText(s, n)))
}
