package documents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// Resources are the resources of a set at one cursor. The methods block while the store is read, and
// return feed.ErrGone if the snapshot no longer exists.
type Resources interface {
	Cursor() feed.Cursor
	Tally(ctx context.Context, r inventory.Range) (digest.Tally, error)
	Walk(ctx context.Context, r inventory.Range) iter.Seq2[*feed.Entry, error]
	Nth(ctx context.Context, n uint64) (loc string, ok bool, err error) // loc of the resource with n resources before it
}

// A List is the content of a Resource List, which is the same at every hub.
type List struct {
	Resources
	Completed time.Time // time when the snapshot was chosen for a Resource List
}

// A block is a range of maxItems resources by rank; the last one may have fewer. A block becomes one
// document, or several if one would be too large. So all hubs split the list into the same documents,
// and read only the resources in them.
type block struct {
	number uint64 // from 1
	pieces []piece
}

// A piece is the range of resources of one document.
type piece struct {
	inventory.Range
	count int
}

// headBytes is an upper bound for the bytes before and after the entries of a document.
const headBytes = 16 << 10

// partName returns the name of a document of a Resource List, by the block and the number of the piece,
// both from 1. The name contains the cursor of the list and the time of its completion, because there
// may be another list at the same cursor later. So it never refers to another document.
func partName(s feed.State, at feed.Cursor, completed time.Time, block uint64, piece int) string {
	name := "resourcelist-" + at.String() + "-" + strconv.FormatUint(block, 10)
	if piece > 1 {
		name += "." + strconv.Itoa(piece)
	}
	return withLastmod(name+"-"+strconv.FormatInt(completed.UnixMicro(), 10), s.Lastmod)
}

// parsePartName parses the first numbers of the result of partName. The caller must compare the name
// with the name of the result.
func parsePartName(name string) (at feed.Cursor, block uint64, piece int, ok bool) {
	rest, ok := strings.CutPrefix(name, "resourcelist-")
	words := strings.Split(strings.TrimSuffix(rest, ".xml"), "-")
	if !ok || len(words) < 3 {
		return at, 0, 0, false
	}
	number, second, _ := strings.Cut(words[2], ".")
	block, err := strconv.ParseUint(number, 10, 64)
	if piece = 1; err == nil && second != "" {
		piece, err = strconv.Atoi(second)
	}
	at, cerr := feed.ParseCursor(words[0] + "-" + words[1])
	return at, block, piece, err == nil && cerr == nil
}

// inventoryList calls Inventories.ResourceList if there are inventories.
func (d *Server) inventoryList(ctx context.Context, set string, at feed.Cursor) (*List, error) {
	if d.opts.Inventories == nil {
		return nil, feed.ErrNoInventory
	}
	return d.opts.Inventories.ResourceList(ctx, set, at)
}

// list returns the Resource List of a set at a cursor, or the newest one for the zero cursor.
func (d *Server) list(ctx context.Context, s feed.State, at feed.Cursor) (*List, error) {
	l, err := d.inventoryList(ctx, s.Set, at)
	e, ok := errors.AsType[*feed.Error](err)
	if !ok || e.Status != 404 && e.Status != 410 || errors.Is(err, feed.ErrNoSet) {
		return l, err
	}
	p := *problem.From(err)
	if e.Status == 410 {
		p.Detail = "this Resource List has been replaced; the newest one is " + d.base.ResourceList(s.Set)
	} else if s.ResourceList != "" {
		p.Detail += "; the Resource List of the source is " + s.ResourceList
	}
	return nil, &p
}

