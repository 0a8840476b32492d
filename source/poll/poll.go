// Package poll looks at the sources of sets that nobody publishes to. For a set that is
// described with a source, the hub looks there now and then, and publishes what is new; so any
// website with a sitemap becomes a set that can be followed. For a set that is described with
// the source's Change List, it looks there when the source says that it has news (a ping).
//
// The hub that makes the inventory of a set looks at its source. Two hubs that do it at once
// may publish a change twice, which does no harm.
package poll

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/outbound"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/source/harvest"
)

const (
	lookTime   = 2 * time.Hour    // of one look
	scanEvery  = 5 * time.Second  // a look at the descriptions of all sets
	scanShare  = 200              // which takes one of so many parts of the time at most
	firstPause = time.Minute      // after a look that failed; it doubles up to the interval of the set
	keepTime   = 10 * time.Second // for keeping an outcome when the hub stops
	askEvery   = time.Second      // for pings that other hubs got
)

// pingAgain is after what time a source is looked at again when a look for a ping failed. The
// source does not know of it, because a ping is answered before the look. After the last of
// these, only a new ping begins a look.
var pingAgain = [...]time.Duration{5 * time.Second, 30 * time.Second, 3 * time.Minute}

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
	wake     chan struct{} // of capacity 1; says that a set was described, or pinged

	mu     sync.Mutex
	pinged map[string]bool // sets to look at now; nil: the Poller has ended

	// Only the goroutine of Run uses these.
	sources     map[string]*source
	scanned     time.Time
	rest        time.Duration // between two scans
	asked       time.Time     // for pings of other hubs
	quick, slow *room
	done        chan *source // looks that have ended
	wg          sync.WaitGroup
}

// Options of a Poller. Zero values are the defaults.
type Options struct {
	Sets   string                                             // the URL that the hub's sets are under, for messages
	Check  func(name, target string) error                    // says whether a URL may be looked at; name says what it is; default: all may
	Mine   func(set string) bool                              // whether this hub looks at the source of a set; default: it does
	Pings  Pings                                              // pings for sets of other hubs; default: there is no other hub
	Count  func(st feed.State, err error, took time.Duration) // is called after each look; default: nobody is told
	Logger *slog.Logger                                       // default: discard
}

// Pings are pings that wait for the hub that looks at the source. The methods block until the
// store has answered or ctx is done.
type Pings interface {
	// Add adds a ping for a set. One that is there already is enough.
	Add(ctx context.Context, set string) error

	// Take returns the sets that were pinged and are mine, and removes them.
	Take(ctx context.Context, mine func(set string) bool) ([]string, error)
}

// A source is a source that this hub looks at.
type source struct {
	state feed.State
	url   string
	every time.Duration // between two looks; 0: it is looked at only when it pings
	next  time.Time     // when it is to be looked at; zero: when it pings
	last  *Outcome      // nil: there was no look
	slow  bool          // its last look was slow

	// While it is looked at.
	in     *room // nil: it is not
	begun  time.Time
	cancel context.CancelFunc
	again  bool // it has pinged meanwhile
	moved  bool // the look was ended, to begin anew among the slow ones
}

