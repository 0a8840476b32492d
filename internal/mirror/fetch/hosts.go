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
	maxWait       = 10 * time.Second // longest pause that a request waits for; with a longer one it fails, and its resource is retried later
	minPause      = time.Second      // first pause of a busy host that sends no Retry-After; doubled each time
	maxPause      = 5 * time.Minute
	maxHosts      = 1_000     // approximate maximum number of remembered hosts
	maxRetryAfter = time.Hour // longest pause that a Retry-After can set
)

// hostLimits limits concurrent requests in total and per host, and holds back requests to a host
// that asked for a pause. Requests to one host do not delay requests to another, unless all
// slots are in use.
type hostLimits struct {
	total   chan struct{}
	perHost int

	mu     sync.Mutex
	byName map[string]*hostState
}

// A hostState is the state of one host. It is retained at least while the host has requests or
// is paused.
type hostState struct {
	slots        chan struct{}
	requests     int       // in progress or waiting
	pausedUntil  time.Time // no request before this time
	pauses       int       // consecutive pauses
	unresponsive bool      // whether the pause is for a missing response
	lastResponse time.Time // time of the newest response
}

func newHostLimits(total, perHost int) *hostLimits {
	return &hostLimits{total: make(chan struct{}, total), perHost: perHost, byName: map[string]*hostState{}}
}

// A HostPausedError reports that a host must not get requests before a time.
type HostPausedError struct {
	Host         string
	Until        time.Time
	Unresponsive bool // the host did not respond; otherwise it asked for the pause
}

func (p *HostPausedError) Error() string {
	if p.Unresponsive {
		return fmt.Sprintf("host %s does not respond; paused until %s", p.Host, p.Until.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("host %s asks to wait until %s", p.Host, p.Until.UTC().Format(time.RFC3339))
}

// acquire waits for a slot for a request to a host. The caller must call release. The error is a
// *HostPausedError or the error of ctx.
func (h *hostLimits) acquire(ctx context.Context, name string) (release func(), err error) {
	h.mu.Lock()
	at := h.byName[name]
	if at == nil {
		if len(h.byName) >= maxHosts {
			maps.DeleteFunc(h.byName, func(_ string, at *hostState) bool { return at.requests == 0 && !at.pausedUntil.After(time.Now()) })
		}
		at = &hostState{slots: make(chan struct{}, h.perHost)}
		h.byName[name] = at
	}
	at.requests++
	h.mu.Unlock()
	removeRequest := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		at.requests--
	}
	if err := acquireSlot(ctx, at.slots); err != nil {
		removeRequest()
		return nil, err
	}
	err = h.waitForPause(ctx, name, at)
	if err == nil {
		err = acquireSlot(ctx, h.total)
	}
	if err != nil {
		<-at.slots
		removeRequest()
		return nil, err
	}
	return func() { <-h.total; <-at.slots; removeRequest() }, nil
}

func acquireSlot(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitForPause waits for the end of a pause of the host, if that is near.
func (h *hostLimits) waitForPause(ctx context.Context, name string, at *hostState) error {
	for {
		h.mu.Lock()
		until, silent := at.pausedUntil, at.unresponsive
		h.mu.Unlock()
		left := time.Until(until)
		switch {
		case left <= 0:
			return nil
		case left > maxWait:
			return &HostPausedError{name, until, silent}
		}
		if err := backoff.Sleep(ctx, left); err != nil {
			return err
		}
	}
}

// recordResponse records a response of a host. The caller must hold a slot of the host.
func (h *hostLimits) recordResponse(name string, resp *http.Response) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.byName[name]
	at.lastResponse = time.Now()
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		at.pauses = 0
		return
	}
	pause := min(problem.RetryAfter(resp.Header, time.Now()), maxRetryAfter)
	if pause == 0 {
		pause = backoff.Exponential(minPause, maxPause, at.pauses)
	}
	at.pauses++
	if until := time.Now().Add(pause); until.After(at.pausedUntil) {
		at.pausedUntil, at.unresponsive = until, false
	}
}

// recordTimeout records that a request got no response. If it waited long and no other request
// got a response in the meantime, the host is paused: otherwise each of its resources would wait
// as long, and so would everything applied with them. The caller must hold a slot of the host.
func (h *hostLimits) recordTimeout(name string, start time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, now := h.byName[name], time.Now()
	waited := now.Sub(start)
	if waited <= maxWait || at.lastResponse.After(start) || at.pausedUntil.After(now) {
		return
	}
	at.pausedUntil, at.unresponsive = now.Add(backoff.Exponential(waited, maxPause, at.pauses)), true
	at.pauses++
}
