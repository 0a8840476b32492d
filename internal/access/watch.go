package access

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// sweepEvery is how often a Watch looks for changed rights. A stream ends within this
// time after its caller loses the right.
const sweepEvery = time.Second

// A Watch ends streams, and other things that outlive a request, when their caller
// loses the right to them.
type Watch struct {
	authenticator Authenticator

	mu      sync.Mutex
	rights  map[*watched]struct{}
	version uint64    // of the authenticator, at the last check of all rights
	again   bool      // the next sweep has to check all rights
	first   time.Time // when the first caller expires; zero: none does
}

// A watched is a right that a caller is using.
type watched struct {
	caller Caller
	may    func(Caller) error
	end    func(error)
}

// NewWatch returns a Watch for the callers of an Authenticator. It does nothing
// until Run, except that While checks at once.
func NewWatch(a Authenticator) *Watch {
	return &Watch{authenticator: a, rights: map[*watched]struct{}{}, version: a.Version()}
}

// While watches whether the caller in ctx keeps a right. may checks the right. While calls
// end once when the caller's token is no longer valid, or when may returns an error; if
// that is so already, it calls end before it returns. end gets the error, which is the
// problem that a new request would get. may and end must not block. After release, end is
// not called again; a call that has begun may still be running.
func (w *Watch) While(ctx context.Context, may func(Caller) error, end func(error)) (release func()) {
	u := &watched{FromContext(ctx), may, end}
	w.mu.Lock()
	w.rights[u] = struct{}{}
	w.mu.Unlock()
	w.check(u) // the rights may have changed since the request began
	return func() {
		w.mu.Lock()
		delete(w.rights, u)
		w.mu.Unlock()
	}
}

// Run checks all rights within a second after they may have changed, until ctx is done. It
// ends nothing then.
func (w *Watch) Run(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
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

// Recheck says that a check may now give another result, for instance because a set
// became private. Run then checks all rights within a second.
func (w *Watch) Recheck() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again = true
}

// sweep checks all rights, if any result may have changed.
func (w *Watch) sweep() {
	version := w.authenticator.Version()
	w.mu.Lock()
	if version == w.version && !w.again && (w.first.IsZero() || time.Now().Before(w.first)) {
		w.mu.Unlock()
		return
	}
	w.version, w.again, w.first = version, false, time.Time{}
	all := slices.Collect(maps.Keys(w.rights))
	w.mu.Unlock()
	for _, u := range all {
		w.check(u)
	}
}

// check calls u's end, and drops u, if its caller has lost the right. It does not hold w.mu
// while it finds that out: after a change of keys, each JWT is verified again.
func (w *Watch) check(u *watched) {
	now, err := u.caller.Now()
	if err == nil {
		err = u.may(now)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, held := w.rights[u]; !held {
		return // it was released, or ended by another check
	}
	if err != nil {
		u.end(err)
		delete(w.rights, u)
		return
	}
	if at := now.Expires; !at.IsZero() && (w.first.IsZero() || at.Before(w.first)) {
		w.first = at
	}
}
