package callback

import (
	"maps"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/backoff"
)

const (
	// keyRetry is the interval of attempts while the key of a secret is missing. Keys come with a restart,
	// or with another hub.
	keyRetry = 10 * time.Minute

	resealMax = 100 // most subscriptions whose secrets are encrypted in one commit
)

// Missing returns the IDs of keys that this hub does not have, with the number of its subscriptions that
// need each.
func (e *Engine) Missing() map[string]int {
	e.counts.mu.Lock()
	defer e.counts.mu.Unlock()
	return maps.Clone(e.counts.missing)
}

// reseal stores the subscriptions whose secrets are in clear text or encrypted with a key that is not the
// first, so that they are encrypted with the first. It returns when that is done or the shard has ended.
func (sh *shard) reseal() {
	for {
		more, err := sh.resealSome()
		if !more {
			return
		}
		wait := time.Second // some may have an owner
		if err != nil {
			wait = time.Minute
		}
		if backoff.Sleep(sh.ctx, wait) != nil {
			return
		}
	}
}

// resealSome stores at most resealMax of these subscriptions, and reports whether there may be more.
func (sh *shard) resealSome() (more bool, err error) {
	sh.writer.commit <- struct{}{} // newer progress is stored later
	defer func() { <-sh.writer.commit }()
	var subs []*sub
	var stale []*subscription.Subscription
	var changes subscription.Changes
	sh.mu.Lock()
	for _, s := range sh.subs {
		switch {
		case s.about == nil || !s.about.Stale:
		case s.stage == owned || len(subs) == resealMax: // an owner may change it
			more = true
		default:
			subs, stale, changes.Put = append(subs, s), append(stale, s.about), append(changes.Put, s.record())
		}
	}
	sh.mu.Unlock()
	if err := sh.writer.store(changes); err != nil {
		return true, err
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i, s := range subs {
		if s.about != stale[i] || s.stage == owned {
			more = true // if it is still stale
			continue
		}
		about := *s.about
		about.Stale = false
		sh.engine.counts.addSub(s, -1)
		s.about = &about
		sh.engine.counts.addSub(s, 1)
	}
	return more, nil
}
