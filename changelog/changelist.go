package changelog

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

const (
	readPage  = 5_000    // entries asked of the log at a time
	writePage = 64 << 10 // bytes written at a time

	// Who keeps up asks ?from= for the head, like everybody, and gets little. Who
	// gets much asks for a time of its own: kept, it would only drive out the
	// lists, and held for a slow client it would cost memory for each of them.
	keepFrom = 256 << 10
)

// listName names Change List n of the log that began at begin. A log that was
// made anew under the same name has another beginning, so a name never means
// two lists.
func listName(begin int64, n uint64) string {
	return fmt.Sprintf("changelist-%d-%d.xml", begin, n)
}

// parseListName reads what listName wrote, and nothing else: one document has
// one URL.
func parseListName(name string) (begin int64, n uint64, ok bool) {
	rest, ok := strings.CutPrefix(name, "changelist-")
	rest, isXML := strings.CutSuffix(rest, ".xml")
	b, m, hasTwo := strings.Cut(rest, "-")
	if !ok || !isXML || !hasTwo {
		return 0, 0, false
	}
	begin, berr := strconv.ParseInt(b, 10, 64)
	n, nerr := strconv.ParseUint(m, 10, 64)
	ok = berr == nil && nerr == nil && n > 0 && listName(begin, n) == name
	return begin, n, ok
}

// rolling is changelist.xml: always a urlset and always open, from the beginning
// of the list before the open one. Clients that know no other list poll it, so
// it must not begin anew when a list closes. It is never in the index.
func (d *Documents) rolling(_ context.Context, s State) (*document, error) {
	start := s.Floor.Position
	if _, open := s.Lists(); open > 1 {
		start = max(start, (open-2)*uint64(s.ListSize))
	}
	return &document{
		tag:      d.tag("changelist", s.Set, s.Begin, start, s.Head),
		modified: s.Head.Micros,
		keep:     d.opts.CacheBytes / 2,
		write: func(ctx context.Context, w io.Writer) error {
			after, err := d.at(ctx, s.Set, start)
			if err != nil {
				return err
			}
			return d.writeEntries(ctx, w, s.Set, d.listHeader(s.Set, after, s.Head), after, s.Head)
		},
	}, nil
}

// numbered is Change List n. It holds the positions (n-1)·K+1 to n·K, so that
// every hub cuts the same lists. From the last of them on it is closed, and its
// bytes never change again.
//
// The newest list is open. Before its first entry it does not exist: a urlset
// without a url breaks the sitemap schema, and who has read all closed lists
// finds the new one in the index, as the standard has it (core section 12.1).
func (d *Documents) numbered(ctx context.Context, s State, begin int64, n uint64) (*document, error) {
	oldest, open := s.Lists()
	k := uint64(s.ListSize)
	switch {
	case begin != s.Begin || n > open || (n-1)*k >= s.Head.Position:
		return nil, notFound("there is no such Change List; " + d.ChangeListIndex(s.Set) + " names those that there are")
	case n < oldest:
		return nil, fmt.Errorf("change list %d of set %q: %w", n, s.Set, ErrGone)
	}
	last, closed := s.Head, n < open
	if closed {
		var err error
		if last, err = d.at(ctx, s.Set, n*k); err != nil {
			return nil, err
		}
	}
	return &document{
		tag:      d.tag("changelist", s.Set, s.Begin, n, closed, last),
		modified: last.Micros,
		closed:   closed,
		keep:     d.opts.CacheBytes / 2,
		write: func(ctx context.Context, w io.Writer) error {
			after, err := d.at(ctx, s.Set, (n-1)*k)
			if err != nil {
				return err
			}
			h := d.listHeader(s.Set, after, last)
			if closed {
				h.Until = last.Time()
			}
			return d.writeEntries(ctx, w, s.Set, h, after, last)
		},
	}, nil
}

