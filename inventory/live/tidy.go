package live

import (
	"context"
	"time"
)

// tidyEvery is the time between two looks at what readers have left.
const tidyEvery = 15 * time.Second

// tidy renews pins, and drops what readers have not come back for, until ctx is done.
func (l *Live) tidy(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.dropOld(time.Now())
			l.renew(ctx)
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
