package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// Changes are the changes of one commit.
type Changes struct {
	Base   Root                  // newest root, to which the changes are added
	Anew   bool                  // whether the new root has nothing of Base
	To     feed.Cursor           // cursor of the new root
	Sorted iter.Seq[*feed.Entry] // newest entry of each loc, deletions too, ascending by loc; an entry is valid until the next one
	Runs   *Runs                 // changes older than Sorted, with the same Base; may be nil
	Step   func() error          // called after each change, and at the end of Sorted; it may block, and its error ends the commit; may be nil

	Incomplete string      // why the inventory is no longer complete; if empty, Head.Complete stays
	Lapsed     feed.Cursor // with Incomplete, the Head.Complete to be cleared; zero means any
}

// Commit makes the newest root from Base and changes, and drops the roots that are no longer needed (see
// Shrink). It returns ErrFenced if Base is not the newest root, and ErrLog if the log does not hold the cursor
// To, or is not the log of Base. After an error the newest root is unchanged, except that it may be the new one
// after feed.ErrUnknown.
//
// A root that is later than To is no longer the root of a Resource List, because it has changes that the log
// has lost. With Anew, no older root is.
func (w *Writer) Commit(ctx context.Context, c Changes) (Root, error) {
	if err := w.start(ctx); err != nil {
		return Root{}, err
	}
	if c.Base.Upto > 0 && c.Base.Begin != w.begin {
		return Root{}, fmt.Errorf("set %q: %w", w.set, ErrLog)
	}
	root, freed, err := w.build(ctx, c)
	if err == nil {
		err = w.finish(ctx, c.Base, &root, freed, func(head *Head) {
			for i := range head.Roots {
				if k := &head.Roots[i]; c.Anew || k.Cursor.Position > c.To.Position {
					k.Listed = 0
				}
			}
			if c.Incomplete != "" && (c.Lapsed.IsZero() || c.Lapsed == head.Complete) {
				head.Complete, head.Why = feed.Cursor{}, c.Incomplete
			}
		})
	}
	if err != nil {
		w.swept = false
		return Root{}, err
	}
	return root, nil
}

// build writes the pages of the new root.
func (w *Writer) build(ctx context.Context, c Changes) (root Root, freed []uint64, err error) {
	tree := w.Tree(c.Base)
	all := map[uint64]bool{}
	if c.Anew {
		if err := tree.mark(ctx, all); err != nil {
			return Root{}, nil, err
		}
		tree = w.Tree(Root{})
	}
	if c.Runs != nil {
		merged, stop, err := c.Runs.merge(ctx, c)
		if err != nil {
			return Root{}, nil, err
		}
		defer stop()
		c = merged
	}
	changes, stop := newLookahead(c.Sorted, c.Step)
	defer stop()
	root, freed, err = build(ctx, tree, changes, w.pageWriter(ctx))
	if errors.Is(err, feed.ErrGone) { // another writer has dropped Base
		err = w.staleBase()
	}
	if err != nil {
		return Root{}, nil, err
	}
	if c.Anew {
		freed = slices.Collect(maps.Keys(all))
	}
	if c.Runs != nil {
		freed = append(freed, c.Runs.pages()...)
	}
	root.Begin, root.Cursor = w.begin, c.To
	root.Upto = w.number()
	return root, freed, nil
}

// Forget makes a root without the resources that changed after the cursor to. It is for a log that has lost
// its newest entries: to is the newest cursor that both the log and base have. From then on the inventory is
// not complete, for the reason why.
func (w *Writer) Forget(ctx context.Context, base Root, to feed.Cursor, why string) (Root, error) {
	var failed error
	return w.Commit(ctx, Changes{
		Base: base,
		To:   to,
		Sorted: func(yield func(*feed.Entry) bool) {
			for e, err := range w.Tree(base).Newer(ctx, to.Position) {
				if err != nil {
					failed = err
					return
				}
				gone := feed.Entry{Cursor: to, Change: resourcesync.Change{Loc: e.Change.Loc, Change: resourcesync.Deleted}}
				if !yield(&gone) {
					return
				}
			}
		},
		Step:       func() error { return failed },
		Incomplete: why,
	})
}

// Reset drops all roots, even pinned ones, and removes all pages. From then on the inventory is not complete,
// for the reason why. If why is empty, it is as complete as before: it is damaged, and will be rebuilt from a
// log that has all changes. If the head itself is damaged, Reset replaces it.
func (w *Writer) Reset(ctx context.Context, why string) error {
	err := w.dropAll(ctx, why)
	if errors.Is(err, ErrDamaged) {
		if err = w.eraseHead(ctx); err == nil {
			err = w.dropAll(ctx, cmp.Or(why, "damaged record"))
		}
	}
	if err != nil {
		return err
	}
	return w.Sweep(ctx)
}

// dropAll drops all roots.
func (w *Writer) dropAll(ctx context.Context, why string) error {
	return w.update(ctx, Update{}, func(_ *Record, head *Head) error {
		head.Roots, head.Garbage = nil, 1
		if why != "" {
			head.Complete, head.Why = feed.Cursor{}, why
		}
		return nil
	})
}

// eraseHead erases a head that is damaged.
func (w *Writer) eraseHead(ctx context.Context) error {
	w.open = false
	err := w.store.Update(ctx, w.set, Update{Change: func(rec *Record) error {
		if _, err := decodeHead(rec.Head); err == nil {
			return errUnchanged
		}
		rec.Term, rec.Head = 0, nil
		return nil
	}})
	if err != nil && !errors.Is(err, errUnchanged) {
		return fmt.Errorf("erase damaged head of set %q: %w", w.set, err)
	}
	return nil
}
