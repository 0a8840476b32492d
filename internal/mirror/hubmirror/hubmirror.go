// Package hubmirror maintains a mirror of each set of a hub.
//
// One connection, client.FollowAll, tells which sets have changed, and brings the changes. A mirror
// is opened only while there is work for it. If the changes do not continue a mirror, it reads from
// the hub, as a mirror of a single set does, so nothing is lost if changes are dropped here.
//
// Package mirror maintains the mirror of one set.
package hubmirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/mirror"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/mirror/ledger"
	"github.com/rshub/rshub/internal/source/discovery"
)

// Options configures Mirrors.
type Options struct {
	Hub          string // URL of the hub
	Client       client.Options
	Prefix       string        // prefix of the loc of all mirrored resources; default: all
	PollInterval time.Duration // time between polls of a set without an inventory at the hub

	Parallel int // number of mirrors that retry failures at a time; should be the number of parallel downloads

	Once    bool          // whether Run ends when all mirrors have caught up
	Timeout time.Duration // with Once, how long Run waits for an unresponsive hub

	// Dir returns the directory of the mirror of a set.
	Dir func(set string) string

	// Open opens the mirror of a set, and creates it if it does not exist. The caller closes Set.Home.
	Open func(set string) (*Set, error)

	// Find discovers the source of a set.
	Find func(ctx context.Context, set string) (*discovery.Source, error)

	// OnError is called when the mirror of a set fails. The others are not affected. wait is the
	// time until the next attempt, or zero with Once. Calls may be concurrent.
	OnError func(set string, err error, wait time.Duration)

	// Logf is called with messages for the user. Calls may be concurrent.
	Logf func(format string, args ...any)
}

// A Set is the open mirror of a set.
type Set struct {
	Home   *home.Home
	Sink   mirror.Sink
	Mirror *mirror.Mirror
}

// Totals are the sums of all mirrors.
type Totals struct {
	Sets    int
	Failed  int   // number of sets whose last attempt failed
	Files   int64 // number of files
	Bytes   int64 // of all files
	Missing int64 // number of resources of the hub's sets that could not be fetched
}

// Mirrors are the mirrors of all sets of a hub that the client may follow.
type Mirrors struct {
	home   *home.Home
	opts   Options
	limits limits

	batches, catchUps, retries slots // of mirrors that apply batches, catch up, and retry failures

	wg     sync.WaitGroup
	cancel context.CancelCauseFunc // ends Run

	mu      sync.Mutex
	sets    map[string]*set
	pending int  // number of entries in pending batches, and in those that are being applied
	stopped bool // whether Run is ending, so that no goroutine starts
}

// The numbers of mirrors that work at a time. A mirror may catch up for hours, and must not delay the
// batches of others. Retries have Options.Parallel slots, so only the limit of downloads delays them.
const (
	batchSlots   = 16
	catchUpSlots = 16
)

// slots limits the number of concurrent holders.
type slots chan struct{}

func (s slots) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s slots) release() { <-s }

// New returns the Mirrors whose records are in h.
func New(h *home.Home, o Options) (*Mirrors, error) {
	m := &Mirrors{
		home: h, opts: o, limits: defaultLimits,
		batches: make(slots, batchSlots), catchUps: make(slots, catchUpSlots), retries: make(slots, max(o.Parallel, 1)),
		sets: map[string]*set{},
	}
	var removed ledger.Batch
	for v, err := range h.Ledger.Metas(context.Background(), recordPrefix) {
		s := &set{name: strings.TrimPrefix(v.Name, recordPrefix)}
		if err == nil {
			err = json.Unmarshal(v.JSON, &s.record)
		}
		if err != nil {
			return nil, fmt.Errorf("read records of sets: %w", err)
		}
		switch dir := o.Dir(s.name); {
		case home.IsUnchanged(dir):
			m.sets[s.name] = s
		case home.Exists(dir): // another process may have changed the mirror, or this program was killed
			s.record.Cursor = feed.Cursor{}
			m.sets[s.name] = s
		default:
			removed.PutMeta(v.Name, nil)
		}
	}
	return m, h.Ledger.Commit(&removed)
}

