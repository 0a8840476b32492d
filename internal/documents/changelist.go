package documents

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

const (
	readPage  = 1_000    // entries that are read from the log at a time
	writePage = 64 << 10 // bytes that are written at a time

	// keepFrom bounds the bodies of ?from= that are kept. Clients that are up to
	// date all ask for the same recent time and get little. A client that gets much
	// asks for a time of its own: its body would only drive the lists out of the
	// cache, and in memory it would be held for each slow client.
	keepFrom = 256 << 10
)

// withLastmod returns the name of a document that no other document ever has, also when
// lastmod comes to mean something else.
func withLastmod(name string, lastmod feed.Lastmod) string {
	if lastmod != feed.LastmodSource {
		name += "-" + string(lastmod)
	}
	return name + ".xml"
}

// modified returns the member modified of a document whose newest entry has the datetime
// micros. A description may change what lastmod is, and so the bytes of the document, at a
// time that is not known.
func modified(s feed.State, micros int64) int64 {
	if s.Lastmod != feed.LastmodSource {
		return 0
	}
	return micros
}

// rolling returns changelist.xml. It is always a urlset and always open, and
// begins with the list before the open one. Clients that know no other list
// poll it, so it must not begin anew when a list closes. The index never names
// it.
func (d *Server) rolling(_ context.Context, s feed.State) (*document, error) {
	start := s.Floor.Position
	if _, open := s.Lists(); open > 1 {
		start = max(start, (open-2)*uint64(s.ListSize))
	}
	return &document{
		tag:      d.tag("changelist", s.Set, s.Begin, start, s.Head, s.Lastmod),
		modified: modified(s, s.Head.Micros),
		keep:     d.keep(s.Head.Position - start),
		write: func(ctx context.Context, w io.Writer) error {
			after, err := d.at(ctx, s.Set, start)
			if err != nil {
				return err
			}
			return writeChanges(w, s.Lastmod, d.listHeader(s.Set, after, s.Head), d.entries(ctx, s.Set, after, s.Head))
		},
	}, nil
}

// numbered returns a Change List. List n holds the positions (n-1)·K+1 to n·K, so
// that every hub cuts the same lists. With its last position it is closed, and gets
// another name, by which its bytes never change again. A client that has only the
// name from before still gets the list.
//
// The newest list is open. Before its first entry it does not exist, because a
// urlset without a url breaks the sitemap schema. A client that has read all
// closed lists finds the new list in the index, as the standard has it (core
// section 12.1).
func (d *Server) numbered(ctx context.Context, s feed.State, name string, id listID) (*document, error) {
	none := notFound("there is no such Change List; " + d.base.ChangeListIndex(s.Set) + " names those that there are")
	start := (id.number - 1) * uint64(s.ListSize)
	if id.name(s) != name || start >= s.Head.Position {
		return nil, none
	}
	last, closed, err := d.find(ctx, s, id, none)
	if err != nil {
		return nil, err
	}
	return &document{
		tag:       d.tag("changelist", s.Set, s.Begin, id.number, closed, last, s.Lastmod),
		modified:  last.Micros,
		immutable: id.end == listUntil,
		keep:      d.keep(last.Position - start),
		write: func(ctx context.Context, w io.Writer) error {
			after, err := d.at(ctx, s.Set, start)
			if err != nil {
				return err
			}
			h := d.listHeader(s.Set, after, last)
			if closed {
				h.Until = last.Time()
			}
			return writeChanges(w, s.Lastmod, h, d.entries(ctx, s.Set, after, last))
		},
	}, nil
}

// serveFrom answers changelist.xml?from=DATETIME. values are the values of
// from.
func (d *Server) serveFrom(w http.ResponseWriter, r *http.Request, set string, values []string) error {
	from, err := resourcesync.ParseTime(strings.ReplaceAll(values[0], " ", "+")) // a plus sign that the client did not escape arrives as a space
	if err != nil {
		return resourcesync.Invalidf("from: %v", err)
	}
	if len(values) > 1 {
		return resourcesync.Invalidf("from is given %d times", len(values))
	}
	s, err := d.log.State(r.Context(), set)
	if err != nil {
		return fmt.Errorf("state of set %q: %w", set, err)
	}
	micros := from.UnixMicro() // finer digits are cut off: a client may get an entry twice, but misses none
	switch {
	case micros < s.Floor.Micros, micros == s.Floor.Micros && s.Floor.Position > 0:
		return fmt.Errorf("changes of set %q since %v: %w", set, from, feed.ErrGone) // as Seek says; checked here so that it is true of a 304 too
	case changelog.Future(from, s.Head, d.opts.Now(), d.opts.ClockSkew):
		return resourcesync.Invalidf("from=%s lies in the future", resourcesync.Shorten(values[0]))
	}
	return d.answer(w, r, d.since(s, micros))
}

