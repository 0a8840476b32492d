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

// A Store is what a Quota measures.
type Store interface {
	// Kept returns about how many bytes a set keeps. The error is feed.ErrNoSet if there is
	// no such set.
	Kept(ctx context.Context, set string) (bytes int64, err error)
	// Maker returns who made a set. The error is feed.ErrNoSet if there is no such set.
	Maker(ctx context.Context, set string) (by string, err error)
	// Capacity returns how many bytes the store has room for; 0: nobody knows.
	Capacity(ctx context.Context) (bytes int64, err error)
}

// A Quota keeps one set from taking the room of all. It measures the sets that are
// published to, now and then, because measuring is too slow for each publish. So a set may
// come to keep more than it may by what is published to it between two looks.
//
// Where there are callers, the sets that one caller has made may together keep no more than
// one set: otherwise a second set would take what is left.
type Quota struct {
	store   Store
	callers bool         // the makers of sets are known
	part    bool         // most is a part of the store's capacity
	most    atomic.Int64 // bytes that a set may keep; 0: any number
	log     *slog.Logger

	mu   sync.Mutex
	sets map[string]*keeps // that were published to lately, and those that keep much
	all  map[string]int64  // bytes that the sets of a maker keep
}

// keeps says what a set keeps.
type keeps struct {
	bytes  int64
	by     string    // who made it
	known  bool      // by is: the set was measured, and was there
	due    time.Time // of the next look
	grew   time.Time // when it was published to last
	often  int       // how often it was published to since the last look
	warned bool      // the log knows that it is full
}

// How often sets are looked at, and the capacity.
const (
	quotaEvery  = 5 * time.Second
	quotaSeldom = time.Minute // a set that keeps less than half of what it may, and the capacity
	quotaForget = 10 * time.Minute
	quotaOften  = 20 // a set that was published to so often is looked at soon, however little it kept
)

// mostMeasured bounds how many sets are measured.
const mostMeasured = 100_000

// NewQuota returns a Quota of most bytes for each set. 0 means four fifths of the capacity of
// the store, and a negative number means that a set may keep any number of bytes. callers
// says that the makers of sets are known.
func NewQuota(s Store, most int64, callers bool, log *slog.Logger) *Quota {
	q := &Quota{store: s, callers: callers, part: most == 0, log: log, sets: map[string]*keeps{}, all: map[string]int64{}}
	q.most.Store(max(most, 0))
	return q
}

// off reports whether a set may keep any number of bytes.
func (q *Quota) off() bool { return q.most.Load() == 0 && !q.part }

// Full reports whether a set keeps as much as it may, or all sets of its maker do together,
// and how many bytes that is. It does not block.
func (q *Quota) Full(set string) (most int64, full bool) {
	if most = q.most.Load(); q.off() {
		return 0, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.sets[set]
	return most, k != nil && k.known && most > 0 && max(k.bytes, q.all[k.by]) >= most
}

// together returns what the sets of a maker keep, or a set where nobody knows the makers.
func (q *Quota) together(by string) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.callers {
		return q.all[by]
	}
	if k := q.sets[by]; k != nil {
		return k.bytes
	}
	return 0
}

// Grew notes that a publish to a set was accepted, so that the set is measured. It does not
// block. Sets to which nobody can publish must not be noted: a publisher may name any number.
func (q *Quota) Grew(set string) {
	if q.off() {
		return
	}
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.sets[set]
	if k == nil {
		q.makeRoomLocked()
		k = &keeps{}
		q.sets[set] = k
	}
	k.grew = now
	k.often++
}

// makeRoomLocked forgets one of the sets if there are as many as may be: of a few that it
// looks at, the one that keeps least. That one is measured again when it is published to.
func (q *Quota) makeRoomLocked() {
	if len(q.sets) < mostMeasured {
		return
	}
	least, looked := "", 0
	for set, k := range q.sets { // in random order
		if looked == 0 || k.bytes < q.sets[least].bytes {
			least = set
		}
		if looked++; looked == 16 {
			break
		}
	}
	q.forgetLocked(least)
}

// forgetLocked forgets a set.
func (q *Quota) forgetLocked(set string) {
	q.countLocked(q.sets[set], "", 0)
	delete(q.sets, set)
}

// countLocked notes what a set keeps, and who made it.
func (q *Quota) countLocked(k *keeps, by string, bytes int64) {
	if q.callers {
		if q.all[k.by] -= k.bytes; q.all[k.by] <= 0 {
			delete(q.all, k.by)
		}
		if bytes > 0 {
			q.all[by] += bytes
		}
	}
	k.by, k.bytes = by, bytes
}

// Run looks at the sets until ctx is done.
func (q *Quota) Run(ctx context.Context) {
	ticker := time.NewTicker(quotaEvery)
	defer ticker.Stop()
	var capacityDue time.Time
	for {
		if now := time.Now(); q.part && !now.Before(capacityDue) {
			capacityDue = now.Add(quotaSeldom)
			if bytes, err := q.store.Capacity(ctx); err == nil {
				q.most.Store(bytes / 5 * 4)
			}
		}
		q.look(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// measure returns what a set keeps, and who made it. A set that is not there keeps nothing.
func (q *Quota) measure(ctx context.Context, set string) (bytes int64, by string, there bool, err error) {
	bytes, err = q.store.Kept(ctx, set)
	if err == nil && q.callers {
		by, err = q.store.Maker(ctx, set)
	}
	if errors.Is(err, feed.ErrNoSet) {
		return 0, "", false, nil
	}
	return bytes, by, err == nil, err
}

// look measures the sets that are due.
func (q *Quota) look(ctx context.Context, now time.Time) {
	var due []string
	q.mu.Lock()
	for set, k := range q.sets {
		switch {
		case now.Sub(k.grew) > quotaForget && k.bytes <= q.most.Load()/1000:
			q.forgetLocked(set)
		case !now.Before(k.due), k.often >= quotaOften:
			due = append(due, set)
		}
	}
	q.mu.Unlock()
	most := q.most.Load()
	for _, set := range due {
		if most == 0 || ctx.Err() != nil {
			return
		}
		bytes, by, there, err := q.measure(ctx, set)
		if err != nil {
			return // the store has a problem; that is said elsewhere
		}
		q.mu.Lock()
		if k := q.sets[set]; k != nil {
			q.countLocked(k, by, bytes)
			k.due, k.often, k.known = now.Add(quotaSeldom), 0, there
			if bytes > most/2 {
				k.due = now // at the next look
			}
			together := max(bytes, q.all[by])
			if full := together >= most; full != k.warned {
				k.warned = full
				if full {
					q.log.Warn("a set, or all sets of its maker together, have reached the limit of bytes: the set takes no more changes until retention removes some", "set", set, "bytes", bytes, "by", by, "together", together, "most", most)
				} else {
					q.log.Info("a set that was full takes changes again", "set", set, "bytes", bytes)
				}
			}
		}
		q.mu.Unlock()
	}
}
