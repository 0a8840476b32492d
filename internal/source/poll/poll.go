// Package poll polls the sources of sets that nobody publishes to. If the description of a set
// names a source, the hub checks it regularly and publishes what is new. So any website with a
// sitemap becomes a set that can be followed. If the description names the source's Change List,
// the hub reads it when the source sends a ping.
//
// The hub that makes the inventory of a set polls its source. Two hubs that do so at once may
// publish a change twice, which does no harm. Package relay reads the sources; package poll decides
// when.
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
	lookTime   = 2 * time.Hour    // the most time of one look
	scanEvery  = 5 * time.Second  // between two scans of the descriptions of all sets
	scanShare  = 200              // scans take at most 1/scanShare of the time
	firstPause = time.Minute      // after a failed look; it doubles up to the interval of the set
	keepTime   = 10 * time.Second // to store an outcome when the hub stops
	askEvery   = time.Second      // between two requests for pings that other hubs got
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
	wake     backoff.Wakeup // wakes Run after Described or Ping

	mu     sync.Mutex
	pinged map[string]bool // sets to look at now; nil: the Poller has ended

	// Only the goroutine of Run uses these.
	sources     map[string]*source
	scanned     time.Time
	rest        time.Duration // between two scans
	asked       time.Time     // when pings of other hubs were last requested
	quick, slow *room
	done        chan *source // sources whose look has ended
	wg          sync.WaitGroup
}

// Options of a Poller. Zero values are the defaults.
type Options struct {
	Sets   string                                             // the URL that the hub's sets are under, for messages
	Check  func(name, target string) error                    // returns an error if a URL must not be looked at; name says what it is; default: all are allowed
	Mine   func(set string) bool                              // reports whether this hub looks at the source of a set; default: it does
	Pings  Pings                                              // passes pings on to the hub that looks; default: there is no other hub
	Count  func(st feed.State, err error, took time.Duration) // called after each look; default: nothing is called
	Logger *slog.Logger                                       // default: discard
}

// A source is a source that this hub looks at.
type source struct {
	state feed.State
	url   string
	every time.Duration // between two looks; 0: looks follow only pings
	next  time.Time     // when the next look is due; zero: after the next ping
	last  *Outcome      // nil: no look yet
	slow  bool          // its last look was slow

	// During a look.
	in     *room // the room of the look; nil: no look
	begun  time.Time
	cancel context.CancelFunc
	again  bool // the source has pinged meanwhile
	moved  bool // the look was ended, to begin again among the slow ones
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
		log: log, outcomes: outcomes, look: look, opts: o, wake: backoff.NewWakeup(), pinged: map[string]bool{},
		sources: map[string]*source{}, quick: newRoom(quickLooks, quickOfOne), slow: newRoom(slowLooks, slowOfOne), done: make(chan *source),
	}
}

// Described says that a set was described. If its source is new and this hub polls it, a
// look follows soon.
func (p *Poller) Described() {
	p.wake.Wake()
}

// named returns the source of a set, and its name in the description.
func named(st *feed.State) (name, url string) {
	if st.Source != "" {
		return "source", st.Source
	}
	return "changelist", st.ChangeList
}

// Run looks at sources until ctx is done. Looks that are under way then end without an
// outcome. When Run returns, none of its goroutines is left.
func (p *Poller) Run(ctx context.Context) {
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
	go func() { // ends looks that are under way, too
		for range p.done {
		}
	}()
	p.wg.Wait()
	close(p.done)
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
		case s.in == p.quick && !s.moved:
			next = earlier(next, s.begun.Add(quickTime))
		case s.in == nil && s.next.After(now): // due looks wait for room, not for time
			next = earlier(next, s.next)
		}
	}
	return max(next.Sub(now), 0)
}

// scan reads the descriptions of all sets, if that is due.
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
			p.opts.Logger.Warn("the descriptions of the sets cannot be read: new sources are not polled", "err", err)
		}
		return
	}
	there := map[string]bool{}
	for _, st := range states {
		there[st.Set] = true
		mine := p.opts.Mine(st.Set)
		switch s := p.sources[st.Set]; {
		case st.Source != "" && mine:
			p.describe(ctx, st)
		case s == nil && st.ChangeList != "" && mine:
			p.catchUp(ctx, st)
		case s == nil:
		case s.every > 0, s.url != st.ChangeList, !mine && s.in == nil && s.next.IsZero():
			p.forget(st.Set)
		}
	}
	for _, set := range slices.Collect(maps.Keys(p.sources)) {
		if !there[set] { // the set was deleted; Outcome.Begin keeps old outcomes from a new set
			p.forget(set)
			for _, name := range namesOf(set) {
				_ = p.outcomes.Put(ctx, name, nil)
			}
		}
	}
}

// describe handles the description of a set with a source. It schedules the first look at
// a new source.
func (p *Poller) describe(ctx context.Context, st feed.State) {
	s := p.sources[st.Set]
	if s == nil || s.state.Begin != st.Begin || s.url != st.Source {
		if s = p.add(ctx, st, st.Source); s == nil {
			return // the next scan tries again
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
		p.opts.Logger.Warn("the outcome of the last poll of a source cannot be read", "set", st.Set, "err", err)
		if errors.Is(err, feed.ErrUnavailable) || ctx.Err() != nil {
			return nil
		}
	}
	s := &source{state: st, url: url, last: last}
	p.forget(st.Set)
	p.sources[st.Set] = s
	return s
}

// forget gives up a source. It ends a look under way: that would publish what is not the set's
// any more, and if it is slow, nothing would move it out of the room for quick ones.
func (p *Poller) forget(set string) {
	if s := p.sources[set]; s != nil && s.in != nil {
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

// start starts the due looks that have room, the longest due first.
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

// shift moves slow looks to the room for slow ones, where quick looks need not wait for
// them. If that has no room, shift ends the look, and it begins again there later.
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

// ended handles the end of a look.
func (p *Poller) ended(s *source) {
	s.in.leave(s)
	s.slow = time.Since(s.begun) >= quickTime
	if s.again || s.moved {
		s.next = time.Now()
	}
	s.in, s.again = nil, false
}

// once looks at a source once, and stores the outcome. A look that was ended from
// outside has no outcome.
func (p *Poller) once(ctx context.Context, st feed.State, url string, every time.Duration, last *Outcome) (*Outcome, time.Time) {
	begin := time.Now()
	out := &Outcome{Begin: st.Begin, Source: url, ChangeList: st.Source == "", Time: begin.UTC()}
	if last != nil {
		out.Failures, out.Ping = last.Failures, last.Ping
	}
	ping, err := p.outcomes.Get(ctx, pingOf(st.Set))
	if err == nil {
		err = p.look(ctx, st.Set, out)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return last, begin
	}
	out.Took = time.Since(begin)
	next := p.after(err, out, every)
	logger := p.opts.Logger.With("set", st.Set, "host", outbound.Host(url))
	if err != nil {
		out.Error = err.Error()
		out.Failures++
		logger.Warn("a source cannot be polled", "err", redactURLs(err.Error()), "failures", out.Failures)
	} else {
		out.Failures, out.Ping = 0, string(ping)
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
		logger.Warn("the outcome of a poll of a source cannot be stored", "err", err)
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

// after returns when the next look is due, by the result of the last one; zero: after the
// next ping.
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
