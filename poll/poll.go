// Package poll looks at the sources of sets that nobody publishes to: for a set that is
// described with a source, the hub looks there now and then, and publishes what is new. So any
// website with a sitemap becomes a set that can be followed.
//
// The hub that makes the inventory of a set polls its source. Two hubs that do it at once
// may publish a change twice, which does no harm.
package poll

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/harvest"
	"github.com/rshub/rshub/internal/backoff"
)

const (
	atOnce     = 4                // looks; each of them may read a long list
	lookTime   = 2 * time.Hour    // of one look
	scanEvery  = 5 * time.Second  // a look at the descriptions of all sets
	scanShare  = 200              // which takes one of so many parts of the time at most
	firstPause = time.Minute      // after a look that failed; it doubles up to the interval of the set
	keepTime   = 10 * time.Second // for keeping an outcome when the hub stops
)

// A Log is what a Poller needs of the change memory. See changelog.Log.
type Log interface {
	Sets(ctx context.Context, names ...string) ([]feed.State, error)
}

// A Poller looks at the sources of the sets whose inventory this hub makes.
type Poller struct {
	log      Log
	outcomes Outcomes
	look     Look
	opts     Options
	wake     chan struct{} // of capacity 1; says that a set was described

	// Only the goroutine of Run uses these.
	sources map[string]*source
	scanned time.Time
	rest    time.Duration // between two scans
	done    chan *source  // looks that have ended
	running int
	wg      sync.WaitGroup
}

// Options of a Poller. Zero values are the defaults.
type Options struct {
	Mine   func(set string) bool                              // whether this hub polls the source of a set; default: it does
	Count  func(st feed.State, err error, took time.Duration) // is called after each look; default: nobody is told
	Logger *slog.Logger                                       // default: discard
}

// A source is a set with a source that this hub polls.
type source struct {
	state   feed.State
	next    time.Time // when it is to be looked at
	running bool
	last    *Outcome // nil: there was no look
}

// New returns a Poller. It does nothing until Run.
func New(log Log, outcomes Outcomes, look Look, o Options) *Poller {
	if o.Mine == nil {
		o.Mine = func(string) bool { return true }
	}
	if o.Count == nil {
		o.Count = func(feed.State, error, time.Duration) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Poller{log: log, outcomes: outcomes, look: look, opts: o, wake: make(chan struct{}, 1), sources: map[string]*source{}, done: make(chan *source)}
}

// Described says that a set was described. Its source is looked at soon, if this hub polls
// it and it is new.
func (p *Poller) Described() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run polls until ctx is done. Looks that are under way then end without an outcome. When
// Run returns, none of its goroutines is left.
func (p *Poller) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		p.scan(ctx)
		p.start(ctx)
		timer := time.NewTimer(p.pause())
		select {
		case <-timer.C:
		case <-p.wake:
			p.scanned = time.Time{}
		case s := <-p.done:
			s.running = false
			p.running--
		case <-ctx.Done():
		}
		timer.Stop()
	}
	go func() { // looks that are under way end, too
		for range p.done {
		}
	}()
	p.wg.Wait()
	close(p.done)
	return nil
}

// pause returns how long there is nothing to do.
func (p *Poller) pause() time.Duration {
	now := time.Now()
	next := p.scanned.Add(p.rest)
	for _, s := range p.sources {
		if !s.running && p.running < atOnce && s.next.Before(next) {
			next = s.next
		}
	}
	return max(next.Sub(now), 0)
}

