package access

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// sweepInterval is the interval at which a Watch checks for changed rights. A stream ends within
// this time after its caller loses the right.
const sweepInterval = time.Second

// A Watch ends streams and other objects that outlive a request when their caller loses the right
// to them.
type Watch struct {
	authenticator Authenticator

	mu         sync.Mutex
	rights     map[*registration]struct{}
	version    uint64    // version of the authenticator at the last check of all rights
	recheck    bool      // whether the next sweep must check all rights
	nextExpiry time.Time // earliest expiry of a caller; zero if there is none
}

// A registration is a right in use by a caller.
type registration struct {
	caller    Caller
	check     func(Caller) error
	onRevoked func(error)
}

// NewWatch returns a Watch for the callers of an Authenticator. Call Run to start it. While checks
// its right immediately, even before Run.
func NewWatch(a Authenticator) *Watch {
	return &Watch{authenticator: a, rights: map[*registration]struct{}{}, version: a.Version()}
}

// While watches whether the caller in ctx keeps a right. check checks the right. While calls
// onRevoked once when the token of the caller is no longer valid, or when check returns an error;
// if that is already the case, it calls onRevoked before it returns. onRevoked gets the error,
// which is the problem that a new request would get. check and onRevoked must not block. After
// release, onRevoked is not called; a call in progress may still be running.
func (w *Watch) While(ctx context.Context, check func(Caller) error, onRevoked func(error)) (release func()) {
	u := &registration{FromContext(ctx), check, onRevoked}
	w.mu.Lock()
	w.rights[u] = struct{}{}
	w.mu.Unlock()
	w.check(u) // the rights may have changed since the start of the request
	return func() {
		w.mu.Lock()
		delete(w.rights, u)
		w.mu.Unlock()
	}
}

// Run checks all rights within a second after they may have changed. It returns when ctx is done,
// and does not call onRevoked then.
func (w *Watch) Run(ctx context.Context) {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.sweep()
		}
	}
}

// Recheck makes Run check all rights within a second. It must be called when the result of a check
// may have changed, for example because a set became private.
func (w *Watch) Recheck() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recheck = true
}

// sweep checks all rights if any result may have changed.
func (w *Watch) sweep() {
	version := w.authenticator.Version()
	w.mu.Lock()
	if version == w.version && !w.recheck && (w.nextExpiry.IsZero() || time.Now().Before(w.nextExpiry)) {
		w.mu.Unlock()
		return
	}
	w.version, w.recheck, w.nextExpiry = version, false, time.Time{}
	all := slices.Collect(maps.Keys(w.rights))
	w.mu.Unlock()
	for _, u := range all {
		w.check(u)
	}
}

// check calls u.onRevoked and removes u if its caller has lost the right. It does not hold w.mu
// while it checks, because after a change of keys, each JWT is verified again.
func (w *Watch) check(u *registration) {
	now, err := u.caller.Refresh()
	if err == nil {
		err = u.check(now)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.rights[u]; !ok {
		return // it was released or ended by another check
	}
	if err != nil {
		u.onRevoked(err)
		delete(w.rights, u)
		return
	}
	if at := now.Expires; !at.IsZero() && (w.nextExpiry.IsZero() || at.Before(w.nextExpiry)) {
		w.nextExpiry = at
	}
}
