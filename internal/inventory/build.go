package inventory

import (
	"context"
	"fmt"
	"iter"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/page"
	"github.com/rshub/rshub/resourcesync"
)

// A builder merges changes into a tree, in one pass over both. It reads the pages that
// have changes, and writes new pages for them. It keeps the other pages as they are. It
// holds only a few pages of each level in memory.
type builder struct {
	ctx     context.Context
	tree    *Tree // the tree that the changes are merged into
	changes *upcoming
	write   pageWriter

	leaves *page.Packer[feed.Entry]
	inner  []*page.Packer[page.Ref] // inner[n] packs the pages of level n+1; leaves are level 0
	hash   digest.Hasher
	decode page.Decoder
	space  []feed.Entry
	ahead  map[uint64][]byte // leaves that were read already

	freed []uint64 // pages of the old tree that the new tree does not have
	root  Root     // of the new tree: Page, Height, Tally, Pages and Bytes
}

// A pageWriter writes a page. It returns the number and the size of the page.
type pageWriter func(form byte, count int, rows []byte) (number uint64, size int, err error)

// build makes a tree from another one and from changes. It returns a root with Page,
// Height, Tally, Pages and Bytes, and the pages of the old tree that it does not have.
func build(ctx context.Context, tree *Tree, changes *upcoming, write pageWriter) (Root, []uint64, error) {
	b := &builder{ctx: ctx, tree: tree, changes: changes, write: write, ahead: map[uint64][]byte{}}
	b.root.Pages, b.root.Bytes = tree.root.Pages, tree.root.Bytes
	b.leaves = page.PackLeaves(tree.v.limit, b.emitLeaf)
	var err error
	if old := tree.root; old.Height > 0 {
		err = b.merge(page.Ref{Number: old.Page, Tally: old.Tally}, old.Height-1, "", "")
	} else {
		err = b.take("", "")
	}
	if err == nil {
		err = b.finish()
	}
	if err == nil {
		err = changes.err
	}
	return b.root, b.freed, err
}

// merge merges changes into a page. The page and the changes are those of the locs in
// from..to, to excluded.
func (b *builder) merge(p page.Ref, level int, from, to string) error {
	if !b.changes.before(0, to) {
		goes, err := b.pause(level)
		if err != nil {
			return err
		}
		if !goes {
			return b.place(p, level)
		}
	}
	if level == 0 {
		return b.mergeLeaf(p.Number, from, to)
	}
	in, err := b.tree.inner(b.ctx, p.Number)
	if err != nil {
		return err
	}
	b.free(p.Number, in.size)
	for i := range in.refs {
		if level == 1 || i == 0 {
			if err := b.readAhead(in.refs[i:], level, to); err != nil {
				return err
			}
		}
		if i > 0 {
			from = in.refs[i].First
		}
		if err := b.merge(in.refs[i], level-1, from, next(in.refs, i, to)); err != nil {
			return err
		}
	}
	return nil
}

// next returns the first loc of the page after page i, or to if there is none.
func next(refs []page.Ref, i int, to string) string {
	if i+1 < len(refs) {
		return refs[i+1].First
	}
	return to
}

// readAhead reads those pages that are known to be needed, at most readTogether. It
// does nothing for leaves if the first leaf is not needed or was already read.
func (b *builder) readAhead(refs []page.Ref, level int, to string) error {
	if level == 1 && (b.ahead[refs[0].Number] != nil || !b.changes.before(0, next(refs, 0, to))) {
		return nil
	}
	var numbers []uint64
	n := 0
	for i := range refs {
		until, any := next(refs, i, to), false
		for ; b.changes.before(n, until); n++ {
			any = true
		}
		if any {
			numbers = append(numbers, refs[i].Number)
		}
		if n == maxUpcoming || len(numbers) == readTogether {
			break
		}
	}
	if level > 1 {
		return b.tree.load(b.ctx, numbers)
	}
	pages, err := b.tree.read(b.ctx, numbers)
	for i, p := range pages {
		b.ahead[numbers[i]] = p
	}
	return err
}

// mergeLeaf merges the changes that come before to into a leaf.
func (b *builder) mergeLeaf(number uint64, from, to string) error {
	raw := b.ahead[number]
	delete(b.ahead, number)
	if raw == nil {
		pages, err := b.tree.read(b.ctx, []uint64{number})
		if err != nil {
			return err
		}
		raw = pages[0]
	}
	l, err := page.OpenLeaf(number, raw)
	if err == nil {
		b.space, err = b.decode.Decode(b.space[:0], l)
	}
	if err != nil {
		return b.tree.damaged(number, err)
	}
	b.free(number, len(raw))
	for i := range b.space {
		e := &b.space[i]
		if err := b.take(from, e.Change.Loc); err != nil {
			return err
		}
		if c := b.changes.peek(0); c != nil && c.Change.Loc == e.Change.Loc {
			continue // take adds the change together with the later ones
		}
		if err := b.leaves.Add(e, from); err != nil {
			return err
		}
	}
	return b.take(from, to)
}

