package inventory

import (
	"context"
	"fmt"
	"iter"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/page"
)

// Runs are sorted changes that are stored until a commit, because they do not fit into memory. With runs, a very
// large commit writes each change twice. Without them there would be many commits, and each would write the whole
// tree: a million resources would take twice as long.
//
// Runs belong to the term of a Writer: when it ends, Add and Commit return ErrFenced. They need no close: the next
// commit removes their pages.
type Runs struct {
	w     *Writer
	opens int        // Writer.opens when the runs were begun
	base  uint64     // Upto of the root that the changes are added to
	runs  [][]uint64 // pages of each run

	// Twice is called if a resource is in two runs, or in a run and in Changes.Sorted. Its error ends the commit.
	// If Twice is nil, the newer change takes precedence.
	Twice func(older, newer *feed.Entry) error
}

// NewRuns returns runs for a commit to base, the newest root.
func (w *Writer) NewRuns(ctx context.Context, base Root) (*Runs, error) {
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	return &Runs{w: w, opens: w.opens, base: base.Upto}, nil
}

// check returns ErrFenced if the pages of the runs may be gone.
func (r *Runs) check() error {
	if !r.w.open || r.w.opens != r.opens {
		return fmt.Errorf("set %q: pending changes: %w", r.w.set, ErrFenced)
	}
	return nil
}

// Len returns the number of runs. Nil has none.
func (r *Runs) Len() int {
	if r == nil {
		return 0
	}
	return len(r.runs)
}

// Add writes a run: changes as in Changes.Sorted, newer than all earlier runs. step is Changes.Step. After an error
// the runs can no longer be used.
func (r *Runs) Add(ctx context.Context, sorted iter.Seq[*feed.Entry], step func() error) error {
	if err := r.check(); err != nil {
		return err
	}
	var pages []uint64
	write := r.w.pageWriter(ctx)
	p := page.PackLeaves(r.w.limit, func(d *page.Draft[feed.Entry]) error {
		number, _, err := write(page.LeafForm, len(d.Items), d.Rows)
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
		err = r.w.put(ctx)
	}
	r.runs = append(r.runs, pages)
	return err
}

// merge returns c with the newest change of each resource, from all runs and c.Sorted, in Sorted. The caller must
// call stop.
func (r *Runs) merge(ctx context.Context, c Changes) (merged Changes, stop func(), err error) {
	if err := r.check(); err != nil {
		return c, nil, err
	}
	if r.base != c.Base.Upto {
		return c, nil, r.w.staleBase()
	}
	m := new(merging)
	for _, pages := range r.runs {
		m.add((&runReader{ctx: ctx, w: r.w, pages: pages}).next)
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
	return merged, stop, nil
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
	ctx    context.Context
	w      *Writer
	pages  []uint64 // not read yet
	ahead  [][]byte // read, but not decoded yet
	decode page.Decoder
	buf    []feed.Entry
	off    int
}

// next returns the next change, or nil at the end. The change is valid until next is called again.
func (r *runReader) next() (*feed.Entry, error) {
	for r.off == len(r.buf) {
		if len(r.ahead) == 0 {
			if len(r.pages) == 0 {
				return nil, nil
			}
			n := min(runAhead, len(r.pages))
			pages, err := r.w.store.Get(r.ctx, r.w.set, r.w.begin, r.pages[:n])
			if err != nil {
				return nil, fmt.Errorf("read pending changes of set %q: %w", r.w.set, err)
			}
			r.ahead = pages
		}
		number, raw := r.pages[0], r.ahead[0]
		r.pages, r.ahead = r.pages[1:], r.ahead[1:]
		if raw == nil { // another writer has removed it
			return nil, fmt.Errorf("set %q: pending changes: %w", r.w.set, ErrFenced)
		}
		l, err := page.OpenLeaf(number, raw)
		if err == nil {
			r.buf, err = r.decode.Decode(r.buf[:0], l)
		}
		if err != nil { // not ErrDamaged, because no root has the page
			return nil, fmt.Errorf("page %d of set %q, with pending changes: %w", number, r.w.set, err)
		}
		r.off = 0
	}
	r.off++
	return &r.buf[r.off-1], nil
}
