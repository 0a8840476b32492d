package inventory

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/page"
)

// readTogether is the maximum number of pages that one call of the Store reads.
const readTogether = 64

// A Tree reads one root of an inventory. Its methods may be called concurrently. They return feed.ErrGone if
// the root was dropped and its pages removed, and ErrDamaged, which names the page, if a page is missing or is
// not what was written.
//
// The entries that a Tree returns are shared and must not be modified. Their strings keep a whole page in
// memory; clone strings that you retain.
type Tree struct {
	v    *Inventory
	root Root
}

// Root returns the root that the tree reads.
func (t *Tree) Root() Root { return t.root }

// top returns the page at the top and its level, which is -1 if there is none.
func (t *Tree) top() (p page.Ref, level int) {
	return page.Ref{Number: t.root.Page, Newest: ^uint64(0), Tally: t.root.Tally}, t.root.Height - 1
}

// An inner is an inner page that was read.
type inner struct {
	refs []page.Ref
	size int // bytes of the page
}

func (t *Tree) key(number uint64) cacheKey { return cacheKey{t.v.store, t.v.set, t.root.Begin, number} }

// inner returns an inner page.
func (t *Tree) inner(ctx context.Context, number uint64) (*inner, error) {
	if in, ok := t.v.cache.get(t.key(number)).(*inner); ok {
		return in, nil
	}
	pages, err := t.read(ctx, []uint64{number})
	if err != nil {
		return nil, err
	}
	return t.opened(number, pages[0])
}

// opened returns an inner page that was read, and caches it.
func (t *Tree) opened(number uint64, b []byte) (*inner, error) {
	refs, err := page.OpenInner(number, b)
	if err != nil {
		return nil, t.damaged(number, err)
	}
	in := &inner{refs, len(b)}
	t.v.cache.put(t.key(number), in, 2*len(b))
	return in, nil
}

// load reads inner pages into the cache.
func (t *Tree) load(ctx context.Context, numbers []uint64) error {
	var missing []uint64
	for _, n := range numbers {
		if t.v.cache.get(t.key(n)) == nil {
			missing = append(missing, n)
		}
	}
	pages, err := t.read(ctx, missing)
	for i := 0; i < len(pages) && err == nil; i++ {
		_, err = t.opened(missing[i], pages[i])
	}
	return err
}

// read reads pages from the store.
func (t *Tree) read(ctx context.Context, numbers []uint64) ([][]byte, error) {
	if len(numbers) == 0 {
		return nil, nil
	}
	pages, err := t.v.store.Get(ctx, t.v.set, t.root.Begin, numbers)
	if err != nil {
		return nil, fmt.Errorf("read pages of set %q: %w", t.v.set, err)
	}
	for i, p := range pages {
		if p == nil {
			return nil, t.missing(ctx, numbers[i])
		}
	}
	return pages, nil
}

// missing returns the reason why a page is missing: the root was dropped, or the page was lost.
func (t *Tree) missing(ctx context.Context, number uint64) error {
	rec, head, err := t.v.Load(ctx)
	if err != nil && !errors.Is(err, feed.ErrNoSet) {
		return err
	}
	if err != nil || rec.Log.Begin != t.root.Begin || head.find(t.root.Upto) == nil {
		return fmt.Errorf("set %q: snapshot at %v: %w", t.v.set, t.root.Cursor, feed.ErrGone)
	}
	return t.damaged(number, errors.New("missing"))
}

func (t *Tree) damaged(number uint64, err error) error {
	return t.v.damaged("page "+strconv.FormatUint(number, 10), err)
}

// leaf returns a leaf, and caches it.
func (t *Tree) leaf(ctx context.Context, number uint64) (page.Leaf, error) {
	if l, ok := t.v.cache.get(t.key(number)).(page.Leaf); ok {
		return l, nil
	}
	pages, err := t.read(ctx, []uint64{number})
	if err != nil {
		return page.Leaf{}, err
	}
	l, err := page.OpenLeaf(number, pages[0])
	if err != nil {
		return page.Leaf{}, t.damaged(number, err)
	}
	t.v.cache.put(t.key(number), l, l.Size())
	return l, nil
}

// Get returns the newest change of a resource, if the resource exists.
func (t *Tree) Get(ctx context.Context, loc string) (e feed.Entry, ok bool, err error) {
	err = t.Find(ctx, []string{loc}, func(_ int, found *feed.Entry) { e, ok = *found, true })
	return e, ok, err
}

// A search is a page and the wanted locs that it may have.
type search struct {
	page     uint64
	from, to int
}

// Find looks up many resources. locs must be ascending. For each loc that exists, it calls found with the
// index of the loc and its newest change, which is valid only until found returns. Find reads each page once,
// and many pages at a time.
func (t *Tree) Find(ctx context.Context, locs []string, found func(i int, e *feed.Entry)) error {
	top, level := t.top()
	if level < 0 || len(locs) == 0 {
		return nil
	}
	searches := []search{{top.Number, 0, len(locs)}}
	for ; level > 0; level-- {
		var below []search
		for i, s := range searches {
			if i%readTogether == 0 {
				if err := t.load(ctx, pagesOf(searches[i:])); err != nil {
					return err
				}
			}
			in, err := t.inner(ctx, s.page)
			if err != nil {
				return err
			}
			for s.from < s.to {
				c := page.Child(in.refs, locs[s.from])
				n := s.from + 1
				for until := next(in.refs, c, ""); n < s.to && (until == "" || locs[n] < until); {
					n++
				}
				below = append(below, search{in.refs[c].Number, s.from, n})
				s.from = n
			}
		}
		searches = below
	}
	for i := 0; i < len(searches); i += readTogether {
		if err := t.findInLeaves(ctx, searches[i:min(i+readTogether, len(searches))], locs, found); err != nil {
			return err
		}
	}
	return nil
}

