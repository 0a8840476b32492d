package relay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

// maxGaps is the maximum number of gaps of a list that are yielded one by one. All further ones are
// one gap without a loc.
const maxGaps = 1000

// compare compares the list of a source with the hub and publishes the differences. o may have
// OnAudit and KeepMissing.
func (r *Relay) compare(ctx context.Context, list iter.Seq2[*feed.Entry, error], o reconcile.Options) (Result, error) {
	o.MaxDelete, o.Deletions, o.AllowDuplicates = r.opts.MaxDelete, &r.st.Deletions, true
	o.Dir, o.Now, o.ReserveDisk, o.ReserveMemory = r.opts.Dir, r.opts.Now, r.opts.ReserveDisk, r.opts.ReserveMemory
	o.SaveDeletions = func() error { return r.opts.Save(r.st) }
	o.Gap = func(gap *reconcile.Gap) { r.opts.Gap(gap) }
	source := reconcile.New(r.hub, func(context.Context) iter.Seq2[*feed.Entry, error] { return Gaps(list) }, o)
	defer source.Close() // its files are temporary
	begun := r.opts.Now()
	res, err := source.Sync(ctx)
	if err != nil {
		return Result{}, err
	}
	r.st.ComparedAt = begun
	return Result{Compared, res}, nil
}

// Gaps yields the entries of a list, and up to 1,000 gaps: those of the list, and a gap for each
// *harvest.Skipped.
func Gaps(list iter.Seq2[*feed.Entry, error]) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		gaps := 0
		for e, err := range list {
			if skipped, ok := errors.AsType[*harvest.Skipped](err); ok {
				err = &reconcile.Gap{Err: skipped}
			}
			if _, ok := errors.AsType[*reconcile.Gap](err); ok {
				if gaps++; gaps == maxGaps {
					err = &reconcile.Gap{Err: errors.New("more gaps than are listed")}
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

// pollList polls a source that has only a list of its resources.
func (r *Relay) pollList(ctx context.Context, full bool) (Result, error) {
	seen := r.st.Seen
	if full {
		seen = harvest.Seen{} // do not believe forever a server that says unchanged
	}
	trust := r.st.Trust.newSampler()
	res, err := r.compare(ctx, r.trusted(r.lister.Since(ctx, r.st.Source.ResourceList, &seen), trust), reconcile.Options{})
	if errors.Is(err, harvest.ErrUnchanged) {
		return Result{Method: Unchanged}, nil
	}
	if err != nil {
		return res, SetMoved(err, &seen)
	}
	r.st.Seen, r.st.Trust = seen, trust.result(r.opts.Note)
	return res, nil
}

// SetMoved sets in a *reconcile.TooManyDeletions where the listing that seen describes has moved.
func SetMoved(err error, seen *harvest.Seen) error {
	if many, ok := errors.AsType[*reconcile.TooManyDeletions](err); ok {
		many.Moved = seen.Moved
	}
	return err
}

// trusted removes from a list the parts that are not trusted.
func (r *Relay) trusted(list iter.Seq2[*feed.Entry, error], t *sampler) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		for e, err := range list {
			if err == nil {
				t.add(&e.Change)
				if t.was.distrusts() {
					e.Change.Lastmod = time.Time{}
				}
				stripDumpPaths(&e.Change)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// stripDumpPaths removes from a change the parts that a hub must not pass on: those that have a
// meaning only within a dump. It adds no link rel=via, which leads from a copy to the original
// (core section 14.8): the resource is the source's own, not a copy.
func stripDumpPaths(c *resourcesync.Change) {
	c.Path = ""
	for i := range c.Links {
		c.Links[i].Path = ""
	}
}

func (r *Relay) noteMistake(document string, mistake *resourcesync.Error) {
	r.opts.Note(fmt.Sprintf("%s: %v", document, mistake))
}
