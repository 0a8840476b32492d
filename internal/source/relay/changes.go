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

// pollChangeLists polls a source that has Change Lists.
func (r *Relay) pollChangeLists(ctx context.Context, full, lost bool) (Result, error) {
	compares := r.st.Source.ResourceList != ""
	if harvest.Ahead(r.st.Mark.Datetime, r.opts.Now()) {
		r.opts.Note(fmt.Sprintf("the published changes end at %s, which is in the future: changes may be missing", r.st.Mark.Datetime.Format(time.RFC3339)))
		full, lost = true, true
	}
	if lost && !compares {
		r.st.Mark, r.st.Seen = Mark{}, harvest.Seen{}
	}
	if full && compares {
		res, err := r.compareWithChanges(ctx)
		many, refused := errors.AsType[*reconcile.TooManyDeletions](err)
		switch known := !lost && !r.st.Mark.Datetime.IsZero(); {
		case errors.Is(err, errIncompleteLists):
			r.noteIncomplete(err)
			if lost {
				r.st.Mark, r.st.Seen = Mark{}, harvest.Seen{} // read the Change Lists from their start
			}
		case refused && known: // the new changes are still right
			res, _, err := r.publishChanges(ctx)
			return res, errors.Join(many, err)
		default:
			return res, err
		}
	}
	was, until := r.st.Mark.Datetime, r.st.Mark.Until
	res, reach, err := r.publishChanges(ctx)
	if err != nil {
		return res, err
	}
	if !was.IsZero() && reach.From.After(was) && reach.From.After(until) {
		r.opts.Note(fmt.Sprintf("the Change List starts at %s, but the published changes end at %s: changes in between are missing", reach.From.Format(time.RFC3339), was.Format(time.RFC3339)))
		if compares {
			return r.compareAfterGap(ctx, res)
		}
	}
	if full && !compares {
		r.st.ComparedAt = r.opts.Now() // there is no list to compare with
	}
	return res, nil
}

// compareAfterGap compares everything, because changes are missing before the published ones.
func (r *Relay) compareAfterGap(ctx context.Context, before Result) (Result, error) {
	if err := r.saveState(&before); err != nil {
		return before, err
	}
	res, err := r.compareWithChanges(ctx)
	if errors.Is(err, errIncompleteLists) {
		r.noteIncomplete(err)
		return before, nil
	}
	res.add(&before)
	return res, err
}

// errIncompleteLists means that the Resource List is older than the start of the Change Lists.
// Changes in between may have been published already, and a comparison would undo them.
var errIncompleteLists = errors.New("the Change List does not reach back to the Resource List; nothing is compared until the source has a newer Resource List")

// noteIncomplete records that nothing was compared.
func (r *Relay) noteIncomplete(err error) {
	r.opts.Note(err.Error())
	r.st.ComparedAt, r.st.Incomplete = r.opts.Now(), true
}

// compareWithChanges compares everything. The Resource List may be a day old, so the later changes
// of the Change Lists are applied to it first. The hub is thus compared with the current state of
// the source, and no outdated state is published. If that state is unknown, the error is
// errIncompleteLists; but if the hub knows nothing of the set yet, the list is published.
func (r *Relay) compareWithChanges(ctx context.Context) (Result, error) {
	begun := r.opts.Now()
	seen, trust := harvest.Seen{}, r.st.Trust.newSampler()
	next := new(Mark)
	var changes harvest.Seen
	short := false
	held := uint64(0)
	list := func(yield func(*feed.Entry, error) bool) {
		n := uint64(0)
		for e, err := range r.trusted(r.lister.Since(ctx, r.st.Source.ResourceList, &seen), trust) {
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
			stripDumpPaths(c)
			n++
			if !yield(&feed.Entry{Cursor: feed.Cursor{Position: n}, Change: *c}, nil) {
				return
			}
		}
		next.Until = reach.Until
		if short = reach.From.After(at); short && held > 0 {
			yield(nil, errIncompleteLists)
		} else if short {
			yield(nil, &reconcile.Gap{Err: fmt.Errorf("the Resource List is from %s, but the Change List starts at %s: deletions in between are unknown", at.Format(time.RFC3339), reach.From.Format(time.RFC3339))})
		}
	}
	res, err := r.compare(ctx, list, reconcile.Options{OnAudit: func(l audit.Summary) { held = l.Count }})
	if err != nil {
		return res, SetMoved(err, &seen)
	}
	next.trim()
	r.st.Trust, r.st.Mark, r.st.Seen, r.st.Incomplete = trust.result(r.opts.Note), *next, changes, short
	return res, nil
}

// publishChanges publishes the new changes of the Change Lists, in their order, while it reads
// them. After an interruption, the same changes get the same keys again.
func (r *Relay) publishChanges(ctx context.Context) (res Result, reach harvest.Reach, err error) {
	res.Method = Changes
	was, seen := r.st.Mark, r.st.Seen
	next := was.next()
	p := r.newBatch(&res)
	for c, err := range r.lister.Changes(ctx, r.st.Source.ChangeList, was.since(), &seen, &reach) {
		if errors.Is(err, harvest.ErrUnchanged) {
			res.Method = Unchanged
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
		stripDumpPaths(c)
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

func (r *Relay) newBatch(res *Result) *reconcile.Batch {
	head, _ := feed.ParseCursor(r.st.Cursor) // the zero cursor if nothing was published
	return reconcile.NewBatch(r.hub, head, func(head feed.Cursor, changes []resourcesync.Change) error {
		res.Count(head, changes)
		return nil
	})
}
