package inventory

import (
	"slices"

	"github.com/rshub/rshub/feed"
)

// A coder appends the rows of one page.
type coder[T any] interface {
	begin()                            // begins a page
	append(dst []byte, item *T) []byte // appends a row
}

// A draft is a page that is being filled.
type draft[T any] struct {
	coder coder[T]
	least int    // items that a page takes, however large they are
	first string // separates the page from the one before
	items []T
	rows  []byte
}

func (d *draft[T]) begin() {
	d.coder.begin()
	clear(d.items)
	d.first, d.items, d.rows = "", d.items[:0], d.rows[:0]
}

// size returns about how many bytes the page has.
func (d *draft[T]) size() int { return frame + len(d.rows) }

// add adds an item if the page has at most room bytes with it, or not the least number
// of items. After false the page takes no more.
func (d *draft[T]) add(item *T, room int) bool {
	before := len(d.rows)
	d.rows = d.coder.append(d.rows, item)
	if len(d.items) >= d.least && d.size() > room {
		d.rows = d.rows[:before]
		return false
	}
	d.items = append(d.items, *item)
	return true
}

// A packer puts items, in order, on the pages of one level of a tree. Items that come
// without a pause are a run. The pages of a run are nearly full; only the last two may
// be less so.
type packer[T any] struct {
	limit int                          // bytes of a page
	cut   func(before, item *T) string // the first of a page that begins with item
	emit  func(d *draft[T]) error      // takes a page that is done
	done  *draft[T]                    // the page before open, as long as open may turn out too small; empty: there is none
	open  *draft[T]
	spare *draft[T]
	pages int // that were emitted
}

func newPacker[T any](limit, least int, code func() coder[T], cut func(before, item *T) string, emit func(*draft[T]) error) *packer[T] {
	begin := func() *draft[T] {
		d := &draft[T]{coder: code(), least: least}
		d.begin()
		return d
	}
	return &packer[T]{limit: limit, cut: cut, emit: emit, done: begin(), open: begin(), spare: begin()}
}

// add adds an item. If it begins a run, first separates it from what comes before.
func (p *packer[T]) add(item *T, first string) error {
	full := p.limit - p.limit/20 // leaves room for longer rows
	if p.open.add(item, full) {
		if len(p.open.items) == 1 {
			p.open.first = first
		}
		return nil
	}
	if err := p.finish(p.done); err != nil {
		return err
	}
	p.done, p.open = p.open, p.done
	p.open.first = p.cut(&p.done.items[len(p.done.items)-1], item)
	p.open.add(item, full)
	return nil
}

// small reports whether the run is too small for a page of its own: it should go on.
func (p *packer[T]) small() bool {
	return len(p.open.items) > 0 && len(p.done.items) == 0 && p.tooSmall(p.open)
}

func (p *packer[T]) tooSmall(d *draft[T]) bool { return d.size() < p.limit*2/5 }

// flush ends a run.
func (p *packer[T]) flush() error {
	if len(p.done.items) > 0 && p.tooSmall(p.open) {
		p.even()
	}
	if err := p.finish(p.done); err != nil {
		return err
	}
	return p.finish(p.open)
}

// finish emits a page, unless it is empty, and empties it.
func (p *packer[T]) finish(d *draft[T]) error {
	if len(d.items) == 0 {
		return nil
	}
	p.pages++
	err := p.emit(d)
	d.begin()
	return err
}

// only returns the item of a packer that has had no other; nil if it has had others or
// none.
func (p *packer[T]) only() *T {
	if p.pages == 0 && len(p.done.items) == 0 && len(p.open.items) == 1 {
		return &p.open.items[0]
	}
	return nil
}

// even puts the items of done and open on one page if they fit, else on two of about
// equal size. It changes nothing if the items are so large that they do not fit.
func (p *packer[T]) even() {
	items := slices.Concat(p.done.items, p.open.items)
	first, half := p.done.first, (p.done.size()+p.open.size())/2
	n := p.fill(p.spare, items, p.limit)
	if n < len(items) {
		n = p.fill(p.spare, items, half)
	}
	if n == len(items) {
		p.done.begin()
		p.open.begin()
		p.open, p.spare = p.spare, p.open
		p.open.first = first
		return
	}
	if kept := len(p.done.items); p.fill(p.open, items[n:], p.limit) < len(items)-n {
		n = kept
		p.fill(p.open, items[n:], p.limit)
	} else {
		p.done, p.spare = p.spare, p.done
	}
	p.done.first, p.open.first = first, p.cut(&items[n-1], &items[n])
}

// fill begins a page anew with as many of the items as fit. It returns how many did.
func (p *packer[T]) fill(d *draft[T], items []T, room int) int {
	d.begin()
	for i := range items {
		if !d.add(&items[i], room) {
			return i
		}
	}
	return len(items)
}

func leafPacker(limit int, emit func(*draft[feed.Entry]) error) *packer[feed.Entry] {
	return newPacker(limit, 1, func() coder[feed.Entry] { return &leafCoder{} }, func(before, e *feed.Entry) string {
		return separator(before.Change.Loc, e.Change.Loc)
	}, emit)
}

// An inner page has two children at least. Else a tree of very long locs would not end.
func innerPacker(limit int, emit func(*draft[ref]) error) *packer[ref] {
	return newPacker(limit, 2, func() coder[ref] { return &innerCoder{} }, func(_, r *ref) string { return r.first }, emit)
}