// New returns a Poller. It does nothing until Run.
func New(log Log, outcomes Outcomes, look Look, o Options) *Poller {
	if o.Check == nil {
		o.Check = func(string, string) error { return nil }
	}
	if o.Mine == nil {
		o.Mine = func(string) bool { return true }
	}
	if o.Count == nil {
		o.Count = func(feed.State, error, time.Duration) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Poller{
		log: log, outcomes: outcomes, look: look, opts: o, wake: make(chan struct{}, 1), pinged: map[string]bool{},
		sources: map[string]*source{}, quick: newRoom(quickLooks, quickOfOne), slow: newRoom(slowLooks, slowOfOne), done: make(chan *source),
	}
}

// Described says that a set was described. Its source is looked at soon, if this hub polls
// it and it is new.
func (p *Poller) Described() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Ping begins a look at the source of a set, and does not wait for it. If there is one under
// way, one more follows it, however many pings come. An error with resourcesync.ErrInvalid
// says that the set has no source that may be looked at. Other errors are feed.ErrUnavailable
// and those of the change memory.
func (p *Poller) Ping(ctx context.Context, set string) error {
	states, err := p.log.Sets(ctx, set)
	if err != nil {
		return err
	}
	var st feed.State
	if len(states) > 0 {
		st = states[0]
	}
	name, url := named(&st)
	if url == "" {
		return resourcesync.Invalid(`the hub does not know where the Change List of set %q is: PUT %s/%[1]s with {"changelist": "URL"} says it; or POST the changes themselves`,
			set, p.opts.Sets)
	}
	if err := p.opts.Check(name, url); err != nil { // the rules may have changed since the set was described
		return resourcesync.About("the description of set "+set, err)
	}
	if !p.opts.Mine(set) && p.opts.Pings != nil {
		return p.opts.Pings.Add(ctx, set)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinged == nil {
		return feed.ErrUnavailable
	}
	p.pinged[set] = true
	p.Described()
	return nil
}

// named returns the source of a set, and what it is called in the description.
func named(st *feed.State) (name, url string) {
	if st.Source != "" {
		return "source", st.Source
	}
	return "changelist", st.ChangeList
}

// Run looks at sources until ctx is done. Looks that are under way then end without an
// outcome. When Run returns, none of its goroutines is left.
func (p *Poller) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		p.scan(ctx)
		p.takePings(ctx)
		p.start(ctx)
		timer := time.NewTimer(p.pause())
		select {
		case <-timer.C:
			p.shift()
		case <-p.wake:
			p.scanned = time.Time{}
		case s := <-p.done:
			p.ended(s)
		case <-ctx.Done():
		}
		timer.Stop()
	}
	p.mu.Lock()
	p.pinged = nil
	p.mu.Unlock()
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
	if p.opts.Pings != nil {
		next = earlier(next, p.asked.Add(askEvery))
	}
	for _, s := range p.sources {
		switch {
		case s.in == p.quick:
			next = earlier(next, s.begun.Add(quickTime))
		case s.in == nil && s.next.After(now): // what is due waits for room
			next = earlier(next, s.next)
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
	there := map[string]bool{}
	for _, st := range states {
		there[st.Set] = true
		if st.Source != "" && p.opts.Mine(st.Set) {
			p.describe(ctx, st)
		} else if s := p.sources[st.Set]; s != nil && (s.every > 0 || s.url != st.ChangeList) {
			delete(p.sources, st.Set)
		}
	}
	for _, set := range slices.Collect(maps.Keys(p.sources)) {
		if !there[set] { // it was deleted; whoever makes it anew is told nothing old in any case
			delete(p.sources, set)
			_ = errors.Join(p.outcomes.Put(ctx, set, nil), p.outcomes.Put(ctx, stateOf(set), nil))
		}
	}
}

// describe takes in the description of a set with a source. A new source is looked at when it
// is due.
func (p *Poller) describe(ctx context.Context, st feed.State) {
	s := p.sources[st.Set]
	if s == nil || s.state.Begin != st.Begin || s.url != st.Source {
		if s = p.add(ctx, st, st.Source); s == nil {
			return // at the next scan
		}
		s.every = st.Every
		if s.next = time.Now(); s.last != nil {
			s.next = earlier(s.last.Next, s.next.Add(st.Every))
		}
	}
	if s.in != nil {
		return
	}
	if s.every != st.Every {
		s.every, s.next = st.Every, earlier(s.next, time.Now().Add(st.Every))
	}
	s.state = st
}

// add adds a source; nil: the store cannot be read now.
func (p *Poller) add(ctx context.Context, st feed.State, url string) *source {
	last, err := Last(ctx, p.outcomes, st.Set, st.Begin, url)
	if err != nil {
		p.opts.Logger.Warn("what came of the last look at a source cannot be read", "set", st.Set, "err", err)
		if errors.Is(err, feed.ErrUnavailable) || ctx.Err() != nil {
			return nil
		}
	}
	s := &source{state: st, url: url, last: last}
	p.sources[st.Set] = s
	return s
}

// takePings has the sources looked at that pinged.
func (p *Poller) takePings(ctx context.Context) {
	p.mu.Lock()
	pinged := p.pinged
	p.pinged = map[string]bool{}
	p.mu.Unlock()
	if p.opts.Pings != nil && time.Since(p.asked) >= askEvery {
		p.asked = time.Now()
		sets, err := p.opts.Pings.Take(ctx, p.opts.Mine)
		if err != nil && ctx.Err() == nil {
			p.opts.Logger.Warn("pings that other hubs got cannot be read", "err", err)
		}
		for _, set := range sets {
			pinged[set] = true
		}
	}
	for set := range pinged {
		states, err := p.log.Sets(ctx, set)
		if err != nil {
			p.repeat(set)
			continue
		}
		if len(states) == 0 {
			continue
		}
		st := states[0]
		_, url := named(&st)
		s := p.sources[set]
		if s == nil || s.state.Begin != st.Begin || s.url != url {
			if s = p.add(ctx, st, url); s == nil {
				p.repeat(set)
				continue
			}
			s.every = st.Every
		}
		if s.again = s.in != nil; s.again {
			continue
		}
		if s.next.IsZero() && s.last != nil {
			s.last.Failures = 0 // it may fail as often as before
		}
		s.next = time.Now()
	}
}

// repeat keeps a ping for later: the store cannot be read now.
func (p *Poller) repeat(set string) {
	p.mu.Lock()
	p.pinged[set] = true
	p.mu.Unlock()
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// start starts the looks that are due and for which there is room, those first that are due
// for longest.
func (p *Poller) start(ctx context.Context) {
	now := time.Now()
	var due []*source
	for _, s := range p.sources {
		if s.in == nil && !s.next.IsZero() && !s.next.After(now) {
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(a, b *source) int { return a.next.Compare(b.next) })
	for _, s := range due {
		if !p.opts.Mine(s.state.Set) {
			p.leave(ctx, s)
			continue
		}
		in := p.quick
		if s.slow {
			in = p.slow
		}
		if ctx.Err() != nil || !in.enter(s) {
			continue
		}
		looking, cancel := context.WithTimeout(ctx, lookTime)
		s.in, s.begun, s.cancel, s.moved = in, now, cancel, false
		state, url, every, last := s.state, s.url, s.every, s.last
		p.wg.Go(func() {
			defer cancel()
			s.last, s.next = p.once(looking, state, url, every, last)
			p.done <- s
		})
	}
}

// leave leaves a source to the hub that looks at it now. A ping goes with it; without other
// hubs it waits until this one has its sets, just after its start.
func (p *Poller) leave(ctx context.Context, s *source) {
	if s.every == 0 {
		if p.opts.Pings == nil {
			return
		}
		if err := p.opts.Pings.Add(ctx, s.state.Set); err != nil {
			p.opts.Logger.Warn("a ping cannot be handed to another hub yet", "set", s.state.Set, "err", err)
			return
		}
	}
	delete(p.sources, s.state.Set)
}

// shift moves looks that are slow to where they keep nobody waiting. If there is no room,
// they end, and begin anew there.
func (p *Poller) shift() {
	for _, s := range p.sources {
		if s.in != p.quick || s.moved || time.Since(s.begun) < quickTime {
			continue
		}
		if p.slow.enter(s) {
			p.quick.leave(s)
			s.in = p.slow
			continue
		}
		s.moved = true
		s.cancel()
	}
}

// ended takes in the end of a look.
func (p *Poller) ended(s *source) {
	s.in.leave(s)
	s.slow = time.Since(s.begun) >= quickTime
	if s.again || s.moved {
		s.next = time.Now()
	}
	s.in, s.again = nil, false
}

// once looks at a source once, and keeps the outcome. A look that was ended has none.
func (p *Poller) once(ctx context.Context, st feed.State, url string, every time.Duration, last *Outcome) (*Outcome, time.Time) {
	begin := time.Now()
	out := &Outcome{Begin: st.Begin, Source: url, ChangeList: st.Source == "", Time: begin.UTC()}
	if last != nil {
		out.Failures = last.Failures
	}
	err := p.look(ctx, st.Set, out)
	if errors.Is(ctx.Err(), context.Canceled) {
		return last, begin
	}
	out.Took = time.Since(begin)
	next := p.after(err, out, every)
	logger := p.opts.Logger.With("set", st.Set, "host", outbound.Host(url))
	if err != nil {
		out.Error = err.Error()
		out.Failures++
		logger.Warn("a source cannot be polled", "err", discreet(err), "failures", out.Failures)
	} else {
		out.Failures = 0
		logger.Debug("a source was polled", "created", out.Created, "updated", out.Updated, "deleted", out.Deleted)
	}
	p.opts.Count(st, err, out.Took)
	out.Next = next
	text, err := json.Marshal(out)
	if err == nil {
		keeping, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
		defer cancel()
		err = p.outcomes.Put(keeping, st.Set, text)
	}
	if err != nil {
		logger.Warn("what came of a look at a source cannot be kept", "err", err)
	}
	return out, next
}

// urls are URLs in the text of an error, up to the host, and what follows it.
var urls = regexp.MustCompile(`(https?://[^/\s()]+)/[^\s()]*`)

// discreet returns the text of an error for the log, which shows of URLs no more than the
// host: where a source is may be a secret.
func discreet(err error) string { return urls.ReplaceAllString(err.Error(), "$1/…") }

// after returns when the next look is due after one that ended with an error or none; zero:
// when the source pings.
func (p *Poller) after(err error, out *Outcome, every time.Duration) time.Time {
	pause := every
	switch {
	case err == nil && every == 0:
		return time.Time{}
	case err == nil:
	case every > 0:
		pause = min(backoff.Jitter(backoff.Doubled(firstPause, every, out.Failures)), every)
	case out.Failures < len(pingAgain):
		pause = backoff.Jitter(pingAgain[out.Failures])
	default:
		return time.Time{}
	}
	if busy, ok := errors.AsType[*harvest.Busy](err); ok {
		pause = max(pause, busy.After)
	}
	return time.Now().Add(pause).UTC()
}
