package access

import (
	"context"
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
	held    map[*hold]struct{}
	version uint64    // of the authenticator, at the last check of all holds
	again   bool      // the next sweep has to check all holds
	first   time.Time // when the first caller expires; zero: none does
}

type hold struct {
	caller Caller
	may    func(Caller) error
	end    func(error)
}

// NewWatch returns a Watch for the callers of an Authenticator. It does nothing
// until Run, except that Hold checks at once.
func NewWatch(a Authenticator) *Watch {
	return &Watch{authenticator: a, held: map[*hold]struct{}{}, version: a.Version()}
}

// Hold watches whether the caller in ctx keeps a right. may checks the right. Hold calls
// end once when the caller's token is no longer valid, or when may returns an error; if
// that is so already, it calls end before it returns. end gets the error, which is the
// problem that a new request would get. may and end must not block. After release, end is
// not called again; a call that has begun may still be running.
func (w *Watch) Hold(ctx context.Context, may func(Caller) error, end func(error)) (release func()) {
	h := &hold{FromContext(ctx), may, end}
	w.mu.Lock()
	w.held[h] = struct{}{}
	w.checkLocked(h) // the rights may have changed since the request began
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		delete(w.held, h)
		w.mu.Unlock()
	}
}

// Run checks all holds within a second after rights may have changed, until ctx
// is done. It does not end the holds that remain then.
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
// became private. Run then checks all holds within a second.
func (w *Watch) Recheck() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again = true
}

// sweep checks all holds, if any result may have changed.
func (w *Watch) sweep() {
	version := w.authenticator.Version()
	w.mu.Lock()
	defer w.mu.Unlock()
	if version == w.version && !w.again && (w.first.IsZero() || time.Now().Before(w.first)) {
		return
	}
	w.version, w.again, w.first = version, false, time.Time{}
	for h := range w.held {
		w.checkLocked(h)
	}
}

// checkLocked calls h's end, and drops h, if its caller has lost the right. The caller
// holds w.mu.
func (w *Watch) checkLocked(h *hold) {
	now, err := h.caller.Now()
	if err == nil {
		err = h.may(now)
	}
	if err != nil {
		h.end(err)
		delete(w.held, h)
		return
	}
	if at := now.Expires; !at.IsZero() && (w.first.IsZero() || at.Before(w.first)) {
		w.first = at
	}
}
