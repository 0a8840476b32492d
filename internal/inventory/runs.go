package inventory

import (
	"context"
	"fmt"
	"iter"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/page"
)

// Runs are sorted changes that wait in the store for a commit, because they do not fit
// into the committer's memory. With runs, a very large commit writes each change twice.
// Without them there would be many commits, and each would write the whole tree.
//
// Runs belong to one attempt to commit. When another committer begins, the runs are lost,
// and Add and Commit return ErrRaced. Two committers could end each other's runs for
// ever. So a committer that has lost its runs should make its next commit without runs.
//
// One goroutine at a time may use Runs. They need no close: the next commit, by any
// committer, removes their pages.
type Runs struct {
	a    *attempt
	base uint64     // Upto of the root that the changes are added to
	runs [][]uint64 // the pages of each run

	// Twice, if it is set, is called when a resource is in two runs, or in a run and in
	// Changes.Sorted. Its error ends the commit. If it is not set, the newer change
	// counts.
	Twice func(older, newer *feed.Entry) error
}

// NewRuns begins an attempt to commit changes to base, the newest root. Its errors are
// those of Commit.
func (v *Inventory) NewRuns(ctx context.Context, base Root) (*Runs, error) {
	a, err := v.beginOn(ctx, base)
	if err != nil {
		return nil, err
	}
	return &Runs{a: a, base: base.Upto}, nil
}

// Len returns the number of runs. Nil has none.
func (r *Runs) Len() int {
	if r == nil {
		return 0
	}
	return len(r.runs)
}

// Add writes a run: changes as in Changes.Sorted, which are newer than those of the
// runs before. step is Changes.Step. After an error the runs can no longer be used.
func (r *Runs) Add(ctx context.Context, sorted iter.Seq[*feed.Entry], step func() error) error {
	r.a.ctx = ctx
	var pages []uint64
	p := page.PackLeaves(r.a.v.limit, func(d *page.Draft[feed.Entry]) error {
		number, _, err := r.a.write(page.LeafForm, len(d.Items), d.Rows)
		pages = append(pages, number)
		return err
	})
	changes, stop := newLookahead(sorted, step)
	defer stop()
	for e := changes.peek(0); e != nil; e = changes.peek(0) {
		if err := p.Add(e, ""); err != nil {
			return err
		}
		changes.pop()
	}
	err := changes.err
	if err == nil {
		err = p.Flush()
	}
	if err == nil {
		err = r.a.put()
	}
	r.runs = append(r.runs, pages)
	return err
}

// merge returns c with the newest change of each resource, of all runs and of c.Sorted,
// in Sorted. The caller must call stop.
func (r *Runs) merge(c Changes) (merged Changes, stop func()) {
	m := new(merging)
	for _, pages := range r.runs {
		m.add((&runReader{a: r.a, pages: pages}).next)
	}
	next, stop := iter.Pull(c.Sorted)
	m.add(func() (*feed.Entry, error) {
		e, _ := next()
		return e, nil
	})
	merged = c
	merged.Step = func() error {
		if m.err != nil || c.Step == nil {
			return m.err
		}
		return c.Step()
	}
	merged.Sorted = func(yield func(*feed.Entry) bool) {
		var last feed.Entry
		for e := range m.all() {
			if e.Change.Loc == last.Change.Loc {
				if r.Twice == nil {
					continue
				}
				if m.err = r.Twice(e, &last); m.err != nil {
					return
				}
			}
			if last = *e; !yield(e) {
				return
			}
		}
	}
	return merged, stop
}

// pages returns the numbers of all pages.
func (r *Runs) pages() (numbers []uint64) {
	for _, run := range r.runs {
		numbers = append(numbers, run...)
	}
	return numbers
}

// runAhead is how many pages of each run are read at a time.
const runAhead = 8

// A runReader reads the changes of a run.
type runReader struct {
	a      *attempt
	pages  []uint64 // that were not read yet
	ahead  [][]byte // those that were read
	decode page.Decoder
	buf    []feed.Entry
	off    int
}

// next returns the next change, or nil at the end. The change is valid until next is
// called again.
func (r *runReader) next() (*feed.Entry, error) {
	for r.off == len(r.buf) {
		if len(r.ahead) == 0 {
			if len(r.pages) == 0 {
				return nil, nil
			}
			n := min(runAhead, len(r.pages))
			pages, err := r.a.v.store.Get(r.a.ctx, r.a.v.set, r.a.begin, r.pages[:n])
			if err != nil {
				return nil, fmt.Errorf("read pending changes of set %q: %w", r.a.v.set, err)
			}
			r.ahead = pages
		}
		number, raw := r.pages[0], r.ahead[0]
		r.pages, r.ahead = r.pages[1:], r.ahead[1:]
		if raw == nil { // another committer has removed it
			return nil, fmt.Errorf("set %q: %w", r.a.v.set, ErrRaced)
		}
		l, err := page.OpenLeaf(number, raw)
		if err == nil {
			r.buf, err = r.decode.Decode(r.buf[:0], l)
		}
		if err != nil { // not ErrDamaged, because no root has the page
			return nil, fmt.Errorf("page %d of set %q, with pending changes: %w", number, r.a.v.set, err)
		}
		r.off = 0
	}
	r.off++
	return &r.buf[r.off-1], nil
}
