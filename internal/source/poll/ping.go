package poll

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// pingRetries are the waits before further polls after the poll for a ping failed. The source does
// not learn of the failure, because a ping is answered before the poll. After the last of these
// polls, only a new ping starts another.
var pingRetries = [...]time.Duration{5 * time.Second, 30 * time.Second, 3 * time.Minute}

// Pings stores pings for the hub that polls the source. Its methods block until the store has
// answered or ctx is done.
type Pings interface {
	// Add adds a ping for a set, unless one is waiting already.
	Add(ctx context.Context, set string) error

	// TakeOwned returns the pinged sets for which owned returns true, and removes their pings.
	TakeOwned(ctx context.Context, owned func(set string) bool) ([]string, error)
}

// pingName returns the name in Outcomes of the last ping for a set. The text of a ping is unique.
func pingName(set string) string { return set + "~ping" }

// Ping starts a poll of the source of a set and does not wait for it. If a poll is in progress,
// exactly one more follows it, even after several pings. If the hub stops before the poll has
// succeeded, the hub that next owns the set polls it. An error that wraps resourcesync.ErrInvalid
// means that the set has no source, or one that must not be polled. Other errors are
// feed.ErrUnavailable and those of the change memory.
func (p *Poller) Ping(ctx context.Context, set string) error {
	states, err := p.log.Sets(ctx, set)
	if err != nil {
		return err
	}
	var st feed.State
	if len(states) > 0 {
		st = states[0]
	}
	name, url := sourceOf(&st)
	if url == "" {
		return resourcesync.Invalidf(`set %q has no known Change List; PUT %s/%[1]s with {"changelist": "URL"}, or POST the changes themselves`,
			set, p.opts.SetsURL)
	}
	if err := p.opts.Check(name, url); err != nil { // the rules may have changed since the set was described
		return resourcesync.Wrap("the description of set "+set, err)
	}
	if err := p.outcomes.Put(ctx, pingName(set), []byte(rand.Text())); err != nil {
		return err
	}
	if !p.opts.Owns(set) && p.opts.Pings != nil {
		return p.opts.Pings.Add(ctx, set)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinged == nil {
		return feed.ErrUnavailable
	}
	p.pinged[set] = true
	p.Rescan()
	return nil
}

// resumePing handles a set with a Change List that this hub now polls. It schedules a poll if none
// has succeeded since the last ping, because the hub that received the ping stopped.
func (p *Poller) resumePing(ctx context.Context, st feed.State) {
	ping, err := p.outcomes.Get(ctx, pingName(st.Set))
	if err != nil {
		return // the next scan tries again
	}
	if s := p.addSource(ctx, st, st.ChangeList); s != nil && ping != nil && (s.last == nil || s.last.Ping != string(ping)) {
		s.next = time.Now()
	}
}

// takePings schedules polls of the sources that pinged.
func (p *Poller) takePings(ctx context.Context) {
	p.mu.Lock()
	pinged := p.pinged
	p.pinged = map[string]bool{}
	p.mu.Unlock()
	if p.opts.Pings != nil && time.Since(p.pingsTakenAt) >= takePingsEvery {
		p.pingsTakenAt = time.Now()
		sets, err := p.opts.Pings.TakeOwned(ctx, p.opts.Owns)
		if err != nil && ctx.Err() == nil {
			p.opts.Logger.Warn("cannot read pings that other hubs received", "err", err)
		}
		for _, set := range sets {
			pinged[set] = true
		}
	}
	for set := range pinged {
		states, err := p.log.Sets(ctx, set)
		if err != nil {
			p.requeuePing(set)
			continue
		}
		if len(states) == 0 {
			continue
		}
		st := states[0]
		_, url := sourceOf(&st)
		s := p.sources[set]
		if s == nil || s.state.Begin != st.Begin || s.url != url {
			if s = p.addSource(ctx, st, url); s == nil {
				p.requeuePing(set)
				continue
			}
			s.every = st.Every
		}
		if s.pollAgain = s.limiter != nil; s.pollAgain {
			continue
		}
		if s.next.IsZero() && s.last != nil {
			s.last.Failures = 0 // a new ping gets all its retries
		}
		s.next = time.Now()
	}
}

// requeuePing retains a ping for later, because the store cannot be read now.
func (p *Poller) requeuePing(set string) {
	p.mu.Lock()
	p.pinged[set] = true
	p.mu.Unlock()
}

// handOver drops a source for the hub that now polls it, and passes its ping on. If there is no
// other hub, the ping waits until this hub owns its sets, shortly after its start.
func (p *Poller) handOver(ctx context.Context, s *source) {
	if s.every == 0 {
		if p.opts.Pings == nil {
			return
		}
		if err := p.opts.Pings.Add(ctx, s.state.Set); err != nil {
			p.opts.Logger.Warn("cannot pass a ping to another hub yet", "set", s.state.Set, "err", err)
			return
		}
	}
	delete(p.sources, s.state.Set)
}
