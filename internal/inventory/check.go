package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/inventory/page"
)

// Check reads the whole inventory, and returns what is wrong with it: pages that are
// missing, damaged, out of order, or have wrong counts or sums (ErrDamaged). It reads
// every page of every root once. If the roots change in the meantime, it returns ErrFenced.
func (v *Inventory) Check(ctx context.Context) error {
	rec, head, err := v.Load(ctx)
	if err != nil {
		return err
	}
	c := &checker{v: v, ctx: ctx, seen: map[uint64]*checked{}}
	for i := range head.Roots {
		c.root(&head.Roots[i])
	}
	after, newHead, err := v.Load(ctx)
	switch {
	case err != nil:
		return err
	case after.Log.Begin != rec.Log.Begin || !slices.EqualFunc(head.Roots, newHead.Roots, func(a, b Kept) bool { return a.Upto == b.Upto }):
		return fmt.Errorf("set %q changed during the check: %w", v.set, ErrFenced)
	case c.failed != nil:
		return c.failed
	}
	return errors.Join(c.wrong...)
}

// A checker is one Check.
type checker struct {
	v      *Inventory
	ctx    context.Context
	tree   *Tree
	seen   map[uint64]*checked
	wrong  []error
	failed error // an error of the store
	hash   digest.Hasher
	decode page.Decoder
}

// A checked is a page that was read, with what Check found in it and below it.
type checked struct {
	digest.Tally
	newest      uint64
	first, last string // locs
	pages       []uint64
	bytes       uint64
}

func (c *checker) say(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Errorf("%w: set %q: "+format, append([]any{ErrDamaged, c.v.set}, args...)...))
}

func (c *checker) root(k *Kept) {
	c.tree = c.v.Tree(k.Root)
	found := &checked{}
	if k.Height > 0 {
		found = c.page(k.Page, k.Height-1)
	}
	if found == nil {
		return
	}
	for _, n := range found.pages {
		if n > k.Upto {
			c.say("root %d has the newer page %d", k.Upto, n)
		}
	}
	if found.Tally != k.Tally || uint64(len(found.pages)) != k.Pages || found.bytes != k.Bytes {
		c.say("root %d: recorded %d resources, %d pages, %d bytes; found %d, %d, %d, or the sums differ",
			k.Upto, k.Tally.Count, k.Pages, k.Bytes, found.Count, len(found.pages), found.bytes)
	}
}

// page checks a page and those below it. It returns nil if one of them cannot be read.
func (c *checker) page(number uint64, level int) *checked {
	if seen, ok := c.seen[number]; ok {
		return seen
	}
	c.seen[number] = nil
	pages, err := c.tree.read(c.ctx, []uint64{number})
	switch {
	case errors.Is(err, ErrDamaged) || errors.Is(err, feed.ErrGone):
		c.wrong = append(c.wrong, err)
		return nil
	case err != nil:
		c.failed = err
		return nil
	}
	found := &checked{pages: []uint64{number}, bytes: uint64(len(pages[0]))}
	if level == 0 {
		err = c.leaf(found, number, pages[0])
	} else {
		err = c.inner(found, number, level, pages[0])
	}
	if err != nil {
		c.wrong = append(c.wrong, c.tree.damaged(number, err))
		return nil
	}
	c.seen[number] = found
	return found
}

func (c *checker) leaf(found *checked, number uint64, b []byte) error {
	l, err := page.OpenLeaf(number, b)
	if err != nil {
		return err
	}
	entries, err := c.decode.Decode(nil, l)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return errors.New("no resources")
	}
	for i := range entries {
		e := &entries[i]
		if e.Change.Loc <= found.last {
			return errors.New("resources out of order")
		}
		if !Exists(e) {
			return errors.New("has a deleted resource")
		}
		found.last = e.Change.Loc
		t := c.hash.Tally(e)
		found.Add(&t)
		found.newest = max(found.newest, e.Position)
	}
	found.first = entries[0].Change.Loc
	return nil
}

func (c *checker) inner(found *checked, number uint64, level int, b []byte) error {
	refs, err := page.OpenInner(number, b)
	if err != nil {
		return err
	}
	for i := range refs {
		r := &refs[i]
		below := c.page(r.Number, level-1)
		if below == nil {
			return fmt.Errorf("child page %d is unreadable", r.Number)
		}
		switch {
		case below.Tally != r.Tally || below.newest != r.Newest:
			return fmt.Errorf("child page %d has different counts or sums", r.Number)
		case below.first < r.First || below.first <= found.last:
			return fmt.Errorf("child page %d is out of order", r.Number)
		case i+1 < len(refs) && below.last >= refs[i+1].First:
			return fmt.Errorf("child page %d overlaps the next", r.Number)
		}
		if i == 0 {
			found.first = below.first
		}
		found.last = below.last
		found.Add(&below.Tally)
		found.newest = max(found.newest, below.newest)
		found.pages = append(found.pages, below.pages...)
		found.bytes += below.bytes
	}
	return nil
}