// serveFrom answers changelist.xml?from=DATETIME.
func (d *Documents) serveFrom(w http.ResponseWriter, r *http.Request, set string, values []string) error {
	from, err := resourcesync.ParseTime(strings.ReplaceAll(values[0], " ", "+")) // a plus that was not escaped
	if err != nil {
		return Invalid("from: %v", err)
	}
	if len(values) > 1 {
		return Invalid("from is given %d times", len(values))
	}
	s, err := d.log.State(r.Context(), set)
	if err != nil {
		return fmt.Errorf("state of set %q: %w", set, err)
	}
	micros := from.UnixMicro() // finer digits are cut off: rather an entry twice than one missed
	switch {
	case micros < s.Floor.Micros, micros == s.Floor.Micros && s.Floor.Position > 0:
		return fmt.Errorf("changes of set %q since %v: %w", set, from, ErrGone) // as Seek has it, also for a 304
	case future(from, s.Head, d.opts.Now(), d.opts.ClockSkew):
		return Invalid("from=%s lies in the future", shorten(values[0]))
	}
	return d.answer(w, r, d.since(s, micros))
}

// since is the Change List of the changes with datetime >= micros. It is open,
// unless more than 50,000 follow: then it ends after as many with until, the
// datetime of its last entry, and names the rest as rel=next: ?from= that until.
// The next list repeats that one entry, as from is inclusive; none is missing.
func (d *Documents) since(s State, micros int64) *document {
	from := Cursor{Micros: micros}.Time()
	return &document{
		// Whether it is cut, and where, follows from the log up to its head.
		tag:      d.tag("changelist from", s.Set, s.Begin, micros, s.Head),
		modified: s.Head.Micros,
		keep:     min(keepFrom, d.opts.CacheBytes/2),
		write: func(ctx context.Context, w io.Writer) error {
			after, err := d.log.Seek(ctx, s.Set, micros)
			if err != nil {
				return fmt.Errorf("seek in set %q: %w", s.Set, err)
			}
			if after.Position > s.Head.Position {
				return moved()
			}
			last := s.Head
			cut := last.Position-after.Position > maxItems
			if cut {
				if last, err = d.at(ctx, s.Set, after.Position+maxItems); err != nil {
					return err
				}
			}
			h := d.listHeader(s.Set, after, last)
			h.From = from
			if cut {
				h.Until = last.Time()
				next := d.ChangeList(s.Set) + "?from=" + url.QueryEscape(string(resourcesync.AppendTimeMicro(nil, last.Micros)))
				h.Links = append(h.Links, resourcesync.Link{Rel: "next", Href: next})
			}
			return d.writeEntries(ctx, w, s.Set, h, after, last)
		},
	}
}

// listHeader returns the header of an open Change List (core section 12.1). Its
// h:cursor is where to follow on by push.
func (d *Documents) listHeader(set string, after, last Cursor) *resourcesync.Header {
	return &resourcesync.Header{
		Capability: resourcesync.ChangeList,
		From:       after.Time(),
		Links: []resourcesync.Link{
			{Rel: "up", Href: d.CapabilityList(set)},
			{Rel: "index", Href: d.ChangeListIndex(set)},
		},
		Attrs: placeAttrs(after, last),
	}
}

// writeEntries writes a whole document: h and the entries behind after up to
// last. Its bytes, and the sizes of its writes, follow from these alone, not
// from how the log pages. Where the log no longer has exactly these entries it
// returns an error, never a short document.
func (d *Documents) writeEntries(ctx context.Context, w io.Writer, set string, h *resourcesync.Header, after, last Cursor) error {
	xml := NewXMLWriter()
	buf := xml.AppendHeader(make([]byte, 0, writePage+4<<10), h)
	for after.Position < last.Position {
		b, err := d.log.Since(ctx, set, after, int(min(readPage, last.Position-after.Position)))
		if err != nil {
			return fmt.Errorf("set %q after %v: %w", set, after, err)
		}
		if b.After != after || len(b.Entries) == 0 {
			return moved()
		}
		for i := range b.Entries {
			buf = xml.AppendEntry(buf, &b.Entries[i])
			if len(buf) >= writePage {
				if _, err := w.Write(buf); err != nil {
					return err
				}
				buf = buf[:0]
			}
		}
		after = b.Entries[len(b.Entries)-1].Cursor
	}
	if after != last {
		return moved()
	}
	_, err := w.Write(resourcesync.AppendXMLFooter(buf, h))
	return err
}