// Run maintains the mirrors until ctx is canceled, then returns a nil error. With Once, it returns
// when all mirrors have caught up and retried all failures; if ctx is canceled before that, it
// returns the error of ctx. An error that concerns all mirrors ends Run: an error of the disk, or a
// *mirror.SourceError if the hub refuses the connection. Run must be called once.
func (m *Mirrors) Run(ctx context.Context) (Totals, error) {
	ctx, m.cancel = context.WithCancelCause(ctx)
	defer m.cancel(nil)
	m.mu.Lock()
	for _, s := range m.sets {
		if s.record.Missing > 0 {
			m.scheduleRetryLocked(ctx, s, backoff.Jitter(m.limits.retry))
		}
	}
	m.mu.Unlock()
	err := m.follow(ctx)
	if m.opts.Once && err == nil {
		m.wg.Wait()
	}
	cause := context.Cause(ctx)
	m.cancel(nil)
	m.stop()
	m.wg.Wait()
	switch {
	case cause != nil && !errors.Is(cause, context.Canceled):
		err = cause
	case cause != nil && !m.opts.Once:
		err = nil
	case cause != nil:
		err = cause
	}
	return m.totals(), err
}

// stop stops all timers, and prevents goroutines from starting.
func (m *Mirrors) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	for _, s := range m.sets {
		for _, t := range []*time.Timer{s.delay, s.retryTimer, s.check} {
			if t != nil {
				t.Stop()
			}
		}
	}
}

func (m *Mirrors) totals() (t Totals) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sets {
		t.Sets++
		t.Files, t.Bytes = t.Files+s.record.Files, t.Bytes+s.record.Bytes
		if !s.hidden { // resources of a deleted set cannot be fetched
			t.Missing += s.record.Missing
		}
		if s.failed {
			t.Failed++
		}
	}
	return t
}

// Missing returns the numbers of resources that could not be fetched, for each set that lacks some.
func (m *Mirrors) Missing() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	missing := map[string]int64{}
	for _, s := range m.sets {
		if s.record.Missing > 0 && !s.hidden {
			missing[s.name] = s.record.Missing
		}
	}
	return missing
}

// errRestart means that FollowAll must start again, because it no longer follows a set that exists.
var errRestart = errors.New("follow all sets again")

// follow follows all sets until ctx is canceled. With Once it returns when it has received the
// cursor of each set.
func (m *Mirrors) follow(ctx context.Context) error {
	o := m.opts.Client
	responded := func() {}
	if m.opts.Once {
		o, responded = mirror.LimitOutage(o, m.opts.Timeout, m.cancel)
	}
	c, err := client.New(m.opts.Hub, o)
	if err != nil {
		return &mirror.SourceError{Err: err}
	}
	for failures := 0; ; failures++ {
		began := time.Now()
		if err := m.followOnce(ctx, c, responded); err != errRestart {
			return err
		}
		if time.Since(began) > time.Minute {
			failures = 0
		}
		if err := backoff.Sleep(ctx, backoff.Exponential(time.Second, time.Minute, failures)); err != nil {
			return err
		}
	}
}

// followOnce follows all sets from now on. The mirrors read earlier changes from the hub.
func (m *Mirrors) followOnce(ctx context.Context, c *client.Client, responded func()) error {
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := map[string]bool{}
	var again *time.Timer // ends the connection because the hub could not start a set; nil if it could start all
	o := client.FollowAllOptions{All: true, AllFilter: feed.Filter{Prefix: m.opts.Prefix}, OnAllStarted: func() {
		m.hideOthers(seen)
		m.retrySources(ctx)
		if m.opts.Once {
			cancel()
		}
	}}
	for b, err := range c.FollowAll(following, o) {
		if e, ok := errors.AsType[*client.SetError](err); ok {
			switch {
			case errors.Is(e, feed.ErrNoSet):
				m.hide(e.Set)
				continue
			case seen[e.Set] && m.opts.Once:
				continue // its mirror catches up
			case seen[e.Set]:
				return errRestart
			}
			seen[e.Set] = true // perhaps its log is damaged
			m.failStart(e)
			if !m.opts.Once && again == nil {
				again = time.AfterFunc(m.limits.follow, cancel)
				defer again.Stop()
			}
			continue
		}
		if err != nil {
			return &mirror.SourceError{Err: err}
		}
		responded()
		seen[b.Set] = true
		m.add(ctx, b)
	}
	if ctx.Err() == nil && again != nil {
		return errRestart
	}
	return ctx.Err()
}

// ListSets returns the names of all sets that the client may follow.
func ListSets(ctx context.Context, c *client.Client) (map[string]bool, error) {
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	names := map[string]bool{}
	complete := false
	for b, err := range c.FollowAll(following, client.FollowAllOptions{All: true, OnAllStarted: func() { complete = true; cancel() }}) {
		if e, ok := errors.AsType[*client.SetError](err); ok {
			names[e.Set] = true // it exists, although the hub cannot start it
			if errors.Is(e, feed.ErrNoSet) {
				delete(names, e.Set)
			}
			continue
		}
		if err != nil {
			return nil, &mirror.SourceError{Err: err}
		}
		names[b.Set] = true
	}
	if !complete {
		return nil, context.Cause(ctx)
	}
	return names, nil
}