// scan looks at the descriptions of all sets, if it is time to.
func (p *Poller) scan(ctx context.Context) {
	begin := time.Now()
	if !p.scanned.IsZero() && begin.Sub(p.scanned) < p.rest {
		return
	}
	states, err := p.log.Sets(ctx)
	p.scanned = time.Now()
	p.rest = max(scanEvery, scanShare*p.scanned.Sub(begin))
	if err != nil {
		if ctx.Err() == nil {
			p.opts.Logger.Warn("the descriptions of the sets cannot be read, so no source is polled that is new", "err", err)
		}
		return
	}
	seen := map[string]bool{}
	for _, st := range states {
		if st.Source == "" || !p.opts.Mine(st.Set) {
			continue
		}
		seen[st.Set] = true
		if old := p.sources[st.Set]; old == nil || old.state.Begin != st.Begin || old.state.Source != st.Source {
			p.add(ctx, st)
		} else if old.state.Every != st.Every && !old.running {
			old.next = earlier(old.next, time.Now().Add(st.Every))
		}
		if s := p.sources[st.Set]; s != nil && !s.running {
			s.state = st
		}
	}
	there := map[string]bool{}
	for _, st := range states {
		there[st.Set] = true
	}
	for _, set := range slices.Collect(maps.Keys(p.sources)) {
		if seen[set] {
			continue
		}
		delete(p.sources, set)
		if !there[set] { // it was deleted; whoever makes it anew is told nothing old in any case
			_ = errors.Join(p.outcomes.Put(ctx, set, nil), p.outcomes.Put(ctx, stateOf(set), nil))
		}
	}
}

// add begins to poll a source, when it is due.
func (p *Poller) add(ctx context.Context, st feed.State) {
	last, err := Last(ctx, p.outcomes, st.Set, st.Begin, st.Source)
	if err != nil {
		p.opts.Logger.Warn("what came of the last look at a source cannot be read", "set", st.Set, "err", err)
		if errors.Is(err, feed.ErrUnavailable) || ctx.Err() != nil {
			return // at the next scan
		}
	}
	s := &source{state: st, last: last}
	if last != nil {
		s.next = earlier(last.Next, time.Now().Add(st.Every))
	}
	p.sources[st.Set] = s
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// start starts the looks that are due.
func (p *Poller) start(ctx context.Context) {
	now := time.Now()
	for _, s := range p.sources {
		if p.running == atOnce {
			return
		}
		if s.running || s.next.After(now) || ctx.Err() != nil {
			continue
		}
		if !p.opts.Mine(s.state.Set) {
			delete(p.sources, s.state.Set)
			continue
		}
		s.running = true
		p.running++
		state := s.state
		p.wg.Go(func() {
			s.last, s.next = p.once(ctx, state, s.last)
			p.done <- s
		})
	}
}

// once looks at a source once, and keeps the outcome.
func (p *Poller) once(ctx context.Context, st feed.State, last *Outcome) (*Outcome, time.Time) {
	begin := time.Now()
	limited, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	out := &Outcome{Begin: st.Begin, Source: st.Source, Time: begin.UTC()}
	if last != nil {
		out.Failures = last.Failures
	}
	err := p.look(limited, st.Set, out)
	if ctx.Err() != nil {
		return last, begin // the hub stops
	}
	out.Took = time.Since(begin)
	pause := st.Every
	logger := p.opts.Logger.With("set", st.Set)
	if err != nil {
		out.Error = err.Error()
		pause = min(backoff.Jitter(firstPause<<min(out.Failures, 20)), st.Every)
		if busy, ok := errors.AsType[*harvest.Busy](err); ok {
			pause = max(pause, busy.After)
		}
		out.Failures++
		logger.Warn("a source cannot be polled", "err", err, "failures", out.Failures)
	} else {
		out.Failures = 0
		logger.Debug("a source was polled", "created", out.Created, "updated", out.Updated, "deleted", out.Deleted)
	}
	p.opts.Count(st, err, out.Took)
	out.Next = time.Now().Add(pause).UTC()
	text, err := json.Marshal(out)
	if err == nil {
		keeping, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
		defer cancel()
		err = p.outcomes.Put(keeping, st.Set, text)
	}
	if err != nil {
		logger.Warn("what came of a look at a source cannot be kept", "err", err)
	}
	return out, out.Next
}
