package inventory

import (
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
// Shrink). It returns ErrRaced if Base is not the newest root, or if another commit was faster. It returns
// ErrLog if the log does not hold the cursor To, or is not the log of Base. After an error the newest root is
// unchanged, except that it may be the new one after feed.ErrUnknown.
//
// A root that is later than To is no longer the root of a Resource List, because it has changes that the log
// has lost. With Anew, no older root is.
func (v *Inventory) Commit(ctx context.Context, c Changes) (Root, error) {
	var a *attempt
	var err error
	if c.Runs != nil {
		if a = c.Runs.a; c.Runs.base != c.Base.Upto {
			return Root{}, fmt.Errorf("set %q: runs are based on root %d, want %d: %w", v.set, c.Runs.base, c.Base.Upto, ErrRaced)
		}
		a.ctx = ctx
	} else if a, err = v.beginOn(ctx, c.Base); err != nil {
		return Root{}, err
	}
	root, freed, err := a.build(c)
	if err == nil {
		err = a.finish(&root, freed, Swap{At: c.To}, func(head *Head) {
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
		return Root{}, err
	}
	return root, nil
}

// beginOn begins an attempt on base, which must be the newest root.
func (v *Inventory) beginOn(ctx context.Context, base Root) (*attempt, error) {
	return v.begin(ctx, func(rec *Record, head *Head) error {
		if base.Upto > 0 && base.Begin != rec.Log.Begin {
			return fmt.Errorf("set %q: %w", v.set, ErrLog)
		}
		if head.Newest().Upto != base.Upto {
			return fmt.Errorf("set %q: %w", v.set, ErrRaced)
		}
		return nil
	})
}

// build writes the pages of the new root.
func (a *attempt) build(c Changes) (root Root, freed []uint64, err error) {
	tree := a.v.Tree(c.Base)
	all := map[uint64]bool{}
	if c.Anew {
		if err := tree.mark(a.ctx, all); err != nil {
			return Root{}, nil, err
		}
		tree = a.v.Tree(Root{})
	}
	if c.Runs != nil {
		merged, stop := c.Runs.merge(c)
		defer stop()
		c = merged
	}
	changes, stop := newLookahead(c.Sorted, c.Step)
	defer stop()
	root, freed, err = build(a.ctx, tree, changes, a.write)
	if errors.Is(err, feed.ErrGone) { // another commit has removed the pages of Base
		err = fmt.Errorf("set %q: %w", a.v.set, ErrRaced)
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
	root.Begin, root.Cursor = a.begin, c.To
	root.Upto = a.number()
	return root, freed, nil
}

// Forget makes a root without the resources that changed after the cursor to. It is for a log that has lost
// its newest entries: to is the newest cursor that both the log and base have. From then on the inventory is
// not complete, for the reason why.
func (v *Inventory) Forget(ctx context.Context, base Root, to feed.Cursor, why string) (Root, error) {
	var failed error
	return v.Commit(ctx, Changes{
		Base: base,
		To:   to,
		Sorted: func(yield func(*feed.Entry) bool) {
			for e, err := range v.Tree(base).Newer(ctx, to.Position) {
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
// log that has all changes.
func (v *Inventory) Reset(ctx context.Context, why string) error {
	for range tries {
		rec, head, err := v.Load(ctx)
		if head == nil && errors.Is(err, ErrDamaged) {
			head, err = &Head{Next: 1, Why: "damaged record"}, nil
		}
		if err != nil {
			return err
		}
		fresh := &Head{Next: max(head.Next, uint64(max(rec.Now, 0))), Garbage: 1, Why: why}
		if why == "" {
			fresh.Complete, fresh.Why = head.Complete, head.Why
		}
		rec.Attempt = 0
		err = v.swap(ctx, &rec, fresh, Swap{})
		if err == nil {
			return v.Sweep(ctx)
		}
		if !errors.Is(err, ErrRaced) {
			return err
		}
	}
	return fmt.Errorf("set %q: %w", v.set, ErrRaced)
}
