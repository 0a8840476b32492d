package page

import (
	"slices"

	"github.com/rshub/rshub/feed"
)

// A rowEncoder appends the rows of one page.
type rowEncoder[T any] interface {
	reset() // starts the next page
	appendRow(dst []byte, item *T) []byte
}

// A Draft is a page that is being filled.
type Draft[T any] struct {
	encoder rowEncoder[T]
	least   int    // number of items that a page takes even if they are too large
	First   string // separates the page from the previous one
	Items   []T
	Rows    []byte
}

func newDraft[T any](encoder rowEncoder[T], least int) *Draft[T] {
	d := &Draft[T]{encoder: encoder, least: least}
	d.reset()
	return d
}

func (d *Draft[T]) reset() {
	d.encoder.reset()
	clear(d.Items)
	d.First, d.Items, d.Rows = "", d.Items[:0], d.Rows[:0]
}

// size returns the approximate size of the page.
func (d *Draft[T]) size() int { return Frame + len(d.Rows) }

// add adds an item if the page then has at most limit bytes, or has fewer items than least. After
// false, no item may be added.
func (d *Draft[T]) add(item *T, limit int) bool {
	rows := len(d.Rows)
	d.Rows = d.encoder.appendRow(d.Rows, item)
	if len(d.Items) >= d.least && d.size() > limit {
		d.Rows = d.Rows[:rows]
		return false
	}
	d.Items = append(d.Items, *item)
	return true
}

// fill resets the page, and adds as many of the items as fit in limit bytes. It returns how many.
func (d *Draft[T]) fill(items []T, limit int) int {
	d.reset()
	for i := range items {
		if !d.add(&items[i], limit) {
			return i
		}
	}
	return len(items)
}

// A Packer puts items, in order, on the pages of one level of a tree. Consecutive items without a
// Flush are a run. All pages of a run are nearly full, except perhaps the last two.
type Packer[T any] struct {
	limit int                            // maximum bytes of a page
	cut   func(previous, item *T) string // returns the First of a page that starts with item
	emit  func(d *Draft[T]) error        // takes a finished page
	done  *Draft[T]                      // page before open, while open may stay too small; may be empty
	open  *Draft[T]
	spare *Draft[T]
	pages int // number of emitted pages
}

func newPacker[T any](limit, least int, encoder func() rowEncoder[T], cut func(previous, item *T) string, emit func(*Draft[T]) error) *Packer[T] {
	return &Packer[T]{limit: limit, cut: cut, emit: emit, done: newDraft(encoder(), least), open: newDraft(encoder(), least), spare: newDraft(encoder(), least)}
}

// PackLeaves returns a Packer of leaves with at most limit bytes.
func PackLeaves(limit int, emit func(*Draft[feed.Entry]) error) *Packer[feed.Entry] {
	cut := func(previous, e *feed.Entry) string { return Separator(previous.Change.Loc, e.Change.Loc) }
	return newPacker(limit, 1, func() rowEncoder[feed.Entry] { return &leafEncoder{} }, cut, emit)
}

// PackInner returns a Packer of inner pages with at most limit bytes. An inner page has at least two
// children: otherwise a tree with very long locs would grow forever.
func PackInner(limit int, emit func(*Draft[Ref]) error) *Packer[Ref] {
	cut := func(_, r *Ref) string { return r.First }
	return newPacker(limit, 2, func() rowEncoder[Ref] { return &innerEncoder{} }, cut, emit)
}

// Add adds an item. first is the First of the page if the item starts a run.
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

// Small reports whether the run would end in a page that is too small, so that it should continue.
func (p *Packer[T]) Small() bool {
	return len(p.open.Items) > 0 && len(p.done.Items) == 0 && p.tooSmall(p.open)
}

func (p *Packer[T]) tooSmall(d *Draft[T]) bool { return d.size() < p.limit*2/5 }

// Flush ends a run.
func (p *Packer[T]) Flush() error {
	if len(p.done.Items) > 0 && p.tooSmall(p.open) {
		p.balance()
	}
	if err := p.finish(p.done); err != nil {
		return err
	}
	return p.finish(p.open)
}

// finish emits a page, unless it is empty, and resets it.
func (p *Packer[T]) finish(d *Draft[T]) error {
	if len(d.Items) == 0 {
		return nil
	}
	p.pages++
	err := p.emit(d)
	d.reset()
	return err
}

// Only returns the only item that was ever added, or nil.
func (p *Packer[T]) Only() *T {
	if p.pages == 0 && len(p.done.Items) == 0 && len(p.open.Items) == 1 {
		return &p.open.Items[0]
	}
	return nil
}

// balance puts the items of done and open on one page if they fit, and otherwise on two pages of about
// equal size. If large items prevent that, it changes nothing.
func (p *Packer[T]) balance() {
	items := slices.Concat(p.done.Items, p.open.Items)
	first, half := p.done.First, (p.done.size()+p.open.size())/2
	n := p.spare.fill(items, p.limit)
	if n < len(items) {
		n = p.spare.fill(items, half)
	}
	switch {
	case n == len(items):
		p.done.reset()
		p.open.reset()
		p.open, p.spare = p.spare, p.open
		p.open.First = first
		return
	case p.open.fill(items[n:], p.limit) == len(items)-n:
		p.done, p.spare = p.spare, p.done
	default:
		n = len(p.done.Items)
		p.open.fill(items[n:], p.limit)
	}
	p.done.First, p.open.First = first, p.cut(&items[n-1], &items[n])
}
