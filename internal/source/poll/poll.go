// Package poll polls the sources of sets without a publisher. If the description of a set
// names a source, the hub polls it regularly and publishes what is new, so any website with a
// sitemap becomes a set that can be followed. If the description names the source's Change List,
// the hub reads it when the source sends a ping.
//
// The hub that maintains the inventory of a set polls its source. Two hubs that do so at the same
// time may publish a change twice, which does no harm. Package relay reads the sources; package
// poll decides when.
package poll

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/source/harvest"
)

const (
	pollTimeout    = 2 * time.Hour    // maximum duration of a poll
	scanEvery      = 5 * time.Second  // interval between two scans of the descriptions of all sets
	scanShare      = 200              // scans take at most 1/scanShare of the time
	firstPause     = time.Minute      // wait after a failed poll; doubles up to the interval of the set
	storeTimeout   = 10 * time.Second // maximum time to store an outcome when the hub stops
	takePingsEvery = time.Second      // interval between two requests for pings that other hubs received
)

// A Log is what a Poller needs of the change memory. See changelog.Log.
type Log interface {
	Sets(ctx context.Context, names ...string) ([]feed.State, error)
}

// A Poller polls the sources of the sets whose inventory this hub maintains.
type Poller struct {
	log      Log
	outcomes Outcomes
	poll     Func
	opts     Options
	wake     backoff.Wakeup // wakes Run after Rescan or Ping

	mu     sync.Mutex
	pinged map[string]bool // sets to poll now; nil after the Poller has stopped

	// Used only by the goroutine of Run.
	sources      map[string]*source
	scannedAt    time.Time
	scanPause    time.Duration // pause between two scans
	pingsTakenAt time.Time     // when pings of other hubs were last requested
	quick, slow  *limiter
	done         chan *source // sources whose poll has ended
	wg           sync.WaitGroup
}

// Options configures a Poller. Zero values are the defaults.
type Options struct {
	SetsURL string                                             // URL of the hub's sets, for messages
	Check   func(name, target string) error                    // returns an error if a URL must not be polled; name says what the URL is; default: all are allowed
	Owns    func(set string) bool                              // reports whether this hub polls the source of a set; default: it does
	Pings   Pings                                              // passes pings on to the hub that polls; nil if there is no other hub
	Observe func(st feed.State, err error, took time.Duration) // called after each poll; default: not called
	Logger  *slog.Logger                                       // default: discard
}

// A source is a source that this hub polls.
type source struct {
	state feed.State
	url   string
	every time.Duration // interval between two polls; zero means only after pings
	next  time.Time     // when the next poll is due; zero means after the next ping
	last  *Outcome      // nil if there was no poll yet
	slow  bool          // whether its last poll was slow

	// During a poll.
	limiter   *limiter // limiter whose slot the poll holds; nil if there is no poll
	started   time.Time
	cancel    context.CancelFunc
	pollAgain bool // whether the source has pinged during the poll
	demoted   bool // whether the poll was canceled, to start again among the slow ones
}

