package access

import (
	"context"
	"sync"
	"time"
)

// sweepEvery is how often a Watch looks whether anything has changed. So rights that end
// end what they allowed within this time.
const sweepEvery = time.Second

// A Watch ends what outlives a request, such as a stream, when the rights of its caller
// end.
type Watch struct {
	authenticator Authenticator

	mu      sync.Mutex
	held    map[*hold]struct{}
	version uint64    // of the authenticator, when all were looked at last
	again   bool      // all are to be looked at
	first   time.Time // the earliest time at which one expires; zero: none does
}

type hold struct {
	caller Caller
	may    func(Caller) error
	end    func(error)
}

// NewWatch returns a Watch over the callers of an Authenticator. Run does the work.
func NewWatch(a Authenticator) *Watch {
	return &Watch{authenticator: a, held: map[*hold]struct{}{}, version: a.Version()}
}

// Hold calls end once, when the caller of ctx may not do any more what may asks for, with
// the problem that a new request would get, which is what may returns unless the token itself
// is no good any more. It calls end at once if that is so already. Neither may nor end may
// block. After release, end is not called, unless it is being called.
func (w *Watch) Hold(ctx context.Context, may func(Caller) error, end func(error)) (release func()) {
	h := &hold{FromContext(ctx), may, end}
	w.mu.Lock()
	w.held[h] = struct{}{}
	w.checkLocked(h) // something may have changed since the request began
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		delete(w.held, h)
		w.mu.Unlock()
	}
}

// Run looks after what is held until ctx is done. It does not end what is held then.
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

// Recheck says that what some may asks for may be otherwise than before. All that is held
// is looked at soon.
func (w *Watch) Recheck() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.again = true
}

// sweep ends what nobody may do any more, if anything may have changed.
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

// checkLocked ends h if its caller may not do any more what it allows. It needs w.mu held.
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
