package limit

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/feed"
)

// A Store has the sets that a Quota measures.
type Store interface {
	// SetSize returns the approximate size of a set in bytes. It returns feed.ErrNoSet if there is no such
	// set.
	SetSize(ctx context.Context, set string) (bytes int64, err error)
	// Creator returns the creator of a set. It returns feed.ErrNoSet if there is no such set.
	Creator(ctx context.Context, set string) (by string, err error)
	// Capacity returns the capacity of the store in bytes, or 0 if it is unknown.
	Capacity(ctx context.Context) (bytes int64, err error)
}

// A Quota limits the size of sets, so that one set cannot fill the store. It measures sets after publishes
// periodically, because measuring is too slow for each publish. So a set may exceed its quota by what is
// published between two measurements.
//
// With callers, the quota applies to all sets of a creator together; otherwise a second set would fill the
// rest of the store.
type Quota struct {
	store   Store
	callers bool         // whether the creators of sets are known
	part    bool         // whether quota is a fraction of the capacity of the store
	quota   atomic.Int64 // quota in bytes; 0 means no limit
	log     *slog.Logger

	mu        sync.Mutex
	sets      map[string]*setSize // sets with recent publishes, and large ones
	byCreator map[string]int64    // total size of the sets of each creator
}

// A setSize is the measured size of a set.
type setSize struct {
	bytes     int64
	by        string    // creator
	known     bool      // whether the set existed when it was measured
	due       time.Time // time of the next measurement
	published time.Time // time of the last publish
	publishes int       // number of publishes since the last measurement
	warned    bool      // whether the log has a warning that it is full
}

const (
	quotaInterval     = 5 * time.Second  // between measurements
	quotaSlowInterval = time.Minute      // between measurements of a set below half of its quota, and of the capacity
	quotaRetention    = 10 * time.Minute // time after the last publish for which a small set is stored
	quotaBurst        = 20               // number of publishes after which a small set is measured at the next interval
)

// maxMeasured is the maximum number of measured sets.
const maxMeasured = 100_000

// NewQuota returns a Quota of the given number of bytes for each set. 0 means four fifths of the capacity
// of the store, and a negative number no limit. callers tells whether the creators of sets are known.
func NewQuota(s Store, quota int64, callers bool, log *slog.Logger) *Quota {
	q := &Quota{store: s, callers: callers, part: quota == 0, log: log, sets: map[string]*setSize{}, byCreator: map[string]int64{}}
	q.quota.Store(max(quota, 0))
	return q
}

// off reports whether there is no limit.
func (q *Quota) off() bool { return q.quota.Load() == 0 && !q.part }

// Full reports whether a set, or all sets of its creator together, have reached the quota, and returns the
// quota. It does not block.
func (q *Quota) Full(set string) (quota int64, full bool) {
	if quota = q.quota.Load(); q.off() {
		return 0, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.sets[set]
	return quota, k != nil && k.known && quota > 0 && max(k.bytes, q.byCreator[k.by]) >= quota
}

// total returns the total size of the sets of a creator, or the size of the set by if creators are unknown.
func (q *Quota) total(by string) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.callers {
		return q.byCreator[by]
	}
	if k := q.sets[by]; k != nil {
		return k.bytes
	}
	return 0
}

// RecordGrowth records an accepted publish to a set, so that the set is measured. It does not block. It must not
// be called for refused publishes, which may name any number of sets.
func (q *Quota) RecordGrowth(set string) {
	if q.off() {
		return
	}
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.sets[set]
	if k == nil {
		q.evictLocked()
		k = &setSize{}
		q.sets[set] = k
	}
	k.published = now
	k.publishes++
}

// evictLocked removes the smallest of a few sets if there are too many. That set is measured again after
// its next publish.
func (q *Quota) evictLocked() {
	if len(q.sets) < maxMeasured {
		return
	}
	smallest, checked := "", 0
	for set, k := range q.sets { // in random order
		if checked == 0 || k.bytes < q.sets[smallest].bytes {
			smallest = set
		}
		if checked++; checked == 16 {
			break
		}
	}
	q.deleteLocked(smallest)
}

// deleteLocked removes a set.
func (q *Quota) deleteLocked(set string) {
	q.updateLocked(q.sets[set], "", 0)
	delete(q.sets, set)
}

// updateLocked sets the size and the creator of a set.
func (q *Quota) updateLocked(k *setSize, by string, bytes int64) {
	if q.callers {
		if q.byCreator[k.by] -= k.bytes; q.byCreator[k.by] <= 0 {
			delete(q.byCreator, k.by)
		}
		if bytes > 0 {
			q.byCreator[by] += bytes
		}
	}
	k.by, k.bytes = by, bytes
}

// Run measures sets until ctx is done.
func (q *Quota) Run(ctx context.Context) {
	ticker := time.NewTicker(quotaInterval)
	defer ticker.Stop()
	var capacityDue time.Time
	for {
		if now := time.Now(); q.part && !now.Before(capacityDue) {
			capacityDue = now.Add(quotaSlowInterval)
			if bytes, err := q.store.Capacity(ctx); err == nil {
				q.quota.Store(bytes / 5 * 4)
			}
		}
		q.measureDue(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// measure returns the size and the creator of a set. A set that does not exist has size 0.
func (q *Quota) measure(ctx context.Context, set string) (bytes int64, by string, exists bool, err error) {
	bytes, err = q.store.SetSize(ctx, set)
	if err == nil && q.callers {
		by, err = q.store.Creator(ctx, set)
	}
	if errors.Is(err, feed.ErrNoSet) {
		return 0, "", false, nil
	}
	return bytes, by, err == nil, err
}

// measureDue measures the sets that are due.
func (q *Quota) measureDue(ctx context.Context, now time.Time) {
	var due []string
	q.mu.Lock()
	for set, k := range q.sets {
		switch {
		case now.Sub(k.published) > quotaRetention && k.bytes <= q.quota.Load()/1000:
			q.deleteLocked(set)
		case !now.Before(k.due), k.publishes >= quotaBurst:
			due = append(due, set)
		}
	}
	q.mu.Unlock()
	quota := q.quota.Load()
	for _, set := range due {
		if quota == 0 || ctx.Err() != nil {
			return
		}
		bytes, by, exists, err := q.measure(ctx, set)
		if err != nil {
			return // an error of the store, which is logged elsewhere
		}
		q.mu.Lock()
		if k := q.sets[set]; k != nil {
			q.updateLocked(k, by, bytes)
			k.due, k.publishes, k.known = now.Add(quotaSlowInterval), 0, exists
			if bytes > quota/2 {
				k.due = now // measure again at the next interval
			}
			total := max(bytes, q.byCreator[by])
			if full := total >= quota; full != k.warned {
				k.warned = full
				if full {
					q.log.Warn("a set, or all sets of its creator together, have reached the quota, so the set accepts no changes until retention removes some", "set", set, "bytes", bytes, "by", by, "together", total, "most", quota)
				} else {
					q.log.Info("a set that was full accepts changes again", "set", set, "bytes", bytes)
				}
			}
		}
		q.mu.Unlock()
	}
}
