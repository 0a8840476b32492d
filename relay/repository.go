package relay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/harvest/oaipmh"
	"github.com/rshub/rshub/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

const (
	missedFor  = 20 * time.Hour // a record that vanished is deleted when it was missed twice, so far apart
	maxMissing = 100_000        // resources that are remembered as missing
)

// repository looks at a repository.
func (r *Relay) repository(ctx context.Context, full bool) (Result, error) {
	h := r.st.Source.Repository.harvest(r)
	if full {
		return r.harvestAll(ctx, h)
	}
	res := Result{}
	h.Bad = func(b *oaipmh.Bad) {
		if b.None {
			r.opts.Note(b.Error())
			return
		}
		res.Gaps++
		r.opts.Gap(b)
	}
	changes, next, err := h.News(ctx, &r.st.Harvest)
	if errors.Is(err, oaipmh.ErrFull) {
		r.opts.Note(fmt.Sprintf("everything is compared: %v", err))
		return r.harvestAll(ctx, h)
	}
	if err != nil {
		return Result{}, err
	}
	res.How = Changes
	if err := r.allows(changes); err != nil {
		return res, err
	}
	p := &publication{Relay: r, base: r.st.Harvest.Low.Format(time.RFC3339Nano), res: &res}
	for i := range changes {
		if err := p.add(ctx, &changes[i]); err != nil {
			return res, err
		}
	}
	if err := p.send(ctx); err != nil {
		return res, err
	}
	r.st.Harvest = *next
	return res, nil
}

// allows checks what a window deletes. A repository that rebuilds its index may say for a
// while that all is deleted.
func (r *Relay) allows(changes []resourcesync.Change) error {
	deleted := uint64(0)
	for i := range changes {
		if changes[i].Change == resourcesync.Deleted {
			deleted++
		}
	}
	held := r.st.Held
	if r.opts.MaxDelete.Allows(deleted, held, max(held, 1)) {
		return nil
	}
	return &reconcile.TooMany{Deleted: deleted, Held: held, Listed: max(held, 1)}
}

// harvestAll compares all records of the repository with the hub.
func (r *Relay) harvestAll(ctx context.Context, h *oaipmh.Harvest) (Result, error) {
	next := r.st.Harvest
	missing := map[string]int64{}
	res, err := r.compare(ctx, r.records(h.Resources(ctx, &next)), func(gone []string, whole bool) (keep []string) {
		if !whole {
			missing = r.st.Missing
			return nil
		}
		now := r.opts.Now()
		for _, loc := range gone {
			since, before := r.st.Missing[loc]
			if before && now.Sub(time.Unix(since, 0)) >= missedFor {
				continue
			}
			if !before {
				since = now.Unix()
			}
			if len(missing) < maxMissing {
				missing[loc] = since
			}
			keep = append(keep, loc)
		}
		return keep
	})
	if err != nil {
		return res, err
	}
	r.st.Harvest, r.st.Missing, r.st.Held = next, missing, max(res.Listed, 1)
	return res, nil
}

// records makes gaps of what a list of records has to leave open.
func (r *Relay) records(list iter.Seq2[*feed.Entry, error]) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		for e, err := range list {
			bad, isBad := errors.AsType[*oaipmh.Bad](err)
			if isBad && bad.None {
				r.opts.Note(bad.Error())
				continue
			}
			if _, doubt := errors.AsType[*oaipmh.Doubt](err); isBad || doubt {
				err = &reconcile.Gap{Err: err}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
