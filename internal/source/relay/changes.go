package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

// changeList looks at a source that has Change Lists.
func (r *Relay) changeList(ctx context.Context, full, lost bool) (Result, error) {
	compares := r.st.Source.ResourceList != ""
	if harvest.Ahead(r.st.Mark.Datetime, r.opts.Now()) {
		r.opts.Note(fmt.Sprintf("the changes that were published end at %s, which is in the future: changes may be missing", r.st.Mark.Datetime.Format(time.RFC3339)))
		full, lost = true, true
	}
	if lost && !compares {
		r.st.Mark, r.st.Seen = Mark{}, harvest.Seen{}
	}
	if full && compares {
		res, err := r.baseline(ctx)
		many, refused := errors.AsType[*reconcile.TooMany](err)
		switch known := !lost && !r.st.Mark.Datetime.IsZero(); {
		case errors.Is(err, errShort):
			r.short(err)
			if lost {
				r.st.Mark, r.st.Seen = Mark{}, harvest.Seen{} // read the Change Lists from their beginning
			}
		case refused && known: // the new changes are still right
			res, _, err := r.increments(ctx)
			return res, errors.Join(many, err)
		default:
			return res, err
		}
	}
	was, until := r.st.Mark.Datetime, r.st.Mark.Until
	res, reach, err := r.increments(ctx)
	if err != nil {
		return res, err
	}
	if !was.IsZero() && reach.From.After(was) && reach.From.After(until) {
		r.opts.Note(fmt.Sprintf("the Change List begins at %s, and what was published ends at %s: changes between are missing", reach.From.Format(time.RFC3339), was.Format(time.RFC3339)))
		if compares {
			return r.mended(ctx, res)
		}
	}
	if full && !compares {
		r.st.Full = r.opts.Now() // there is no list to compare with
	}
	return res, nil
}

// mended compares everything, because changes are missing before the published ones.
func (r *Relay) mended(ctx context.Context, before Result) (Result, error) {
	if err := r.keep(&before); err != nil {
		return before, err
	}
	res, err := r.baseline(ctx)
	if errors.Is(err, errShort) {
		r.short(err)
		return before, nil
	}
	res.add(&before)
	return res, err
}

// errShort means that the Resource List is older than the beginning of the Change Lists.
// Changes between may have been published already, and a comparison would undo them.
var errShort = errors.New("the Change List does not reach back to the Resource List, so nothing is compared until the source has a newer Resource List")

// short notes that nothing was compared.
func (r *Relay) short(err error) {
	r.opts.Note(err.Error())
	r.st.Full, r.st.Short = r.opts.Now(), true
}

// baseline compares everything. The Resource List may be a day old, so the later changes
// of the Change Lists are applied to it first. The hub is thus compared with the present
// state of the source, and no outdated state is published. If that state is unknown, the
// error is errShort; but if the hub knows nothing of the set yet, the list is published.
func (r *Relay) baseline(ctx context.Context) (Result, error) {
	begun := r.opts.Now()
	seen, trust := harvest.Seen{}, r.st.Trust.begin()
	next := new(Mark)
	var changes harvest.Seen
	short := false
	held := uint64(0)
	list := func(yield func(*feed.Entry, error) bool) {
		n := uint64(0)
		for e, err := range r.believed(r.lister.Since(ctx, r.st.Source.ResourceList, &seen), trust) {
			_, skipped := errors.AsType[*harvest.Skipped](err)
			if !yield(e, err) || err != nil && !skipped {
				return
			}
			if !skipped {
				n = e.Position
			}
		}
		at := seen.At
		if at.IsZero() {
			at = begun.Add(-24 * time.Hour)
		}
		*next = Mark{Begin: at.UTC(), Datetime: at.UTC(), Recent: map[string]time.Time{}}
		var reach harvest.Reach
		for c, err := range r.lister.Changes(ctx, r.st.Source.ChangeList, at, &changes, &reach) {
			if skipped, ok := errors.AsType[*harvest.Skipped](err); ok {
				next.add(&skipped.Change, at)
				if !yield(nil, err) {
					return
				}
				continue
			}
			if err != nil {
				yield(nil, err)
				return
			}
			next.add(c, at)
			pass(c)
			n++
			if !yield(&feed.Entry{Cursor: feed.Cursor{Position: n}, Change: *c}, nil) {
				return
			}
		}
		next.Until = reach.Until
		if short = reach.From.After(at); short && held > 0 {
			yield(nil, errShort)
		} else if short {
			yield(nil, &reconcile.Gap{Err: fmt.Errorf("the Resource List is of %s, and the Change List begins at %s: what was deleted between them is unknown", at.Format(time.RFC3339), reach.From.Format(time.RFC3339))})
		}
	}
	res, err := r.compare(ctx, list, reconcile.Options{Looked: func(l audit.Look) { held = l.Count }})
	if err != nil {
		return res, NameMove(err, &seen)
	}
	next.trim()
	r.st.Trust, r.st.Mark, r.st.Seen, r.st.Short = trust.end(r.opts.Note), *next, changes, short
	return res, nil
}

// increments publishes the new changes of the Change Lists, in their order, while it
// reads them. After an interruption, the same changes get the same keys again.
func (r *Relay) increments(ctx context.Context) (res Result, reach harvest.Reach, err error) {
	res.How = Changes
	was, seen := r.st.Mark, r.st.Seen
	next := was.next()
	p := r.batch(&res)
	for c, err := range r.lister.Changes(ctx, r.st.Source.ChangeList, was.since(), &seen, &reach) {
		if errors.Is(err, harvest.ErrUnchanged) {
			res.How = Unchanged
			return res, reach, nil
		}
		skipped, isSkipped := errors.AsType[*harvest.Skipped](err)
		switch {
		case isSkipped:
			c = &skipped.Change
		case err != nil:
			return res, reach, err
		}
		if _, had := was.Recent[next.add(c, was.since())]; had {
			continue
		}
		if isSkipped {
			if res.Gaps++; res.Gaps <= maxGaps {
				r.opts.Gap(skipped)
			}
			continue
		}
		pass(c)
		if err := p.Add(ctx, c); err != nil {
			return res, reach, err
		}
	}
	if err := p.Send(ctx); err != nil {
		return res, reach, err
	}
	next.trim()
	next.Until = reach.Until
	r.st.Mark, r.st.Seen = next, seen
	return res, reach, nil
}

func (r *Relay) batch(res *Result) *reconcile.Batch {
	head, _ := feed.ParseCursor(r.st.Cursor) // the zero cursor, if nothing was published
	return reconcile.NewBatch(r.hub, head, func(head feed.Cursor, changes []resourcesync.Change) error {
		res.Count(head, changes)
		return nil
	})
}
