package relay

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/source/harvest/oaipmh"
	"github.com/rshub/rshub/internal/source/reconcile"
)

const (
	missedFor   = 20 * time.Hour // a vanished record is deleted when it was missing twice, this far apart
	maxNameless = 1_000          // the most records without a URL that are remembered
	maxMissing  = 100_000        // the most missing resources that are remembered
)

func (r *Relay) repository(ctx context.Context, full, lost bool) (Result, error) {
	if !full {
		res, err := r.news(ctx)
		if !errors.Is(err, oaipmh.ErrFull) {
			return res, err
		}
		r.opts.Note(fmt.Sprintf("everything is compared: %v", err))
	}
	res, err := r.harvestAll(ctx)
	if _, refused := errors.AsType[*reconcile.TooMany](err); !refused || !full || lost || r.st.Held == 0 {
		return res, err
	}
	news, failed := r.news(ctx) // what is new is still right
	if errors.Is(failed, oaipmh.ErrFull) {
		return res, err
	}
	return news, errors.Join(err, failed)
}

// news publishes what is new in the repository since the last look. The error is oaipmh.ErrFull
// if only a comparison of everything can tell.
func (r *Relay) news(ctx context.Context) (Result, error) {
	h := r.st.Source.Repository.harvest(r)
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
	if err != nil {
		return Result{}, err
	}
	res.How = Changes
	// A repository that rebuilds its index may report everything as deleted for a
	// while.
	var news Result
	news.Count(feed.Cursor{}, changes)
	deleted, held := uint64(news.Deleted), max(r.st.Held, 1)
	if err := r.st.Toll.Check(r.opts.MaxDelete, deleted, held, held, r.opts.Now()); err != nil {
		return res, err
	}
	p := r.batch(&res)
	for i := range changes {
		if err := p.Add(ctx, &changes[i]); err != nil {
			return res, err
		}
	}
	if err := p.Send(ctx); err != nil {
		return res, err
	}
	r.st.Toll.Count(r.opts.MaxDelete, deleted, held, r.opts.Now())
	r.st.Harvest = *next
	return res, nil
}

// harvestAll compares all records of the repository with the hub.
func (r *Relay) harvestAll(ctx context.Context) (Result, error) {
	h := r.st.Source.Repository.harvest(r)
	next := r.st.Harvest
	missing := r.st.Missing // stays so unless the list is whole
	n := &nameless{was: r.st.Nameless, now: map[string]int64{}, at: r.opts.Now().Unix()}
	res, err := r.compare(ctx, r.records(h.Resources(ctx, &next), n), reconcile.Options{Missing: func() (keep func(string) bool, whole bool) {
		missing = map[string]int64{}
		return func(loc string) bool {
			since, before := r.st.Missing[loc]
			if before && n.at-since >= int64(missedFor/time.Second) && n.allBefore(since) {
				return false
			}
			if !before {
				since = n.at
			}
			if len(missing) < maxMissing {
				missing[loc] = since
			}
			return true
		}, !n.fresh // with a new record it is unknown which of them are gone, and allBefore is false
	}})
	res.Gaps += n.count
	if err != nil {
		return res, err
	}
	r.st.Harvest, r.st.Missing, r.st.Nameless, r.st.Held = next, missing, n.now, max(res.Listed, 1)
	return res, nil
}

// nameless are records without a known URL, such as one without an identifier. A resource
// that vanishes may be one of them, unless all of them were already listed without a URL
// while the resource was still listed, too.
//
// For example, one comparison finds the resources A and B. The next one finds only B, and a
// record without a URL: that may be A. So A is not deleted as long as the record is listed.
// When B vanishes later, it is not that record, which was there beside B. So B is deleted
// when it was missing twice.
type nameless struct {
	was, now map[string]int64 // when each record was found first, in seconds since 1970: as the last comparison knew it, and this one
	at       int64            // the time of this comparison
	count    int
	fresh    bool // a record may be here for the first time: it may be any resource that is missing
}

// see adds a record. Records that look the same differ by their number.
func (n *nameless) see(b *oaipmh.Bad) {
	n.count++
	sum := sha256.Sum256([]byte(b.Identifier + "\n" + b.Datestamp))
	key := base64.RawURLEncoding.EncodeToString(sum[:12])
	for same, i := key, 1; ; i++ {
		if _, taken := n.now[key]; !taken {
			break
		}
		key = fmt.Sprintf("%s-%d", same, i)
	}
	since, known := n.was[key]
	if !known {
		since, n.fresh = n.at, true
	}
	if len(n.now) < maxNameless {
		n.now[key] = since
	} else {
		n.fresh = true
	}
}

// allBefore reports whether all records were found before the comparison at t, which was the
// first that missed a resource. If so, none of them is that resource.
func (n *nameless) allBefore(t int64) bool {
	for _, since := range n.now {
		if since >= t {
			return false
		}
	}
	return !n.fresh
}

// records converts a doubt about a list of records into a gap, and leaves out records
// without a resource.
func (r *Relay) records(list iter.Seq2[*feed.Entry, error], n *nameless) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		for e, err := range list {
			bad, isBad := errors.AsType[*oaipmh.Bad](err)
			if isBad && bad.None {
				r.opts.Note(bad.Error())
				continue
			}
			if isBad {
				r.opts.Gap(bad)
				n.see(bad)
				continue
			}
			if _, doubt := errors.AsType[*oaipmh.Doubt](err); doubt {
				err = &reconcile.Gap{Err: err}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
