package live

import (
	"context"
	"time"
)

// tidyEvery is the time between two looks at what readers have left.
const tidyEvery = 15 * time.Second

// What deleted sets have left is looked for so often, and removed of so many sets then. If
// there is more, it goes on with the next tick.
const (
	sweepEvery = time.Hour
	sweepMost  = 100
)

// tidy renews pins, drops what readers have not come back for, and removes what deleted
// sets have left, until ctx is done.
func (l *Live) tidy(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	var sweep time.Time // when it is time again
	for {
		select {
		case now := <-tick.C:
			l.dropOld(time.Now())
			l.renew(ctx)
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
		for i := 0; i < len(v.kept); {
			if k := v.kept[i]; k.readers == 0 && now.Sub(k.used) >= l.opts.Keep {
				l.forgetLocked(k)
			} else {
				i++
			}
		}
		if v.waiters > 0 || now.Sub(v.used) < l.opts.Keep {
			continue
		}
		v.dropLocked() // without waiters, nobody has the turn
		if len(v.kept) == 0 && len(v.snapshots) == 0 {
			delete(l.views, set)
		}
	}
}

// sweep removes what deleted sets have left, of some of them. It reports whether there may
// be more.
func (l *Live) sweep(ctx context.Context) (more bool) {
	n, err := l.opts.SweepDeleted(ctx, sweepMost)
	if err != nil && ctx.Err() == nil {
		l.logger.Warn("the inventories of deleted sets cannot be removed now", "err", err)
	}
	if n > 0 {
		l.logger.Info("the inventories of deleted sets were removed", "sets", n)
	}
	return n == sweepMost && err == nil
}
