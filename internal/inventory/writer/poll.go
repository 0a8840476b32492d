package writer

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

const (
	scanShare   = 200         // scans of all sets take at most 1/scanShare of the time, unless they fail
	scanTimeout = time.Minute // for one poll
	activeFor   = time.Minute // time for which a changed set is polled often
)

// updateSets updates the inventories until ctx is done.
func (w *Writer) updateSets(ctx context.Context) {
	tick := time.NewTicker(w.opts.Poll)
	defer tick.Stop()
	for ctx.Err() == nil {
		w.round(ctx)
		select {
		case <-tick.C:
		case <-w.wake:
		case <-ctx.Done():
		}
	}
}

// round accepts requests, polls the log, and updates the sets that need it.
func (w *Writer) round(ctx context.Context) {
	requests, holdsChanged := w.takeRequests()
	if holdsChanged {
		w.scanned = time.Time{}
	}
	for set, damaged := range requests {
		if u := w.updater(set); u != nil {
			u.request(damaged)
			w.active[set] = u
		}
	}
	polled := w.poll(ctx)
	for set, u := range polled {
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		if !u.active(now) {
			delete(w.active, set)
		}
		if u.due(now) && w.hold(set) == u.hold {
			w.pacer.startSlice()
			u.run(ctx)
		}
	}
	if len(polled) > 0 || len(w.sets) == 0 {
		w.updateGauges()
	}
}

// updater returns the updater of a set under the present claim, or nil if this hub does not own the set.
func (w *Writer) updater(set string) *updater {
	u, hold := w.sets[set], w.hold(set)
	if u != nil && u.hold != hold {
		w.remove(u)
		u = nil
	}
	if u == nil && hold != nil {
		u = &updater{w: w, set: set, hold: hold, inv: inventory.New(w.store, set, inventory.Options{Cache: w.opts.Cache}).Writer(hold.Number)}
		w.sets[set] = u
	}
	return u
}

// remove removes an updater.
func (w *Writer) remove(u *updater) {
	u.dropPending() // no longer count its memory
	delete(w.sets, u.set)
	delete(w.active, u.set)
}

// poll polls the heads of active sets, or of all sets if a scan is due. It adds and removes updaters, and returns
// the updaters of the sets that it polled.
func (w *Writer) poll(ctx context.Context) map[string]*updater {
	now := time.Now()
	scan, polled := w.scanned.IsZero() || now.Sub(w.scanned) >= w.pacer.scanInterval, w.active
	if scan {
		polled = w.sets
	}
	states, err := w.readHeads(ctx, scan)
	if scan {
		pause := scanShare * time.Since(now)
		if err != nil {
			pause = min(pause, maxRetry)
		}
		w.scanned, w.pacer.scanInterval = now, max(w.opts.Poll, pause)
	}
	exist := map[string]bool{}
	for _, s := range states {
		exist[s.Set] = true
		if u := w.updater(s.Set); u != nil {
			u.observe(s, now)
			if u.active(now) {
				w.active[s.Set] = u
			}
		}
	}
	for _, u := range polled {
		if err == nil && !exist[u.set] {
			w.remove(u)
		}
	}
	if w.pollError.changed(err) && ctx.Err() == nil {
		w.metrics.late.Inc()
		w.logger.Warn("read of the heads of all sets failed; inventories are not updated", "err", err)
	}
	return polled
}

// An errorText is the text of the last error of something that is tried again and again, so that the same error is
// not logged each time.
type errorText string

// changed records an error, or nil, and reports whether it must be logged.
func (t *errorText) changed(err error) bool {
	last := *t
	if *t = ""; err != nil {
		*t = errorText(err.Error())
	}
	return err != nil && *t != last
}

// pollActive polls the heads of active sets for the pacer, between slices of work.
func (w *Writer) pollActive(ctx context.Context) { _, _ = w.readHeads(ctx, false) }

// readHeads reads the states of active sets, or of all sets. After an error it may return some of them.
func (w *Writer) readHeads(ctx context.Context, all bool) ([]feed.State, error) {
	names := slices.Collect(maps.Keys(w.active))
	if all {
		names = nil
	} else if len(names) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	states, err := w.log.Sets(ctx, names...)
	w.pacer.observe(states)
	return states, err
}
