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
	readPage  = 1_000    // entries read from the log at a time
	writePage = 64 << 10 // bytes written at a time

	// maxCachedFrom is the maximum size of a cached body of ?from=. Clients that are up to date all
	// request the same recent time and get a small body. A client that gets a large one uses a time of
	// its own: its body would only evict the lists, and use memory for each slow client.
	maxCachedFrom = 256 << 10
)

// withLastmod returns the unique name of a document, which includes the meaning of lastmod unless it is
// the default.
func withLastmod(name string, lastmod feed.Lastmod) string {
	if lastmod != feed.LastmodSource {
		name += "-" + string(lastmod)
	}
	return name + ".xml"
}

// modified returns the field modified of a document whose newest entry has the datetime micros. It is 0
// if the description sets the meaning of lastmod, which changes the bytes at an unknown time.
func modified(s feed.State, micros int64) int64 {
	if s.Lastmod != feed.LastmodSource {
		return 0
	}
	return micros
}

// rolling returns changelist.xml. It is always a urlset and always open, and starts with the list before
// the open one. Clients that know no other list poll it, so it must not become empty when a list closes.
// The index does not include it.
func (d *Server) rolling(_ context.Context, s feed.State) (*document, error) {
	start := s.Floor.Position
	if _, open := s.Lists(); open > 1 {
		start = max(start, (open-2)*uint64(s.ListSize))
	}
	return &document{
		tag:       d.tag("changelist", s.Set, s.Begin, start, s.Head, s.Lastmod),
		modified:  modified(s, s.Head.Micros),
		maxCached: d.cacheLimit(s.Head.Position - start),
		write: func(ctx context.Context, w io.Writer) error {
			after, err := d.cursorAt(ctx, s.Set, start)
			if err != nil {
				return err
			}
			return writeChanges(w, s.Lastmod, d.listHeader(s.Set, after, s.Head), d.entries(ctx, s.Set, after, s.Head))
		},
	}, nil
}

