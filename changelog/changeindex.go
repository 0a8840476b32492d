package changelog

import (
	"context"
	"io"

	"github.com/rshub/rshub/resourcesync"
)

// index is the Change List Index (core section 12.2): the numbered lists in
// forward order, the newest without until while it is open. A list without
// entries is not in it, see numbered.
//
// An index too holds at most 50,000 entries. Of more lists it names the newest,
// and its from says so; the older ones are kept under their names as long as
// the memory has them.
func (d *Documents) index(ctx context.Context, s State) (*document, error) {
	k := uint64(s.ListSize)
	oldest, open := s.Lists()
	begun := s.Head.Position > (open-1)*k
	newest := open
	if !begun {
		newest-- // the open list has no entry yet; newest < oldest when there is no list at all
	}
	if newest >= maxItems {
		oldest = max(oldest, newest-maxItems+1)
	}
	// The index changes when a list begins, closes or is removed, not with each
	// entry, and so does its ETag.
	last, err := d.at(ctx, s.Set, (open-1)*k)
	if err != nil {
		return nil, err
	}
	return &document{
		// No modified: retention removes lists, and no datetime says when.
		tag:  d.tag("index", s.Set, s.Begin, s.Floor, k, last, begun),
		keep: d.opts.CacheBytes / 2,
		write: func(ctx context.Context, w io.Writer) error {
			ends, err := d.boundaries(ctx, s, oldest-1, open-1)
			if err != nil {
				return err
			}
			if ends[len(ends)-1] != last {
				return moved()
			}
			h := &resourcesync.Header{
				Index:      true,
				Capability: resourcesync.ChangeList,
				From:       ends[0].Time(),
				Links:      []resourcesync.Link{{Rel: "up", Href: d.CapabilityList(s.Set)}},
			}
			ns := &resourcesync.Namespaces{Index: true, Micros: true}
			buf := resourcesync.AppendXMLHeader(nil, h, ns)
			for n := oldest; n <= newest; n++ {
				var item resourcesync.Item
				item.Loc = d.url(s.Set, listName(s.Begin, n))
				item.From = ends[n-oldest].Time()
				if n < open {
					item.Until = ends[n-oldest+1].Time()
				}
				buf = resourcesync.AppendXMLItem(buf, &item, ns)
			}
			_, err = w.Write(resourcesync.AppendXMLFooter(buf, h))
			return err
		},
	}, nil
}

// boundaries are the cursors between a set's lists, as far as they were asked
// for: cursors[i] is that of the last entry of list first+i, or of the floor.
// They never change while the log keeps its tail.
type boundaries struct {
	begin   int64 // of the log
	first   uint64
	cursors []Cursor // grows at its end only, shared
}

// boundaries returns the cursors at the ends of the lists from to to. One that
// is known costs nothing, so that a long index costs a few reads each time a
// list closes.
func (d *Documents) boundaries(ctx context.Context, s State, from, to uint64) ([]Cursor, error) {
	k := uint64(s.ListSize)
	b, _ := d.bounds.get(s.Set)
	cursors, err := d.stillTrue(ctx, s, b, from, to)
	if err != nil {
		return nil, err
	}
	for n := from + uint64(len(cursors)); n <= to; n++ {
		c, err := d.at(ctx, s.Set, n*k)
		if err != nil {
			return nil, err
		}
		cursors = append(cursors, c)
	}
	d.bounds.add(s.Set, boundaries{begin: s.Begin, first: from, cursors: cursors}, int64(16*len(cursors))+cachedOverhead)
	return cursors, nil
}

// stillTrue returns what b knows of the boundaries from to to. A log that lost
// its tail lost a run of entries up to its end, so when the newest boundary is
// there, the older ones are too.
func (d *Documents) stillTrue(ctx context.Context, s State, b boundaries, from, to uint64) ([]Cursor, error) {
	if b.begin != s.Begin || from < b.first || from >= b.first+uint64(len(b.cursors)) {
		return nil, nil
	}
	newest := min(to, b.first+uint64(len(b.cursors))-1)
	c, err := d.at(ctx, s.Set, newest*uint64(s.ListSize))
	if err != nil {
		return nil, err
	}
	if c != b.cursors[newest-b.first] {
		return nil, nil
	}
	n := newest - from + 1
	// Two requests may extend the same slice: cap it, so that each gets its own.
	return b.cursors[from-b.first:][:n:n], nil
}
