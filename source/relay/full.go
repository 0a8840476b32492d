package relay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/source/harvest"
	"github.com/rshub/rshub/source/reconcile"
)

// maxGaps is how many gaps of a list are yielded one by one. All further ones are one gap
// without a loc.
const maxGaps = 1000

// compare compares the list of a source with the hub, and publishes the differences. keep
// says which resources that the list lacks must not be deleted yet; nil: none. If held is
// not nil, compare sets it to the number of resources that the hub knows, before it reads
// the list.
func (r *Relay) compare(ctx context.Context, list iter.Seq2[*feed.Entry, error], keep func(missing []string) (keep []string, whole bool), held *uint64) (Result, error) {
	gaps := 0
	o := reconcile.Options{
		MaxDelete: r.opts.MaxDelete, Toll: &r.st.Toll, Doubles: true, Dir: r.opts.Dir, Now: r.opts.Now, Room: r.opts.Room, Memory: r.opts.Memory,
		Counted: func() error { return r.opts.Save(r.st) },
		Gap: func(gap *reconcile.Gap) {
			gaps++
			r.opts.Gap(gap)
		},
	}
	if held != nil {
		o.Looked = func(l audit.Look) { *held = l.Count }
	}
	if keep != nil {
		o.Missing = func(missing []string) ([]string, bool) {
			if gaps > 0 {
				return nil, false // it is unknown what is missing
			}
			return keep(missing)
		}
	}
	source := reconcile.New(r.hub, func(context.Context) iter.Seq2[*feed.Entry, error] { return fewGaps(list) }, o)
	defer source.Close() // its files are temporary
	begun := r.opts.Now()
	res, err := source.Sync(ctx)
	if err != nil {
		return Result{}, err
	}
	r.st.Full = begun
	return Result{
		How: Compared, Created: res.Created, Updated: res.Updated, Deleted: res.Deleted,
		Listed: res.Listed, Unknown: res.Unknown, Gaps: gaps, Kept: res.Kept, Cursor: res.Cursor, Complete: res.Complete,
	}, nil
}

// fewGaps yields the gaps of a list, up to maxGaps.
func fewGaps(list iter.Seq2[*feed.Entry, error]) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		gaps := 0
		for e, err := range list {
			if _, ok := errors.AsType[*reconcile.Gap](err); ok {
				if gaps++; gaps == maxGaps {
					err = &reconcile.Gap{Err: errors.New("and more")}
				} else if gaps > maxGaps {
					continue
				}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// list looks at a source that has only a list of its resources.
func (r *Relay) list(ctx context.Context, full bool) (Result, error) {
	seen := r.st.Seen
	if full {
		seen = harvest.Seen{} // do not believe for ever a server that says unchanged
	}
	trust := r.st.Trust.begin()
	res, err := r.compare(ctx, r.believed(r.lister.Since(ctx, r.st.Source.ResourceList, &seen), trust), nil, nil)
	if errors.Is(err, harvest.ErrUnchanged) {
		return Result{How: Unchanged}, nil
	}
	if err != nil {
		return res, err
	}
	r.st.Seen, r.st.Trust = seen, trust.end(r.opts.Note)
	return res, nil
}

// believed removes from a list the parts that are not trusted.
func (r *Relay) believed(list iter.Seq2[*feed.Entry, error], t *trusting) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		for e, err := range list {
			if err == nil {
				t.see(&e.Change)
				if t.was.distrusts() {
					e.Change.Lastmod = time.Time{}
				}
				pass(&e.Change)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// pass removes from a change the parts that a hub must not pass on: those that have a
// meaning only within a dump. It adds no link rel=via, which leads from a copy to the
// original (core section 14.8): the resource is the source's own, not a copy.
func pass(c *resourcesync.Change) {
	c.Path = ""
	for i := range c.Links {
		c.Links[i].Path = ""
	}
}

func (r *Relay) odd(document string, mistake *resourcesync.Error) {
	r.opts.Note(fmt.Sprintf("%s: %v", document, mistake))
}