// ownList returns the newest Resource List of the hub for a set, and its number of resources. The list is
// nil if the hub has none or it is empty: the sitemap schema allows no empty document, and real clients
// fail on one.
func (d *Server) ownList(ctx context.Context, set string) (l *List, resources uint64, err error) {
	l, err = d.inventoryList(ctx, set, feed.Cursor{})
	if e, ok := errors.AsType[*feed.Error](err); ok && e.Status == 404 {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	all, err := l.Tally(ctx, inventory.Range{})
	if err != nil || all.Count == 0 {
		return nil, 0, err
	}
	return l, all.Count, nil
}

// resourceList returns resourcelist.xml: the Resource List (core section 10.1), or the Resource List
// Index (section 10.2) if the resources do not fit in one document.
func (d *Server) resourceList(ctx context.Context, s feed.State) (*document, error) {
	l, err := d.list(ctx, s, feed.Cursor{})
	if err != nil {
		return nil, err
	}
	all, err := l.Tally(ctx, inventory.Range{})
	if err != nil {
		return nil, err
	}
	doc := &document{
		tag:       d.tag("resourcelist", s.Set, l.Cursor(), l.Completed.UnixMicro(), s.Lastmod),
		modified:  modified(s, l.Completed.UnixMicro()),
		maxCached: min(maxCachedFrom, d.opts.CacheBytes/2), // most clients read a Resource List once
	}
	if all.Count <= maxItems {
		b, err := d.block(ctx, s.Set, l, all.Count, 1)
		if err != nil {
			return nil, err
		}
		if len(b.pieces) == 1 {
			doc.write = func(ctx context.Context, w io.Writer) error {
				return writeResources(w, s.Lastmod, d.resourcesHeader(s.Set, l), l.resources(ctx, b.pieces[0]))
			}
			return doc, nil
		}
	}
	doc.write = func(ctx context.Context, w io.Writer) error { return d.writeResourceIndex(ctx, w, s, l, all.Count) }
	return doc, nil
}

// resourcePart returns a document of a Resource List Index.
func (d *Server) resourcePart(ctx context.Context, s feed.State, name string, at feed.Cursor, number uint64, n int) (*document, error) {
	none := notFound("no such part of a Resource List; " + d.base.ResourceList(s.Set) + " lists the existing ones")
	l, err := d.list(ctx, s, at)
	if err != nil {
		return nil, err
	}
	if partName(s, at, l.Completed, number, n) != name {
		return nil, none
	}
	all, err := l.Tally(ctx, inventory.Range{})
	if err != nil {
		return nil, err
	}
	if number == 0 || number > blocks(all.Count) {
		return nil, none
	}
	b, err := d.block(ctx, s.Set, l, all.Count, number)
	if err != nil {
		return nil, err
	}
	if n > len(b.pieces) || all.Count <= maxItems && len(b.pieces) == 1 { // resourcelist.xml is not an index then
		return nil, none
	}
	h := d.resourcesHeader(s.Set, l)
	h.Links = append(h.Links, resourcesync.Link{Rel: "index", Href: d.base.ResourceList(s.Set)})
	return &document{
		tag:       d.tag("resourcelist part", s.Set, l.Cursor(), l.Completed.UnixMicro(), number, n, s.Lastmod),
		modified:  l.Completed.UnixMicro(),
		immutable: true,
		maxCached: min(maxCachedFrom, d.opts.CacheBytes/2),
		write: func(ctx context.Context, w io.Writer) error {
			return writeResources(w, s.Lastmod, h, l.resources(ctx, b.pieces[n-1]))
		},
	}, nil
}

// blocks returns the number of blocks of count resources.
func blocks(count uint64) uint64 { return (count + maxItems - 1) / maxItems }

// block returns a block of a Resource List with count resources. It caches the block, so that the
// resources are read only once.
func (d *Server) block(ctx context.Context, set string, l *List, count, number uint64) (block, error) {
	key := fmt.Sprintln(set, l.Cursor(), l.Completed.UnixMicro(), number)
	return d.blocks.do(ctx, key, func() (block, int64, error) {
		b, err := splitBlock(ctx, l, count, number)
		if err != nil {
			return b, 0, fmt.Errorf("resource list of set %q at %v: %w", set, l.Cursor(), err)
		}
		size := int64(cachedOverhead)
		for _, p := range b.pieces {
			size += int64(64 + len(p.From) + len(p.To))
		}
		return b, size, nil
	})
}

// splitBlock splits a block into pieces by the maximum size of the resources as XML.
func splitBlock(ctx context.Context, l *List, count, number uint64) (b block, err error) {
	first, end := (number-1)*maxItems, min(number*maxItems, count)
	var all inventory.Range
	if first > 0 {
		if all.From, err = boundary(ctx, l, first); err != nil {
			return b, err
		}
	}
	if end < count {
		if all.To, err = boundary(ctx, l, end); err != nil {
			return b, err
		}
	}
	b.number = number
	p, size, seen := piece{Range: all}, headBytes, uint64(0)
	for e, err := range l.Walk(ctx, all) {
		if err != nil {
			return b, err
		}
		n := e.Change.Size()
		if p.count > 0 && size+n > maxBytes {
			p.To = e.Change.Loc
			b.pieces = append(b.pieces, p)
			p, size = piece{Range: inventory.Range{From: e.Change.Loc, To: all.To}}, headBytes
		}
		p.count++
		size += n
		seen++
	}
	if b.pieces = append(b.pieces, p); first+seen != end {
		return b, fmt.Errorf("%w: got %d resources in a range, want %d", feed.ErrDamaged, seen, end-first)
	}
	return b, nil
}

// boundary returns the loc of the resource with n resources before it.
func boundary(ctx context.Context, l *List, n uint64) (string, error) {
	loc, ok, err := l.Nth(ctx, n)
	if err == nil && !ok {
		err = fmt.Errorf("%w: got at most %d resources, want more", feed.ErrDamaged, n)
	}
	return loc, err
}

// resourcesHeader returns the header of a Resource List. Its attribute h:cursor is the cursor at which a
// client can start to follow by push; at is its datetime, for clients that pull.
func (d *Server) resourcesHeader(set string, l *List) *resourcesync.Header {
	return &resourcesync.Header{
		Capability: resourcesync.ResourceList,
		At:         l.Cursor().Time(),
		Completed:  l.Completed,
		Links:      []resourcesync.Link{{Rel: "up", Href: d.base.CapabilityList(set)}},
		Attrs:      []resourcesync.Attr{{Namespace: resourcesync.Terms, Name: "cursor", Value: l.Cursor().String()}},
	}
}

// writeResourceIndex writes a Resource List Index.
func (d *Server) writeResourceIndex(ctx context.Context, w io.Writer, s feed.State, l *List, count uint64) error {
	h := s.Lastmod.Header(d.resourcesHeader(s.Set, l))
	h.Index = true
	ns := s.Lastmod.Namespaces()
	ns.Index = true
	buf := resourcesync.AppendXMLHeader(nil, h, ns)
	for n := range blocks(count) {
		b, err := d.block(ctx, s.Set, l, count, n+1)
		if err != nil {
			return err
		}
		for i := range b.pieces {
			item := resourcesync.Item{At: h.At, Completed: h.Completed}
			item.Loc = d.base.Document(s.Set, partName(s, l.Cursor(), l.Completed, b.number, i+1))
			buf = resourcesync.AppendXMLItem(buf, &item, ns)
		}
		if len(buf) >= writePage {
			if _, err := w.Write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	_, err := w.Write(resourcesync.AppendXMLFooter(buf, h))
	return err
}

// resources yields the resources of a piece. If their number is wrong, the last value is an error.
func (l *List) resources(ctx context.Context, p piece) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		n := 0
		for e, err := range l.Walk(ctx, p.Range) {
			if err != nil {
				yield(nil, fmt.Errorf("resource list at %v: %w", l.Cursor(), err))
				return
			}
			if n++; !yield(e, nil) {
				return
			}
		}
		if n != p.count {
			yield(nil, fmt.Errorf("resource list at %v: %w: got %d resources in a range, want %d", l.Cursor(), feed.ErrDamaged, n, p.count))
		}
	}
}

// writeResources writes a Resource List.
func writeResources(w io.Writer, lastmod feed.Lastmod, h *resourcesync.Header, resources iter.Seq2[*feed.Entry, error]) error {
	xml := feed.NewListWriter(lastmod)
	return writeList(w, xml, h, resources, xml.AppendResource)
}