// since returns the Change List of the changes whose datetime is at least
// micros. It is open, unless more follow than one document holds. Then it ends
// after as many as that, and its until is the datetime of its last entry. A link
// rel=next names the rest: ?from= with that until. Because from is inclusive,
// the next list repeats that one entry, and none is missing.
func (d *Server) since(s feed.State, micros int64) *document {
	from := feed.Cursor{Micros: micros}.Time()
	var after, last feed.Cursor // known once the document was written for the first time, as far as it could be kept
	return &document{
		// Whether and where it is cut follows from the log up to its head.
		tag:      d.tag("changelist from", s.Set, s.Begin, micros, s.Head, s.Lastmod),
		modified: modified(s, s.Head.Micros),
		keep:     min(keepFrom, d.opts.CacheBytes/2),
		write: func(ctx context.Context, w io.Writer) error {
			entries := d.entries(ctx, s.Set, after, last)
			if last.IsZero() {
				var err error
				if after, err = d.log.Seek(ctx, s.Set, micros); err != nil {
					return fmt.Errorf("seek in set %q: %w", s.Set, err)
				}
				if after.Position > s.Head.Position {
					return moved()
				}
				if last, entries, err = d.reach(ctx, s.Set, after, s.Head); err != nil {
					return err
				}
			}
			cut := last != s.Head
			h := d.listHeader(s.Set, after, last)
			h.From = from
			if cut {
				h.Until = last.Time()
				next := d.base.ChangeList(s.Set) + "?from=" + url.QueryEscape(string(resourcesync.AppendTimeMicro(nil, last.Micros)))
				h.Links = append(h.Links, resourcesync.Link{Rel: "next", Href: next})
			}
			return writeChanges(w, s.Lastmod, h, entries)
		},
	}
}

// maxBytes is the standard's limit for the bytes of one document (core section 7).
const maxBytes = 50 << 20

// reach returns how far one document with the entries after a cursor goes: to head, or
// to an earlier entry if there are more than maxItems, or more than maxBytes. It has two
// entries at least, because the first of them may be a repeat. It also returns these
// entries. It keeps them if they are few, else they are read again.
func (d *Server) reach(ctx context.Context, set string, after, head feed.Cursor) (last feed.Cursor, entries iter.Seq2[*feed.Entry, error], err error) {
	var few []*feed.Entry
	last, n, size := after, 0, 0
	for e, err := range d.entries(ctx, set, after, head) {
		if err != nil {
			return last, nil, err
		}
		size += e.Change.Size()
		if n++; n > maxItems || n > 2 && size > maxBytes {
			break
		}
		if last = e.Cursor; size <= keepFrom {
			few = append(few, e)
		}
	}
	if size > keepFrom {
		return last, d.entries(ctx, set, after, last), nil
	}
	return last, each(few), nil
}

// each yields the entries.
func each(entries []*feed.Entry) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// listHeader returns the header of an open Change List (core section 12.1). Its
// attribute h:cursor is the cursor from which a client can follow by push.
func (d *Server) listHeader(set string, after, last feed.Cursor) *resourcesync.Header {
	return &resourcesync.Header{
		Capability: resourcesync.ChangeList,
		From:       after.Time(),
		Links: []resourcesync.Link{
			{Rel: "up", Href: d.base.CapabilityList(set)},
			{Rel: "index", Href: d.base.ChangeListIndex(set)},
		},
		Attrs: feed.CursorAttrs(after, last),
	}
}

// entries yields the entries after the cursor after up to last. If the log does not have
// exactly these entries any more, the last that it yields is an error.
func (d *Server) entries(ctx context.Context, set string, after, last feed.Cursor) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		at := after
		for at.Position < last.Position {
			b, err := d.log.Since(ctx, set, at, int(min(readPage, last.Position-at.Position)))
			switch {
			case err != nil:
				yield(nil, fmt.Errorf("set %q after %v: %w", set, at, err))
				return
			case b.After != at || len(b.Entries) == 0:
				yield(nil, moved())
				return
			}
			for i := range b.Entries {
				if !yield(&b.Entries[i], nil) {
					return
				}
			}
			at = b.Entries[len(b.Entries)-1].Cursor
		}
		if at != last {
			yield(nil, moved())
		}
	}
}

// writeChanges writes a whole document of changes.
func writeChanges(w io.Writer, lastmod feed.Lastmod, h *resourcesync.Header, entries iter.Seq2[*feed.Entry, error]) error {
	xml := feed.NewListWriter(lastmod)
	return writeList(w, xml, h, entries, xml.AppendEntry)
}

// writeList writes a whole document: h, and the entries as appendEntry appends them.
func writeList(w io.Writer, xml *feed.XMLWriter, h *resourcesync.Header, entries iter.Seq2[*feed.Entry, error], appendEntry func(dst []byte, e *feed.Entry) []byte) error {
	return writeEntries(w, xml.AppendHeader(nil, h), entries, appendEntry, resourcesync.AppendXMLFooter(nil, h))
}

// writeEntries writes a whole document: head, the entries as appendEntry appends them, and
// tail. Its bytes and the sizes of its writes depend only on these, not on how the log pages.
// An error of entries ends it, so it never writes a document that looks complete and is not.
func writeEntries(w io.Writer, head []byte, entries iter.Seq2[*feed.Entry, error], appendEntry func(dst []byte, e *feed.Entry) []byte, tail []byte) error {
	buf := append(make([]byte, 0, writePage+4<<10), head...)
	for e, err := range entries {
		if err != nil {
			return err
		}
		if buf = appendEntry(buf, e); len(buf) >= writePage {
			if _, err := w.Write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	_, err := w.Write(append(buf, tail...))
	return err
}
