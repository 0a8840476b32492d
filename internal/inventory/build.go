package inventory

import (
	"context"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/page"
)

// A builder merges changes into a tree, in one pass over both. It descends only into pages whose range of
// locs has changes. It keeps the other pages, and refers to them in the new pages above:
//
//	changes        k      p
//	level 1   [a     g     m     s]        the old page, which is freed
//	           |     |     |     |
//	level 0   [a-f] [g-l] [m-r] [s-z]
//	          kept  merged      kept
//
// New pages of a level come in runs. A run fills its pages in turn. A run ends before a kept page.
// If the last page of the run would then be too small, the run continues into the page that would be kept.
//
// A builder holds only a few pages of each level in memory.
type builder struct {
	ctx     context.Context
	tree    *Tree // the tree that the changes are merged into
	changes *lookahead
	write   pageWriter

	leaves *page.Packer[feed.Entry]
	inner  []*page.Packer[page.Ref] // inner[n] packs the pages of level n+1; leaves are level 0
	hash   digest.Hasher
	decode page.Decoder
	space  []feed.Entry      // entries of a leaf
	ahead  map[uint64][]byte // leaves that were read and not merged yet, by number

	freed []uint64 // pages of the old tree that the new tree does not have
	root  Root     // of the new tree: Page, Height, Tally, Pages and Bytes
}

// A pageWriter writes a page. It returns the number and the size of the page.
type pageWriter func(form byte, count int, rows []byte) (number uint64, size int, err error)

// build makes a tree from another one and from changes. It returns a root with Page, Height, Tally, Pages
// and Bytes, and the pages of the old tree that the new one does not have.
func build(ctx context.Context, tree *Tree, changes *lookahead, write pageWriter) (Root, []uint64, error) {
	b := &builder{ctx: ctx, tree: tree, changes: changes, write: write, ahead: map[uint64][]byte{}}
	b.root.Pages, b.root.Bytes = tree.root.Pages, tree.root.Bytes
	b.leaves = page.PackLeaves(tree.v.limit, b.emitLeaf)
	var err error
	if top, level := tree.top(); level >= 0 {
		err = b.merge(top, level, "", "")
	} else {
		err = b.addChanges("", "")
	}
	if err == nil {
		err = b.finish()
	}
	if err == nil {
		err = changes.err
	}
	return b.root, b.freed, err
}

// merge adds a page and the pages below it to the new tree, merged with the changes in its range of locs:
// from from up to to, exclusive. An empty to is the end of all.
func (b *builder) merge(p page.Ref, level int, from, to string) error {
	if !b.changes.before(0, to) {
		if kept, err := b.keep(p, level); kept || err != nil {
			return err
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
	if level > 1 {
		if err := b.tree.load(b.ctx, b.changed(in.refs, to)); err != nil {
			return err
		}
	}
	for i, child := range in.refs {
		if i > 0 {
			from = child.First
		}
		if level == 1 {
			if err := b.readLeaves(in.refs[i:], to); err != nil {
				return err
			}
		}
		if err := b.merge(child, level-1, from, next(in.refs, i, to)); err != nil {
			return err
		}
	}
	return nil
}

// next returns the end of the range of page i: the first loc of the page after it, or to for the last page.
func next(refs []page.Ref, i int, to string) string {
	if i+1 < len(refs) {
		return refs[i+1].First
	}
	return to
}

// changed returns the pages that have changes, as far as the builder looks ahead, and at most readTogether.
func (b *builder) changed(refs []page.Ref, to string) (numbers []uint64) {
	n := 0 // changes before the page
	for i := 0; i < len(refs) && n < maxAhead && len(numbers) < readTogether; i++ {
		first := n
		for until := next(refs, i, to); b.changes.before(n, until); n++ {
		}
		if n > first {
			numbers = append(numbers, refs[i].Number)
		}
	}
	return numbers
}

// readLeaves reads the leaves that have changes, if that was not done for the first, which has some.
func (b *builder) readLeaves(refs []page.Ref, to string) error {
	if b.ahead[refs[0].Number] != nil || !b.changes.before(0, next(refs, 0, to)) {
		return nil
	}
	numbers := b.changed(refs, to)
	pages, err := b.tree.read(b.ctx, numbers)
	for i, p := range pages {
		b.ahead[numbers[i]] = p
	}
	return err
}

// mergeLeaf merges the changes before to into a leaf.
func (b *builder) mergeLeaf(number uint64, from, to string) error {
	raw := b.ahead[number]
	delete(b.ahead, number)
	if raw == nil { // it has no changes, or the builder did not look so far ahead
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
		if err := b.addChanges(from, e.Change.Loc); err != nil {
			return err
		}
		if c := b.changes.peek(0); c != nil && c.Change.Loc == e.Change.Loc {
			continue // the change replaces the entry
		}
		if err := b.leaves.Add(e, from); err != nil {
			return err
		}
	}
	return b.addChanges(from, to)
}

// addChanges adds the resources of the changes before to. They are in the range of a page that starts at from.
func (b *builder) addChanges(from, to string) error {
	for ; b.changes.before(0, to); b.changes.pop() {
		if e := b.changes.peek(0); Exists(e) {
			if err := b.leaves.Add(e, from); err != nil {
				return err
			}
		}
	}
	return nil
}

// A run packs new pages of a level.
type run interface {
	Small() bool  // whether the last page would be too small
	Flush() error // writes the last page
}

// run returns the run of a level, or nil if the level has no new pages.
func (b *builder) run(level int) run {
	switch {
	case level == 0:
		return b.leaves
	case level <= len(b.inner):
		return b.inner[level-1]
	}
	return nil
}

// keep ends the runs up to a level, and keeps a page of the level as it is. If a run would end in a page
// that is too small, keep returns false: the page must be merged.
func (b *builder) keep(p page.Ref, level int) (bool, error) {
	for l := range level + 1 {
		r := b.run(l)
		if r == nil {
			continue
		}
		if r.Small() {
			return false, nil
		}
		if err := r.Flush(); err != nil {
			return false, err
		}
	}
	return true, b.place(p, level)
}

// place adds a reference to a page to the level above.
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

// finish ends all runs, and finds the top page: the only page of its level. A tree without resources has none.
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
	return nil
}
