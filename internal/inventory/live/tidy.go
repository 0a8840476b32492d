package live

import (
	"context"
	"slices"
	"time"
)

// tidyEvery is the time between two rounds of tidy.
const tidyEvery = 15 * time.Second

// How often tidy looks for remains of deleted sets, and how many sets it then sweeps. If
// there are more, it goes on in the next round.
const (
	sweepEvery = time.Hour
	sweepMost  = 100
)

// tidy renews pins, drops states that no reader has used for a while, and removes the
// remains of deleted sets, until ctx is done.
func (l *Live) tidy(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	var sweep time.Time // when the next sweep is due
	for {
		select {
		case now := <-tick.C:
			l.dropOld(time.Now())
			l.renew(ctx, false)
			if now.Before(sweep) {
				continue
			}
			if !l.sweep(ctx) {
				sweep = now.Add(sweepEvery)
			}
		case <-ctx.Done():
			return
		}
	}
}

// dropOld drops the states and overlays that were not used for a while.
func (l *Live) dropOld(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for set, v := range l.views {
		for _, k := range slices.Clone(v.kept) {
			if k.readers == 0 && now.Sub(k.used) >= keepFor {
				l.forgetLocked(k)
			}
		}
		if v.waiters > 0 || now.Sub(v.used) < keepFor {
			continue
		}
		v.dropLocked() // without waiters, nobody has the turn
		if len(v.kept) == 0 && len(v.snapshots) == 0 {
			delete(l.views, set)
		}
	}
}

// sweep removes the remains of some deleted sets. It reports whether there may be more.
func (l *Live) sweep(ctx context.Context) (more bool) {
	n, err := l.opts.SweepDeleted(ctx, sweepMost)
	if err != nil && ctx.Err() == nil {
		l.logger.Warn("removal of inventories of deleted sets failed; retrying", "err", err)
	}
	if n > 0 {
		l.logger.Info("removed inventories of deleted sets", "sets", n)
	}
	return n == sweepMost && err == nil
}