// take adds the resources of the changes before to.
func (b *builder) take(from, to string) error {
	for b.changes.before(0, to) {
		e := b.changes.peek(0)
		if Exists(e) {
			if err := b.leaves.Add(e, from); err != nil {
				return err
			}
		}
		b.changes.drop()
	}
	return nil
}

// pause ends the runs of pages on all levels up to level, so that the next page of that
// level can be kept as it is. If a run would end in a page that is too small, pause
// reports goes instead: the run goes on, and the next page must be merged.
func (b *builder) pause(level int) (goes bool, err error) {
	for l := 0; l <= level && err == nil; l++ {
		switch {
		case l == 0:
			goes = b.leaves.Small()
		case l <= len(b.inner):
			goes = b.inner[l-1].Small()
		}
		if goes {
			return true, nil
		}
		err = b.flush(l)
	}
	return false, err
}

func (b *builder) flush(level int) error {
	switch {
	case level == 0:
		return b.leaves.Flush()
	case level <= len(b.inner):
		return b.inner[level-1].Flush()
	}
	return nil
}

// place hands a page of a level to the level above.
func (b *builder) place(r page.Ref, level int) error {
	for level >= len(b.inner) {
		above := len(b.inner) + 1
		b.inner = append(b.inner, page.PackInner(b.tree.v.limit, func(d *page.Draft[page.Ref]) error { return b.emitInner(d, above) }))
	}
	return b.inner[level].Add(&r, r.First)
}

func (b *builder) emitLeaf(d *page.Draft[feed.Entry]) error {
	r := page.Ref{First: d.First}
	for i := range d.Items {
		e := &d.Items[i]
		t := b.hash.Tally(e)
		r.Add(&t)
		r.Newest = max(r.Newest, e.Position)
	}
	return b.put(r, 0, page.LeafForm, len(d.Items), d.Rows)
}

func (b *builder) emitInner(d *page.Draft[page.Ref], level int) error {
	r := page.Ref{First: d.First}
	for i := range d.Items {
		r.Add(&d.Items[i].Tally)
		r.Newest = max(r.Newest, d.Items[i].Newest)
	}
	return b.put(r, level, page.InnerForm, len(d.Items), d.Rows)
}

func (b *builder) put(r page.Ref, level int, form byte, count int, rows []byte) error {
	number, size, err := b.write(form, count, rows)
	if err != nil {
		return err
	}
	r.Number = number
	b.root.Pages++
	b.root.Bytes += uint64(size)
	return b.place(r, level)
}

func (b *builder) free(number uint64, size int) {
	b.freed = append(b.freed, number)
	b.root.Pages--
	b.root.Bytes -= uint64(size)
}

// finish ends all levels, and finds the top page: the only page of its level.
func (b *builder) finish() error {
	if err := b.leaves.Flush(); err != nil {
		return err
	}
	for n := 0; n < len(b.inner); n++ {
		if only := b.inner[n].Only(); only != nil && n+1 == len(b.inner) {
			b.root.Page, b.root.Height, b.root.Tally = only.Number, n+1, only.Tally
			return nil
		}
		if err := b.inner[n].Flush(); err != nil {
			return err
		}
	}
	return nil // there is no resource
}

// maxUpcoming is how many changes a builder looks ahead.
const maxUpcoming = 2_000

// upcoming are the changes that were not merged yet.
type upcoming struct {
	next func() (*feed.Entry, bool)
	step func() error // Changes.Step; may be nil
	buf  []feed.Entry
	off  int // of the next change in buf
	last string
	err  error // why the sequence ended early
	end  bool
}

// newUpcoming returns the changes of a sequence. The caller must call stop.
func newUpcoming(sorted iter.Seq[*feed.Entry], step func() error) (u *upcoming, stop func()) {
	next, stop := iter.Pull(sorted)
	return &upcoming{next: next, step: step}, stop
}

// peek returns the change after the next n, without taking it. It returns nil if there
// are not so many, or if n is more than maxUpcoming.
func (u *upcoming) peek(n int) *feed.Entry {
	for u.off+n >= len(u.buf) {
		if u.end || n >= maxUpcoming {
			return nil
		}
		u.pull()
	}
	return &u.buf[u.off+n]
}

func (u *upcoming) pull() {
	e, ok := u.next()
	if u.step != nil {
		u.err = u.step()
	}
	switch {
	case !ok || u.err != nil:
		u.end = true
		return
	case e.Change.Loc == "" || e.Change.Loc <= u.last:
		u.err = fmt.Errorf("changes out of order: %q after %q", resourcesync.Shorten(e.Change.Loc), resourcesync.Shorten(u.last))
		u.end = true
		return
	}
	if u.off > 0 && u.off == len(u.buf) {
		u.buf, u.off = u.buf[:0], 0
	} else if u.off >= maxUpcoming {
		u.buf, u.off = u.buf[:copy(u.buf, u.buf[u.off:])], 0
	}
	u.buf = append(u.buf, *e)
	u.last = e.Change.Loc
}

// before reports whether the change after the next n exists and comes before a loc.
// An empty loc is the end of all.
func (u *upcoming) before(n int, to string) bool {
	e := u.peek(n)
	return e != nil && (to == "" || e.Change.Loc < to)
}

func (u *upcoming) drop() { u.off++ }
