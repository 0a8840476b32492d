package documents

import (
	"context"
	"io"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// index returns the Change List Index (core section 12.2) of the numbered lists, oldest first. The open
// list has no until. A list without entries is not included; see numbered.
//
// An index has at most 50,000 items, too. If there are more lists, it has the newest ones, and its from
// is the start of the first of them. Older lists are still served as long as the memory has them.
func (d *Server) index(ctx context.Context, s feed.State) (*document, error) {
	k := uint64(s.ListSize)
	oldest, open := s.Lists()
	hasEntries := s.Head.Position > (open-1)*k
	newest := open
	if !hasEntries {
		newest-- // the open list is empty; if there is no list at all, newest < oldest
	}
	if newest >= maxItems {
		oldest = max(oldest, newest-maxItems+1)
	}
	// The index, and so its ETag, changes when a list starts, closes or is removed, but not with each
	// entry.
	last, err := d.cursorAt(ctx, s.Set, (open-1)*k)
	if err != nil {
		return nil, err
	}
	return &document{
		// modified is 0, because retention removes lists and no datetime tells when.
		tag:       d.tag("index", s.Set, s.Begin, s.Floor, k, last, hasEntries, s.Lastmod),
		maxCached: min(d.opts.CacheBytes/2, 4<<10+int64(newest+1-oldest)*1<<10),
		write: func(ctx context.Context, w io.Writer) error {
			ends, err := d.boundaries(ctx, s, oldest-1, open-1)
			if err != nil {
				return err
			}
			if ends[len(ends)-1] != last {
				return errMoved()
			}
			h := &resourcesync.Header{
				Index:      true,
				Capability: resourcesync.ChangeList,
				From:       ends[0].Time(),
				Links:      []resourcesync.Link{{Rel: "up", Href: d.base.CapabilityList(s.Set)}},
			}
			ns := &resourcesync.Namespaces{Index: true, Micros: s.Lastmod != feed.LastmodSeconds}
			buf := resourcesync.AppendXMLHeader(nil, s.Lastmod.Header(h), ns)
			for n := oldest; n <= newest; n++ {
				after := ends[n-oldest]
				item, id := resourcesync.Item{From: s.Lastmod.RoundDown(after.Time())}, listID{n, listFrom, after.Micros}
				if n < open {
					last := ends[n-oldest+1]
					item.Until, id = s.Lastmod.RoundUp(last.Time()), listID{n, listUntil, last.Micros}
				}
				item.Loc = d.base.Document(s.Set, id.name(s))
				buf = resourcesync.AppendXMLItem(buf, &item, ns)
				if len(buf) >= writePage {
					if _, err := w.Write(buf); err != nil {
						return err
					}
					buf = buf[:0]
				}
			}
			_, err = w.Write(resourcesync.AppendXMLFooter(buf, h))
			return err
		},
	}, nil
}

// boundaries are cached cursors between the lists of a set. cursors[i] is the cursor of the last entry
// of list first+i, or the floor. They never change unless the log loses its tail.
type boundaries struct {
	begin   int64 // start of the log, which differs between logs of the same name
	first   uint64
	cursors []feed.Cursor // shared; only appended to
}

// boundaries returns the cursors at the ends of the lists from to to. It caches them, so that a long
// index costs only a few reads each time a list closes.
func (d *Server) boundaries(ctx context.Context, s feed.State, from, to uint64) ([]feed.Cursor, error) {
	k := uint64(s.ListSize)
	b, _ := d.bounds.Get(s.Set)
	cursors, err := d.validBoundaries(ctx, s, b, from, to)
	if err != nil {
		return nil, err
	}
	for n := from + uint64(len(cursors)); n <= to; n++ {
		c, err := d.cursorAt(ctx, s.Set, n*k)
		if err != nil {
			return nil, err
		}
		cursors = append(cursors, c)
	}
	d.bounds.Add(s.Set, boundaries{begin: s.Begin, first: from, cursors: cursors}, int64(16*len(cursors))+cachedOverhead)
	return cursors, nil
}

// validBoundaries returns the prefix of the boundaries from to to that is in b and still in the log. A
// log that lost its tail lost all entries up to its end, so if the newest boundary still exists, all
// older ones do, too.
func (d *Server) validBoundaries(ctx context.Context, s feed.State, b boundaries, from, to uint64) ([]feed.Cursor, error) {
	if b.begin != s.Begin || from < b.first || from >= b.first+uint64(len(b.cursors)) {
		return nil, nil
	}
	newest := min(to, b.first+uint64(len(b.cursors))-1)
	c, err := d.cursorAt(ctx, s.Set, newest*uint64(s.ListSize))
	if err != nil {
		return nil, err
	}
	if c != b.cursors[newest-b.first] {
		return nil, nil
	}
	n := newest - from + 1
	// Two requests may append to the slice concurrently. Without spare capacity, append copies it.
	return b.cursors[from-b.first:][:n:n], nil
}