// New returns a Poller. It does nothing until Run is called.
func New(log Log, outcomes Outcomes, pollFunc Func, o Options) *Poller {
	if o.Check == nil {
		o.Check = func(string, string) error { return nil }
	}
	if o.Owns == nil {
		o.Owns = func(string) bool { return true }
	}
	if o.Observe == nil {
		o.Observe = func(feed.State, error, time.Duration) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Poller{
		log: log, outcomes: outcomes, poll: pollFunc, opts: o, wake: backoff.NewWakeup(), pinged: map[string]bool{},
		sources: map[string]*source{}, quick: newLimiter(maxQuick, maxQuickPerCreator), slow: newLimiter(maxSlow, maxSlowPerCreator), done: make(chan *source),
	}
}

// Rescan makes Run read the descriptions of the sets again. If a set has a new source that this hub
// polls, a poll follows soon.
func (p *Poller) Rescan() {
	p.wake.Wake()
}

// sourceOf returns the source of a set, and its name in the description.
func sourceOf(st *feed.State) (name, url string) {
	if st.Source != "" {
		return "source", st.Source
	}
	return "changelist", st.ChangeList
}

// Run polls sources until ctx is done. It cancels polls in progress, which then have no outcome,
// and returns after all of its goroutines have stopped.
func (p *Poller) Run(ctx context.Context) {
	for ctx.Err() == nil {
		p.scan(ctx)
		p.takePings(ctx)
		p.startDue(ctx)
		timer := time.NewTimer(p.idleTime())
		select {
		case <-timer.C:
			p.demoteSlow()
		case <-p.wake:
			p.scannedAt = time.Time{}
		case s := <-p.done:
			p.finish(s)
		case <-ctx.Done():
		}
		timer.Stop()
	}
	p.mu.Lock()
	p.pinged = nil
	p.mu.Unlock()
	go func() { // receives from polls in progress, too
		for range p.done {
		}
	}()
	p.wg.Wait()
	close(p.done)
}

// idleTime returns the time until there is something to do.
func (p *Poller) idleTime() time.Duration {
	now := time.Now()
	next := p.scannedAt.Add(p.scanPause)
	if p.opts.Pings != nil {
		next = earlier(next, p.pingsTakenAt.Add(takePingsEvery))
	}
	for _, s := range p.sources {
		switch {
		case s.limiter == p.quick && !s.demoted:
			next = earlier(next, s.started.Add(quickTime))
		case s.limiter == nil && s.next.After(now): // due polls wait for a slot, not for time
			next = earlier(next, s.next)
		}
	}
	return max(next.Sub(now), 0)
}

// scan reads the descriptions of all sets, if that is due.
func (p *Poller) scan(ctx context.Context) {
	begin := time.Now()
	if !p.scannedAt.IsZero() && begin.Sub(p.scannedAt) < p.scanPause {
		return
	}
	states, err := p.log.Sets(ctx)
	p.scannedAt = time.Now()
	p.scanPause = max(scanEvery, scanShare*p.scannedAt.Sub(begin))
	if err != nil {
		if ctx.Err() == nil {
			p.opts.Logger.Warn("cannot read the descriptions of the sets; new sources are not polled", "err", err)
		}
		return
	}
	exists := map[string]bool{}
	for _, st := range states {
		exists[st.Set] = true
		mine := p.opts.Owns(st.Set)
		switch s := p.sources[st.Set]; {
		case st.Source != "" && mine:
			p.applyDescription(ctx, st)
		case s == nil && st.ChangeList != "" && mine:
			p.resumePing(ctx, st)
		case s == nil:
		case s.every > 0, s.url != st.ChangeList, !mine && s.limiter == nil && s.next.IsZero():
			p.removeSource(st.Set)
		}
	}
	for _, set := range slices.Collect(maps.Keys(p.sources)) {
		if !exists[set] { // the set was deleted; Outcome.Begin separates old outcomes from a new set
			p.removeSource(set)
			for _, name := range storedNames(set) {
				_ = p.outcomes.Put(ctx, name, nil)
			}
		}
	}
}

// applyDescription handles the description of a set with a source. It schedules the first poll of a
// new source.
func (p *Poller) applyDescription(ctx context.Context, st feed.State) {
	s := p.sources[st.Set]
	if s == nil || s.state.Begin != st.Begin || s.url != st.Source {
		if s = p.addSource(ctx, st, st.Source); s == nil {
			return // the next scan tries again
		}
		s.every = st.Every
		if s.next = time.Now(); s.last != nil {
			s.next = earlier(s.last.Next, s.next.Add(st.Every))
		}
	}
	if s.limiter != nil {
		return
	}
	if s.every != st.Every {
		s.every, s.next = st.Every, earlier(s.next, time.Now().Add(st.Every))
	}
	s.state = st
}

// addSource adds a source. It returns nil if the store cannot be read now.
func (p *Poller) addSource(ctx context.Context, st feed.State, url string) *source {
	last, err := Last(ctx, p.outcomes, st.Set, st.Begin, url)
	if err != nil {
		p.opts.Logger.Warn("cannot read the outcome of the last poll", "set", st.Set, "err", err)
		if errors.Is(err, feed.ErrUnavailable) || ctx.Err() != nil {
			return nil
		}
	}
	s := &source{state: st, url: url, last: last}
	p.removeSource(st.Set)
	p.sources[st.Set] = s
	return s
}

// removeSource removes a source and cancels a poll in progress. That poll would publish what no
// longer belongs to the set, and if it is slow, nothing would ever demote it from the quick polls.
func (p *Poller) removeSource(set string) {
	if s := p.sources[set]; s != nil && s.limiter != nil {
		s.cancel()
	}
	delete(p.sources, set)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// startDue starts the due polls for which there are slots, the longest due first.
func (p *Poller) startDue(ctx context.Context) {
	now := time.Now()
	var due []*source
	for _, s := range p.sources {
		if s.limiter == nil && !s.next.IsZero() && !s.next.After(now) {
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(a, b *source) int { return a.next.Compare(b.next) })
	for _, s := range due {
		if !p.opts.Owns(s.state.Set) {
			p.handOver(ctx, s)
			continue
		}
		slots := p.quick
		if s.slow {
			slots = p.slow
		}
		if ctx.Err() != nil || !slots.acquire(s) {
			continue
		}
		pollCtx, cancel := context.WithTimeout(ctx, pollTimeout)
		s.limiter, s.started, s.cancel, s.demoted = slots, now, cancel, false
		state, url, every, last := s.state, s.url, s.every, s.last
		p.wg.Go(func() {
			defer cancel()
			s.last, s.next = p.pollOnce(pollCtx, state, url, every, last)
			p.done <- s
		})
	}
}

// demoteSlow moves slow polls to the limiter of slow ones, so that they do not delay quick polls.
// If no slot is free there, it cancels the poll, which starts again there later.
func (p *Poller) demoteSlow() {
	for _, s := range p.sources {
		if s.limiter != p.quick || s.demoted || time.Since(s.started) < quickTime {
			continue
		}
		if p.slow.acquire(s) {
			p.quick.release(s)
			s.limiter = p.slow
			continue
		}
		s.demoted = true
		s.cancel()
	}
}

// finish handles the end of a poll.
func (p *Poller) finish(s *source) {
	s.limiter.release(s)
	s.slow = time.Since(s.started) >= quickTime
	if s.pollAgain || s.demoted {
		s.next = time.Now()
	}
	s.limiter, s.pollAgain = nil, false
}

// pollOnce polls a source once and stores the outcome. A poll that was canceled from outside has no
// outcome.
func (p *Poller) pollOnce(ctx context.Context, st feed.State, url string, every time.Duration, last *Outcome) (*Outcome, time.Time) {
	begin := time.Now()
	out := &Outcome{Begin: st.Begin, Source: url, ChangeList: st.Source == "", Time: begin.UTC()}
	if last != nil {
		out.Failures, out.Ping = last.Failures, last.Ping
	}
	ping, err := p.outcomes.Get(ctx, pingName(st.Set))
	if err == nil {
		err = p.poll(ctx, st.Set, out)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return last, begin
	}
	out.Took = time.Since(begin)
	next := p.nextPoll(err, out, every)
	logger := p.opts.Logger.With("set", st.Set, "host", outbound.Host(url))
	if err != nil {
		out.Error = err.Error()
		out.Failures++
		logger.Warn("cannot poll source", "err", redactURLs(err.Error()), "failures", out.Failures)
	} else {
		out.Failures, out.Ping = 0, string(ping)
		logger.Debug("polled source", "created", out.Created, "updated", out.Updated, "deleted", out.Deleted)
	}
	p.opts.Observe(st, err, out.Took)
	out.Next = next
	text, err := json.Marshal(out)
	if err == nil {
		storeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		err = p.outcomes.Put(storeCtx, st.Set, text)
	}
	if err != nil {
		logger.Warn("cannot store the outcome of a poll", "err", err)
	}
	return out, next
}

// urls matches the URLs in a text, together with the punctuation that follows them.
var urls = regexp.MustCompile(`(?i)https?://\S+`)

// redactURLs returns a text for the log. It cuts its URLs to scheme and host, because
// everything else may be a secret.
func redactURLs(text string) string {
	return urls.ReplaceAllStringFunc(text, func(url string) string {
		plain := strings.TrimRight(url, `"):;,.`)
		scheme, rest, _ := strings.Cut(plain, "://")
		host, cut := rest, ""
		if end := strings.IndexAny(rest, "/?#"); end >= 0 {
			host, cut = rest[:end], "/…"
		}
		return scheme + "://" + host[strings.LastIndexByte(host, '@')+1:] + cut + url[len(plain):]
	})
}

// nextPoll returns when the next poll is due, by the result of the last one. Zero means nextPoll the
// next ping.
func (p *Poller) nextPoll(err error, out *Outcome, every time.Duration) time.Time {
	pause := every
	switch {
	case err == nil && every == 0:
		return time.Time{}
	case err == nil:
	case every > 0:
		pause = min(backoff.Jitter(backoff.Exponential(firstPause, every, out.Failures)), every)
	case out.Failures < len(pingRetries):
		pause = backoff.Jitter(pingRetries[out.Failures])
	default:
		return time.Time{}
	}
	if busy, ok := errors.AsType[*harvest.Busy](err); ok {
		pause = max(pause, busy.After)
	}
	return time.Now().Add(pause).UTC()
}