// pagesOf returns the pages of the first searches, at most readTogether.
func pagesOf(searches []search) []uint64 {
	numbers := make([]uint64, 0, readTogether)
	for _, s := range searches[:min(readTogether, len(searches))] {
		numbers = append(numbers, s.page)
	}
	return numbers
}

func (t *Tree) findInLeaves(ctx context.Context, searches []search, locs []string, found func(i int, e *feed.Entry)) error {
	leaves := make([]page.Leaf, len(searches))
	var numbers []uint64 // that have to be read
	var places []int
	for i, s := range searches {
		l, ok := t.v.cache.get(t.key(s.page)).(page.Leaf)
		if !ok {
			numbers, places = append(numbers, s.page), append(places, i)
		}
		leaves[i] = l
	}
	pages, err := t.read(ctx, numbers)
	if err != nil {
		return err
	}
	for i, p := range pages {
		l, err := page.OpenLeaf(numbers[i], p)
		if err != nil {
			return t.damaged(numbers[i], err)
		}
		t.v.cache.put(t.key(numbers[i]), l, len(p))
		leaves[places[i]] = l
	}
	for i, s := range searches {
		if err := leaves[i].Find(locs[s.from:s.to], func(n int, e *feed.Entry) { found(s.from+n, e) }); err != nil {
			return t.damaged(s.page, err)
		}
	}
	return nil
}

// before returns the tally of the resources that come before a loc, or of all if it is empty.
func (t *Tree) before(ctx context.Context, loc string) (digest.Tally, error) {
	p, level := t.top()
	if level < 0 || loc == "" {
		return p.Tally, nil
	}
	var sum digest.Tally
	for ; level > 0; level-- {
		in, err := t.inner(ctx, p.Number)
		if err != nil {
			return sum, err
		}
		c := page.Child(in.refs, loc)
		for i := range c {
			sum.Add(&in.refs[i].Tally)
		}
		if c > 0 && in.refs[c].First == loc { // a page begins here
			return sum, nil
		}
		p = in.refs[c]
	}
	l, err := t.leaf(ctx, p.Number)
	if err != nil {
		return sum, err
	}
	var h digest.Hasher
	r := l.Read()
	for r.Next() && string(r.Loc()) < loc {
		e := r.Entry()
		one := h.Tally(&e)
		sum.Add(&one)
	}
	if err := r.Err(); err != nil {
		return sum, t.damaged(p.Number, err)
	}
	return sum, nil
}

// Nth returns the loc of the resource with exactly n resources before it, and whether there is one.
func (t *Tree) Nth(ctx context.Context, n uint64) (loc string, ok bool, err error) {
	p, level := t.top()
	if n >= p.Count {
		return "", false, nil
	}
	for ; level > 0; level-- {
		in, err := t.inner(ctx, p.Number)
		if err != nil {
			return "", false, err
		}
		for i := range in.refs {
			p = in.refs[i]
			if n < p.Count {
				break
			}
			n -= p.Count
		}
	}
	l, err := t.leaf(ctx, p.Number)
	if err != nil {
		return "", false, err
	}
	r := l.Read()
	for r.Next() {
		if n == 0 {
			return string(r.Loc()), true, nil
		}
		n--
	}
	return "", false, t.damaged(p.Number, errors.Join(errors.New("fewer resources than counted"), r.Err()))
}

// Tally returns the tally of a range. It reads only the pages at its two ends.
func (t *Tree) Tally(ctx context.Context, r Range) (digest.Tally, error) {
	if r.To != "" && r.To <= r.From {
		return digest.Tally{}, nil
	}
	sum, err := t.before(ctx, r.To)
	if err != nil || r.From == "" {
		return sum, err
	}
	head, err := t.before(ctx, r.From)
	sum.Sub(&head)
	return sum, err
}

// Cost returns about how many bytes a commit of changes writes: leaves with their resources, and the pages
// above. It reads inner pages only.
func (t *Tree) Cost(ctx context.Context, b *Backlog) (bytes uint64, err error) {
	top, level := t.top()
	if level < 0 {
		for _, c := range b.order() {
			bytes += uint64(len(c.loc())) + 50
		}
		return bytes, nil
	}
	pages, err := t.touched(ctx, b.order(), top.Number, level)
	return pages * max(t.root.Bytes/max(t.root.Pages, 1), 1), err
}

// touched returns the number of pages that changes concern, of a page that has the locs of all of them and the
// pages below.
func (t *Tree) touched(ctx context.Context, changes []*change, page uint64, level int) (pages uint64, err error) {
	if level == 0 || len(changes) == 0 {
		return uint64(min(len(changes), 1)), nil
	}
	in, err := t.inner(ctx, page)
	if err != nil {
		return 0, err
	}
	pages = 1
	for i := range in.refs {
		n := len(changes)
		if until := next(in.refs, i, ""); until != "" {
			n, _ = find(changes, until)
		}
		below, err := t.touched(ctx, changes[:n], in.refs[i].Number, level-1)
		if err != nil {
			return 0, err
		}
		pages, changes = pages+below, changes[n:]
	}
	return pages, nil
}
