package poll

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// pingAgain are the waits before further looks after a look for a ping failed. The source
// does not learn of the failure, because a ping is answered before the look. After the
// last of these looks, only a new ping begins another.
var pingAgain = [...]time.Duration{5 * time.Second, 30 * time.Second, 3 * time.Minute}

// Pings are pings that wait for the hub that looks at the source. The methods block until the
// store has answered or ctx is done.
type Pings interface {
	// Add adds a ping for a set, unless one is waiting already.
	Add(ctx context.Context, set string) error

	// Take returns the pinged sets for which mine returns true, and removes
	// their pings.
	Take(ctx context.Context, mine func(set string) bool) ([]string, error)
}

// pingOf returns the name in Outcomes of the last ping for a set: a text that no other ping has.
func pingOf(set string) string { return set + "~ping" }

// Ping begins a look at the source of a set, and does not wait for it. If a look is under
// way, exactly one more follows it, even after several pings. If the hub ends before the
// look has succeeded, the look is made by the hub that next has the set. An error with
// resourcesync.ErrInvalid says that the set has no source, or one that must not be looked
// at. Other errors are feed.ErrUnavailable and those of the change memory.
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
		return resourcesync.Invalidf(`the hub does not know where the Change List of set %q is: PUT %s/%[1]s with {"changelist": "URL"} says it; or POST the changes themselves`,
			set, p.opts.Sets)
	}
	if err := p.opts.Check(name, url); err != nil { // the rules may have changed since the set was described
		return resourcesync.Wrap("the description of set "+set, err)
	}
	if err := p.outcomes.Put(ctx, pingOf(set), []byte(rand.Text())); err != nil {
		return err
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

// catchUp handles a set with a Change List that this hub now looks at. It schedules a look if
// none has succeeded since the last ping, because the hub that got it ended.
func (p *Poller) catchUp(ctx context.Context, st feed.State) {
	ping, err := p.outcomes.Get(ctx, pingOf(st.Set))
	if err != nil {
		return // the next scan tries again
	}
	if s := p.add(ctx, st, st.ChangeList); s != nil && ping != nil && (s.last == nil || s.last.Ping != string(ping)) {
		s.next = time.Now()
	}
}

// takePings schedules looks at the sources that pinged.
func (p *Poller) takePings(ctx context.Context) {
	p.mu.Lock()
	pinged := p.pinged
	p.pinged = map[string]bool{}
	p.mu.Unlock()
	if p.opts.Pings != nil && time.Since(p.asked) >= askEvery {
		p.asked = time.Now()
		sets, err := p.opts.Pings.Take(ctx, p.opts.Mine)
		if err != nil && ctx.Err() == nil {
			p.opts.Logger.Warn("pings that other hubs received cannot be read", "err", err)
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
			s.last.Failures = 0 // a new ping gets all its tries again
		}
		s.next = time.Now()
	}
}

// repeat keeps a ping for later, because the store cannot be read now.
func (p *Poller) repeat(set string) {
	p.mu.Lock()
	p.pinged[set] = true
	p.mu.Unlock()
}

// leave gives a source up to the hub that now looks at it, together with its ping. If
// there is no other hub, the ping waits until this hub has its sets, shortly after its
// start.
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
