package live

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// A maker makes the inventories of the sets whose shard this hub claims, one after
// another.
type maker struct {
	live *Live
	pace pace
	wake backoff.Wakeup // wakes run because there is work

	// Only the goroutine of run uses these.
	jobs    map[string]*job
	active  map[string]*job // the jobs that are looked at often
	waiting int             // memory of all backlogs
	scanned time.Time       // when all sets were last looked at
	said    string          // the last logged failure to look at the sets

	mu      sync.Mutex
	scan    bool            // all sets have to be looked at soon
	asked   map[string]bool // sets to commit soon, even if another hub claims them; true: a reader found damage
	present present         // for the metrics
}

func newMaker(l *Live) *maker {
	m := &maker{live: l, wake: backoff.NewWakeup(), jobs: map[string]*job{}, active: map[string]*job{}, asked: map[string]bool{}}
	m.pace.look = m.glance
	return m
}

const (
	scanShare   = 200         // looks at all sets take at most 1/scanShare of the time
	activeFor   = time.Minute // how long a changed set is looked at often
	scanEndless = time.Minute // the most time of one look at the heads of sets
)

// look makes run look at all sets soon.
func (m *maker) look() {
	m.mu.Lock()
	m.scan = true
	m.mu.Unlock()
	m.wake.Wake()
}

// ask makes run commit the waiting changes of a set soon, even if another hub
// claims the set.
func (m *maker) ask(set string, damaged bool) {
	m.mu.Lock()
	m.asked[set] = m.asked[set] || damaged
	m.mu.Unlock()
	m.wake.Wake()
}

// run makes inventories until ctx is done.
func (m *maker) run(ctx context.Context) {
	tick := time.NewTicker(m.live.opts.Poll)
	defer tick.Stop()
	for ctx.Err() == nil {
		m.round(ctx)
		select {
		case <-tick.C:
		case <-m.wake:
		case <-ctx.Done():
		}
	}
}

// round looks at the sets whose look is due, and does the work that they need.
func (m *maker) round(ctx context.Context) {
	m.mu.Lock()
	asked, scan := m.asked, m.scan
	m.asked, m.scan = map[string]bool{}, false
	m.mu.Unlock()
	if scan {
		m.scanned = time.Time{}
	}
	for set, damaged := range asked {
		j := m.jobs[set]
		if j == nil {
			j = newJob(m, set)
			m.jobs[set] = j
		}
		if !j.damaged { // damage that could not be mended is known; readers find it again and again
			j.retry = time.Time{}
		}
		j.asked, j.damaged = true, j.damaged || damaged
		m.active[set] = j
	}
	todo := m.active
	if m.compare(ctx) {
		todo = m.jobs
	}
	worked := false
	for set, j := range todo {
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		if !j.busy(now) {
			delete(m.active, set)
		}
		if j.idle(now) || !j.asked && !m.live.Mine(j.set) {
			continue
		}
		worked = true
		m.pace.begin()
		j.turn(ctx)
	}
	if worked || len(todo) > 0 {
		m.tell()
	}
}

// compare looks at the heads of changing sets, and now and then at those of all
// sets. It reports whether it looked at all.
func (m *maker) compare(ctx context.Context) (all bool) {
	now := time.Now()
	var names []string
	if all = m.scanned.IsZero() || now.Sub(m.scanned) >= m.pace.every; !all {
		names = slices.Collect(maps.Keys(m.active))
	}
	if !all && len(names) == 0 {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, scanEndless)
	defer cancel()
	states, err := m.live.log.Sets(limited, names...)
	if all && err == nil {
		m.scanned = now
		m.pace.every = max(m.live.opts.Poll, scanShare*time.Since(now))
	}
	m.noteFailure(ctx, err)
	seen := map[string]bool{}
	for _, s := range states {
		seen[s.Set] = true
		if j := m.jobs[s.Set]; j != nil {
			j.saw(s, now)
			if j.busy(now) {
				m.active[s.Set] = j
			}
		} else if all && m.live.Mine(s.Set) {
			j := newJob(m, s.Set)
			m.jobs[s.Set], m.active[s.Set] = j, j
			j.saw(s, now)
		}
	}
	m.pace.saw(states, all)
	if err != nil {
		return all
	}
	known := m.active
	if all {
		known = m.jobs
	}
	for _, set := range slices.Collect(maps.Keys(known)) {
		if j := m.jobs[set]; !seen[set] || !j.asked && !m.live.Mine(set) {
			j.forget()
			delete(m.jobs, set)
			delete(m.active, set)
		}
	}
	return all
}

// glance looks at the heads of changing sets for the pace, in the middle of other
// work.
func (m *maker) glance(ctx context.Context) {
	if len(m.active) == 0 {
		return
	}
	limited, cancel := context.WithTimeout(ctx, scanEndless)
	defer cancel()
	if states, err := m.live.log.Sets(limited, slices.Collect(maps.Keys(m.active))...); err == nil {
		m.pace.saw(states, false)
	}
}

// noteFailure logs a failure to look at the sets, once.
func (m *maker) noteFailure(ctx context.Context, err error) {
	now := ""
	if err != nil {
		now = err.Error()
	}
	if now != "" && now != m.said && ctx.Err() == nil && !errors.Is(err, feed.ErrNoSet) {
		m.live.metrics.failed.Inc()
		m.live.logger.Warn("read of the heads of all sets failed; inventories are not updated", "err", err)
	}
	m.said = now
}
