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
	missingFor  = 20 * time.Hour // a vanished record is deleted after it was missing twice, this far apart
	maxNameless = 1_000          // maximum number of records without a URL that are remembered
	maxMissing  = 100_000        // maximum number of missing resources that are remembered
)

func (r *Relay) pollRepository(ctx context.Context, full, lost bool) (Result, error) {
	if !full {
		res, err := r.publishNews(ctx)
		if !errors.Is(err, oaipmh.ErrNeedsList) {
			return res, err
		}
		r.opts.Note(fmt.Sprintf("comparing everything: %v", err))
	}
	res, err := r.compareRepository(ctx)
	if _, refused := errors.AsType[*reconcile.TooManyDeletions](err); !refused || !full || lost || r.st.Held == 0 {
		return res, err
	}
	news, failed := r.publishNews(ctx) // new changes are still right
	if errors.Is(failed, oaipmh.ErrNeedsList) {
		return res, err
	}
	return news, errors.Join(err, failed)
}

// publishNews publishes the changes in the repository since the last poll. The error is
// oaipmh.ErrFull if only a full comparison can find them.
func (r *Relay) publishNews(ctx context.Context) (Result, error) {
	h := r.st.Source.Repository.harvest(r)
	res := Result{}
	h.Bad = func(b *oaipmh.BadRecord) {
		if b.NoResource {
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
	res.Method = Changes
	// A repository that rebuilds its index may report everything as deleted for a while.
	var news Result
	news.Count(feed.Cursor{}, changes)
	deleted, held := uint64(news.Deleted), max(r.st.Held, 1)
	if err := r.st.Deletions.Check(r.opts.MaxDelete, deleted, held, held, r.opts.Now()); err != nil {
		return res, err
	}
	p := r.newBatch(&res)
	for i := range changes {
		if err := p.Add(ctx, &changes[i]); err != nil {
			return res, err
		}
	}
	if err := p.Send(ctx); err != nil {
		return res, err
	}
	r.st.Deletions.Add(r.opts.MaxDelete, deleted, held, r.opts.Now())
	r.st.Harvest = *next
	return res, nil
}

// compareRepository compares all records of the repository with the hub.
func (r *Relay) compareRepository(ctx context.Context) (Result, error) {
	h := r.st.Source.Repository.harvest(r)
	next := r.st.Harvest
	missing := r.st.Missing // unchanged unless the list is complete
	n := &namelessRecords{was: r.st.Nameless, now: map[string]int64{}, at: r.opts.Now().Unix()}
	res, err := r.compare(ctx, r.convertGaps(h.Resources(ctx, &next), n), reconcile.Options{KeepMissing: func() (keep func(string) bool, whole bool) {
		missing = map[string]int64{}
		return func(loc string) bool {
			since, before := r.st.Missing[loc]
			if before && n.at-since >= int64(missingFor/time.Second) && n.allFoundBefore(since) {
				return false
			}
			if !before {
				since = n.at
			}
			if len(missing) < maxMissing {
				missing[loc] = since
			}
			return true
		}, !n.fresh // with a new record it is unknown which resources were removed, and allFoundBefore is false
	}})
	res.Gaps += n.count
	if err != nil {
		return res, err
	}
	r.st.Harvest, r.st.Missing, r.st.Nameless, r.st.Held = next, missing, n.now, max(res.Listed, 1)
	return res, nil
}

// namelessRecords are records without a known URL, such as one without an identifier. A resource
// that vanishes may be one of them, unless all of them were already listed without a URL while the
// resource was still listed, too.
//
// For example, one comparison finds the resources A and B. The next one finds only B and a record
// without a URL, which may be A. So A is not deleted as long as the record is listed. If B vanishes
// later, it is not that record, which was listed together with B. So B is deleted after it was
// missing twice.
type namelessRecords struct {
	was, now map[string]int64 // when each record was first found, in Unix seconds: as of the last comparison, and of this one
	at       int64            // time of this comparison
	count    int
	fresh    bool // whether a record may be new: it may be any resource that is missing
}

// add adds a record. Records with the same identifier and datestamp differ by a number.
func (n *namelessRecords) add(b *oaipmh.BadRecord) {
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

// allFoundBefore reports whether all records were found before the comparison at t, which was the
// first that missed a resource. If so, none of them is that resource.
func (n *namelessRecords) allFoundBefore(t int64) bool {
	for _, since := range n.now {
		if since >= t {
			return false
		}
	}
	return !n.fresh
}

// convertGaps converts a doubt about a list of convertGaps into a gap, and omits convertGaps without a
// resource.
func (r *Relay) convertGaps(list iter.Seq2[*feed.Entry, error], n *namelessRecords) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		for e, err := range list {
			bad, isBad := errors.AsType[*oaipmh.BadRecord](err)
			if isBad && bad.NoResource {
				r.opts.Note(bad.Error())
				continue
			}
			if isBad {
				r.opts.Gap(bad)
				n.add(bad)
				continue
			}
			if _, doubt := errors.AsType[*oaipmh.UncertainList](err); doubt {
				err = &reconcile.Gap{Err: err}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
