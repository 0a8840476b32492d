package page

import (
	"slices"

	"github.com/rshub/rshub/feed"
)

// A coder appends the rows of one page.
type coder[T any] interface {
	begin()                            // begins a page
	append(dst []byte, item *T) []byte // appends a row
}

// A Draft is a page that is being filled.
type Draft[T any] struct {
	coder coder[T]
	least int    // the least number of items in a page, even if they are too large
	First string // separates the page from the one before
	Items []T
	Rows  []byte
}

func (d *Draft[T]) begin() {
	d.coder.begin()
	clear(d.Items)
	d.First, d.Items, d.Rows = "", d.Items[:0], d.Rows[:0]
}

// size returns about how many bytes the page has.
func (d *Draft[T]) size() int { return Frame + len(d.Rows) }

// add adds an item if the page then has at most room bytes, or if it has fewer than
// the least number of items. After it returned false, the page takes no more items.
func (d *Draft[T]) add(item *T, room int) bool {
	before := len(d.Rows)
	d.Rows = d.coder.append(d.Rows, item)
	if len(d.Items) >= d.least && d.size() > room {
		d.Rows = d.Rows[:before]
		return false
	}
	d.Items = append(d.Items, *item)
	return true
}

// A Packer puts items, in order, on the pages of one level of a tree. Items that come
// without a Flush are a run. All pages of a run are nearly full, except perhaps the
// last two.
type Packer[T any] struct {
	limit int                          // the most bytes of a page
	cut   func(before, item *T) string // the First of a page that begins with item
	emit  func(d *Draft[T]) error      // takes a finished page
	done  *Draft[T]                    // the page before open, while open may still become too small; empty: none
	open  *Draft[T]
	spare *Draft[T]
	pages int // emitted pages
}

func newPacker[T any](limit, least int, code func() coder[T], cut func(before, item *T) string, emit func(*Draft[T]) error) *Packer[T] {
	begin := func() *Draft[T] {
		d := &Draft[T]{coder: code(), least: least}
		d.begin()
		return d
	}
	return &Packer[T]{limit: limit, cut: cut, emit: emit, done: begin(), open: begin(), spare: begin()}
}

// Add adds an item. first is the First of the page if the item begins a run.
func (p *Packer[T]) Add(item *T, first string) error {
	full := p.limit - p.limit/20 // leaves room for longer rows
	if p.open.add(item, full) {
		if len(p.open.Items) == 1 {
			p.open.First = first
		}
		return nil
	}
	if err := p.finish(p.done); err != nil {
		return err
	}
	p.done, p.open = p.open, p.done
	p.open.First = p.cut(&p.done.Items[len(p.done.Items)-1], item)
	p.open.add(item, full)
	return nil
}

// Small reports whether the run would end in a page that is too small, so that it
// should go on.
func (p *Packer[T]) Small() bool {
	return len(p.open.Items) > 0 && len(p.done.Items) == 0 && p.tooSmall(p.open)
}

func (p *Packer[T]) tooSmall(d *Draft[T]) bool { return d.size() < p.limit*2/5 }

// Flush ends a run.
func (p *Packer[T]) Flush() error {
	if len(p.done.Items) > 0 && p.tooSmall(p.open) {
		p.even()
	}
	if err := p.finish(p.done); err != nil {
		return err
	}
	return p.finish(p.open)
}

// finish emits a page, unless it is empty, and empties it.
func (p *Packer[T]) finish(d *Draft[T]) error {
	if len(d.Items) == 0 {
		return nil
	}
	p.pages++
	err := p.emit(d)
	d.begin()
	return err
}

// Only returns the only item that was ever added; nil if there were more, or none.
func (p *Packer[T]) Only() *T {
	if p.pages == 0 && len(p.done.Items) == 0 && len(p.open.Items) == 1 {
		return &p.open.Items[0]
	}
	return nil
}

// even puts the items of done and open on one page if they fit, else on two of about
// equal size. It changes nothing if the items are so large that they do not fit.
func (p *Packer[T]) even() {
	items := slices.Concat(p.done.Items, p.open.Items)
	first, half := p.done.First, (p.done.size()+p.open.size())/2
	n := p.fill(p.spare, items, p.limit)
	if n < len(items) {
		n = p.fill(p.spare, items, half)
	}
	if n == len(items) {
		p.done.begin()
		p.open.begin()
		p.open, p.spare = p.spare, p.open
		p.open.First = first
		return
	}
	if kept := len(p.done.Items); p.fill(p.open, items[n:], p.limit) < len(items)-n {
		n = kept
		p.fill(p.open, items[n:], p.limit)
	} else {
		p.done, p.spare = p.spare, p.done
	}
	p.done.First, p.open.First = first, p.cut(&items[n-1], &items[n])
}

// fill empties a page, and adds as many of the items as fit. It returns how many it
// added.
func (p *Packer[T]) fill(d *Draft[T], items []T, room int) int {
	d.begin()
	for i := range items {
		if !d.add(&items[i], room) {
			return i
		}
	}
	return len(items)
}

// PackLeaves returns a Packer of leaves that have at most limit bytes.
func PackLeaves(limit int, emit func(*Draft[feed.Entry]) error) *Packer[feed.Entry] {
	return newPacker(limit, 1, func() coder[feed.Entry] { return &leafCoder{} }, func(before, e *feed.Entry) string {
		return Separator(before.Change.Loc, e.Change.Loc)
	}, emit)
}

// PackInner returns a Packer of inner pages that have at most limit bytes. An inner page
// has at least two children; otherwise a tree with very long locs would grow for ever.
func PackInner(limit int, emit func(*Draft[Ref]) error) *Packer[Ref] {
	return newPacker(limit, 2, func() coder[Ref] { return &innerCoder{} }, func(_, r *Ref) string { return r.First }, emit)
}
