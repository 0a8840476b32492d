package fetch

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/problem"
)

const (
	shortPause = 10 * time.Second // the longest pause of a host that a request waits for; after a longer one, its resource is tried later
	firstPause = time.Second      // the pause of a busy host that does not say how long; doubled each time
	mostPause  = 5 * time.Minute
	hostsMost  = 1_000     // about the most hosts that are remembered
	longest    = time.Hour // the longest pause that a Retry-After may ask for
)

// hosts bound how many requests are under way, in all and at each host, and keep requests
// away from a host that asked for a pause. Requests to one host do not delay those to
// another, unless all places are taken.
type hosts struct {
	total   chan struct{}
	perHost int

	mu     sync.Mutex
	byName map[string]*host
}

// A host is the state of one host. It is kept at least while it has visitors or is paused.
type host struct {
	slots    chan struct{}
	visitors int       // requests that are under way or wait
	until    time.Time // no request before this time
	busy     int       // busy answers in a row, or times of silence
	silent   bool      // until is because of silence
	heard    time.Time // when the newest answer came
}

func newHosts(total, perHost int) *hosts {
	return &hosts{total: make(chan struct{}, total), perHost: perHost, byName: map[string]*host{}}
}

// A Paused means that a host wants no requests until some time.
type Paused struct {
	Host   string
	Until  time.Time
	Silent bool // it said nothing at all
}

func (p *Paused) Error() string {
	if p.Silent {
		return fmt.Sprintf("%s does not answer, and is not asked until %s", p.Host, p.Until.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("%s asks to wait until %s", p.Host, p.Until.UTC().Format(time.RFC3339))
}

// enter waits until there is room for a request to a host. The caller must call leave.
// The error is a *Paused, or ctx's error.
func (h *hosts) enter(ctx context.Context, name string) (leave func(), err error) {
	h.mu.Lock()
	at := h.byName[name]
	if at == nil {
		if len(h.byName) >= hostsMost {
			maps.DeleteFunc(h.byName, func(_ string, at *host) bool { return at.visitors == 0 && !at.until.After(time.Now()) })
		}
		at = &host{slots: make(chan struct{}, h.perHost)}
		h.byName[name] = at
	}
	at.visitors++
	h.mu.Unlock()
	gone := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		at.visitors--
	}
	if err := take(ctx, at.slots); err != nil {
		gone()
		return nil, err
	}
	err = h.wait(ctx, name, at)
	if err == nil {
		err = take(ctx, h.total)
	}
	if err != nil {
		<-at.slots
		gone()
		return nil, err
	}
	return func() { <-h.total; <-at.slots; gone() }, nil
}

func take(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait waits for the end of a host's pause, if the pause is short.
func (h *hosts) wait(ctx context.Context, name string, at *host) error {
	for {
		h.mu.Lock()
		until, silent := at.until, at.silent
		h.mu.Unlock()
		left := time.Until(until)
		switch {
		case left <= 0:
			return nil
		case left > shortPause:
			return &Paused{name, until, silent}
		}
		if err := backoff.Sleep(ctx, left); err != nil {
			return err
		}
	}
}

// answered notes an answer of a host. The caller has called enter, and not
// leave yet.
func (h *hosts) answered(name string, resp *http.Response) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.byName[name]
	at.heard = time.Now()
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		at.busy = 0
		return
	}
	pause := min(problem.RetryAfter(resp.Header, time.Now()), longest)
	if pause == 0 {
		pause = backoff.Exponential(firstPause, mostPause, at.busy)
	}
	at.busy++
	if until := time.Now().Add(pause); until.After(at.until) {
		at.until, at.silent = until, false
	}
}

// unanswered notes that a request had no answer. After a long wait, and if no other request had an
// answer meanwhile, the host gets a pause: else each of its resources would wait as long, and
// what is applied together with them. The caller has called enter, and not leave yet.
func (h *hosts) unanswered(name string, began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, now := h.byName[name], time.Now()
	waited := now.Sub(began)
	if waited <= shortPause || at.heard.After(began) || at.until.After(now) {
		return
	}
	at.until, at.silent = now.Add(backoff.Exponential(waited, mostPause, at.busy)), true
	at.busy++
}