// numbered returns a Change List. List n has the positions (n-1)·K+1 to n·K, so that all hubs split the
// log into the same lists. With its last position the list is closed and gets another name, under which
// its bytes never change. Its previous name stays valid.
//
// The newest list is open. It does not exist before its first entry, because a urlset without a url
// violates the sitemap schema. A client that has read all closed lists finds the new one in the index,
// as the standard requires (core section 12.1).
func (d *Server) numbered(ctx context.Context, s feed.State, name string, id listID) (*document, error) {
	none := notFound("no such Change List; " + d.base.ChangeListIndex(s.Set) + " lists the existing ones")
	start := (id.number - 1) * uint64(s.ListSize)
	if id.name(s) != name || start >= s.Head.Position {
		return nil, none
	}
	last, closed, err := d.findList(ctx, s, id, none)
	if err != nil {
		return nil, err
	}
	return &document{
		tag:       d.tag("changelist", s.Set, s.Begin, id.number, closed, last, s.Lastmod),
		modified:  last.Micros,
		immutable: id.end == listUntil,
		maxCached: d.cacheLimit(last.Position - start),
		write: func(ctx context.Context, w io.Writer) error {
			after, err := d.cursorAt(ctx, s.Set, start)
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

// serveFrom serves changelist.xml?from=DATETIME. values are the values of from.
func (d *Server) serveFrom(w http.ResponseWriter, r *http.Request, set string, values []string) error {
	from, err := resourcesync.ParseTime(strings.ReplaceAll(values[0], " ", "+")) // an unescaped plus sign is decoded as a space
	if err != nil {
		return resourcesync.Invalidf("from: %v", err)
	}
	if len(values) > 1 {
		return resourcesync.Invalidf("got %d values of from, want one", len(values))
	}
	s, err := d.log.State(r.Context(), set)
	if err != nil {
		return fmt.Errorf("state of set %q: %w", set, err)
	}
	micros := from.UnixMicro() // truncated: a client may get an entry twice, but misses none
	switch {
	case micros < s.Floor.Micros, micros == s.Floor.Micros && s.Floor.Position > 0:
		return fmt.Errorf("changes of set %q since %v: %w", set, from, feed.ErrGone) // as Seek returns; checked here so that it applies to a 304, too
	case changelog.Future(from, s.Head, d.opts.Now(), d.opts.ClockSkew):
		return resourcesync.Invalidf("from: got %s, want no time in the future", resourcesync.Shorten(values[0]))
	}
	return d.answer(w, r, d.since(s, micros))
}

// since returns the Change List of the changes whose datetime is at least micros. It is open, unless
// there are more than a document may have. Then its until is the datetime of its last entry, and a link
// rel=next leads to the rest: ?from= with that until. Because from is inclusive, the next list repeats
// one entry, and none is missing.
func (d *Server) since(s feed.State, micros int64) *document {
	from := feed.Cursor{Micros: micros}.Time()
	var after, last feed.Cursor // set by the first write, which reuses them if the document is written again
	return &document{
		// The head determines whether and where the list is cut.
		tag:       d.tag("changelist from", s.Set, s.Begin, micros, s.Head, s.Lastmod),
		modified:  modified(s, s.Head.Micros),
		maxCached: min(maxCachedFrom, d.opts.CacheBytes/2),
		write: func(ctx context.Context, w io.Writer) error {
			entries := d.entries(ctx, s.Set, after, last)
			if last.IsZero() {
				var err error
				if after, err = d.log.Seek(ctx, s.Set, micros); err != nil {
					return fmt.Errorf("seek in set %q: %w", s.Set, err)
				}
				if after.Position > s.Head.Position {
					return errMoved()
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

// maxBytes is the maximum size of a document in bytes (core section 7).
const maxBytes = 50 << 20

// reach returns the last entry of a document that starts after a cursor: head, or an earlier entry if
// there are more than maxItems entries or maxBytes bytes. The document has at least two entries, because
// the first one may be a repeat. reach also returns the entries, which it holds in memory if they are
// small and otherwise reads again.
func (d *Server) reach(ctx context.Context, set string, after, head feed.Cursor) (last feed.Cursor, entries iter.Seq2[*feed.Entry, error], err error) {
	var small []*feed.Entry
	last, n, size := after, 0, 0
	for e, err := range d.entries(ctx, set, after, head) {
		if err != nil {
			return last, nil, err
		}
		size += e.Change.Size()
		if n++; n > maxItems || n > 2 && size > maxBytes {
			break
		}
		if last = e.Cursor; size <= maxCachedFrom {
			small = append(small, e)
		}
	}
	if size > maxCachedFrom {
		return last, d.entries(ctx, set, after, last), nil
	}
	return last, each(small), nil
}

// each returns an iterator over entries.
func each(entries []*feed.Entry) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// listHeader returns the header of an open Change List (core section 12.1). Its attribute h:cursor is
// the cursor at which a client can start to follow by push.
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

// entries yields the entries from after, exclusive, to last, inclusive. If the log no longer has exactly
// these entries, the last value is an error.
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
				yield(nil, errMoved())
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
			yield(nil, errMoved())
		}
	}
}

// writeChanges writes a Change List.
func writeChanges(w io.Writer, lastmod feed.Lastmod, h *resourcesync.Header, entries iter.Seq2[*feed.Entry, error]) error {
	xml := feed.NewListWriter(lastmod)
	return writeList(w, xml, h, entries, xml.AppendEntry)
}

// writeList writes a document: h, and the entries encoded by appendEntry.
func writeList(w io.Writer, xml *feed.XMLWriter, h *resourcesync.Header, entries iter.Seq2[*feed.Entry, error], appendEntry func(dst []byte, e *feed.Entry) []byte) error {
	return writeEntries(w, xml.AppendHeader(nil, h), entries, appendEntry, resourcesync.AppendXMLFooter(nil, h))
}

// writeEntries writes a document: head, the entries encoded by appendEntry, and tail. Its bytes and the
// sizes of its writes depend only on these, not on the page size of the log. It stops at an error of
// entries, so that an incomplete document never looks complete.
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
