package callback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/outbound/meter"
)

// maxEmpty bounds how many cuts one turn makes while the filter leaves each of them
// empty. Then other tasks have their turns.
const maxEmpty = 16

// Why nothing is delivered although there is something.
var (
	errMayNot = errors.New("whoever made the subscription may not follow the set")
	errLocked = errors.New("a key is missing")
)

// A delivery is one turn of a sub: what the turn works with, and its result.
//
// sub.turnLocked copies the state of the sub into the delivery, so do needs no mutex.
// While do runs, the sub may be moved, renewed or removed. So settleLocked looks at the
// sub before it uses the result.
type delivery struct {
	// Set by sub.turnLocked, never changed.
	sub    *sub
	engine *Engine
	about  *subscription.Subscription
	filter *filter
	failed int
	first  bool // nothing was delivered yet
	limit  int  // most changes
	moves  int
	view   view // of the topic

	// Copied by sub.turnLocked and changed by do; read by settleLocked after do.
	point point
	gap   feed.Cursor
	gaps  int

	// Set by do, read by settleLocked after do.
	cut     *cut  // the cut that was sent; nil: none was
	err     error // why nothing was sent: errNothing, errMayNot, errLocked, or the log could not be read; nil: a filter left out all
	attempt subscription.Attempt
	verdict outlet.Verdict

	// end and send share these. send stores cancel and then reads over. end stores over
	// and then reads cancel. So one of them stops the request.
	over   atomic.Bool // the sub is gone
	cancel atomic.Pointer[context.CancelFunc]
}

// end cancels a delivery whose sub is gone. Otherwise a callback that subscribes again
// could get two deliveries at once.
func (d *delivery) end() {
	d.over.Store(true)
	if cancel := d.cancel.Load(); cancel != nil {
		(*cancel)()
	}
}

// turnLocked delivers what is behind the sub's cursor, if there is anything.
func (s *sub) turnLocked() turn {
	if s.over != "" {
		return nil
	}
	e := s.shard.engine
	if s.about.Every > 0 && s.burst == 0 {
		s.burst = s.topic.head.Position
	}
	s.running = &delivery{
		sub: s, engine: e, about: s.about, filter: s.filter, point: s.point,
		gap: s.gap, gaps: s.gaps, failed: s.failed, first: s.standing == untried, limit: cmp.Or(s.appetite.most, e.opts.MaxChanges), moves: s.moves, view: s.topic.view,
	}
	return s.running
}

// do makes the next cut that is not empty, and sends it.
func (d *delivery) do() {
	ctx := d.sub.shard.calls
	if _, why := d.engine.may(d.about.By, d.about.Key, d.about.Anyone, d.about.Set); why != "" {
		d.err = errMayNot
		return
	}
	if d.about.Sealed != "" {
		d.err = errLocked
		return
	}
	for range maxEmpty {
		var c *cut
		c, d.err = d.engine.cutter.cut(ctx, d.view, &d.point, d.filter, d.limit)
		switch {
		case errors.Is(d.err, feed.ErrGone):
			if d.err = d.overrun(ctx); d.err != nil {
				return
			}
		case d.err != nil:
			return
		case c.changes == 0:
			d.point.from, d.point.cursor, d.point.until = c.from, c.cursor, feed.Cursor{}
		default:
			d.send(ctx, c)
			return
		}
	}
}

// overrun moves the point to the floor of the log, after the log has lost entries that
// follow the point. It returns errNothing if the set does not exist.
func (d *delivery) overrun(ctx context.Context) error {
	state, err := d.engine.log.State(ctx, d.about.Set)
	if errors.Is(err, feed.ErrNoSet) {
		return errNothing
	} else if err != nil {
		return fmt.Errorf("state of set %q: %w", d.about.Set, err)
	}
	if d.gap.IsZero() {
		d.gap = d.point.cursor
		d.gap.Micros = max(d.gap.Micros, 1) // the zero cursor would mean that there is no gap
	}
	d.gaps++
	d.point = point{cursor: state.Floor}
	return nil
}

// send hands a cut to the outlet.
func (d *delivery) send(ctx context.Context, c *cut) {
	d.cut = c
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if d.cancel.Store(&cancel); d.over.Load() || !d.sub.shard.mayCall() {
		return
	}
	begin := time.Now()
	d.verdict = d.engine.outlet.Deliver(ctx, &outlet.Delivery{
		To: d.about, Body: c.body, Changes: c.changes, From: c.from, Cursor: c.cursor,
		Attempt: d.failed + 1, First: d.first, Gap: d.gap, Diverged: d.point.diverged,
	})
	d.attempt = subscription.Attempt{At: begin.UTC(), Kind: "deliver", Status: d.verdict.Status, Took: time.Since(begin), Changes: c.changes, Error: d.verdict.Error}
}

// settleLocked brings the result of a delivery into the sub.
func (d *delivery) settleLocked() {
	s := d.sub
	s.running = nil
	switch {
	case s.state == dead, s.over == refused:
		return
	case s.moves != d.moves: // the sub goes on elsewhere by now
		s.restLocked()
		return
	case d.cut == nil || d.verdict.Decision != outlet.Done && s.shard.calls.Err() != nil:
		s.advanceLocked(d, d.point)
		s.unsentLocked(d)
		return
	}
	s.host.met(d.verdict.Place)
	if d.verdict.Decision == outlet.Crowded {
		s.advanceLocked(d, d.point)
		s.laterLocked(crowdedRetry)
		return
	}
	s.last.add(d.attempt)
	s.soilLocked()
	m := s.shard.engine.metrics
	s.shard.engine.meter.Count(meter.Delivery, d.verdict.Outcome, d.attempt.Took)
	if d.failed > 0 {
		m.retries.Inc()
	}
	if a := &d.attempt; a.Error != "" || d.failed > 0 {
		s.shard.engine.opts.Outcome(Outcome{Set: d.about.Set, ID: s.id, Callback: d.about.Callback, Kind: a.Kind, Status: a.Status, Error: a.Error})
	}
	switch d.verdict.Decision {
	case outlet.Done:
		s.shard.engine.opts.Delivered(d.about.Set, d.cut.changes)
		m.deliveries.Inc()
		m.bytes.Add(float64(d.cut.size()))
		m.changes.Add(float64(d.cut.changes))
		s.advanceLocked(d, point{cursor: d.cut.cursor})
		s.appetite.take(s.shard.engine.opts.MaxChanges)
		s.gap = feed.Cursor{}
		s.setFailedLocked(0)
		s.next, s.earliest = time.Time{}, time.Time{}
		s.standing = speed(d.attempt.Took)
		s.calmLocked()
		s.restLocked()
	case outlet.Over:
		s.endLocked(ended)
	default:
		s.advanceLocked(d, d.point)
		s.until, s.first = d.cut.cursor, d.cut.first
		s.failLocked(d)
		s.restLocked()
	}
}

// advanceLocked sets the sub's point, and reports changes that were lost on the way.
func (s *sub) advanceLocked(d *delivery, to point) {
	e := s.shard.engine
	if d.gaps > s.gaps {
		e.metrics.gaps.Add(float64(d.gaps - s.gaps))
		e.opts.Logger.Warn("callbacks: the memory overran a subscription", "id", s.id, "set", s.about.Set, "host", s.host.name, "lost", outlet.Lost(d.gap, d.point.begin()))
		s.gap, s.gaps = d.gap, d.gaps
		s.soilLocked()
	}
	if to.diverged && !s.diverged {
		e.opts.Logger.Warn("callbacks: the log had lost its tail", "id", s.id, "set", s.about.Set, "host", s.host.name)
		s.soilLocked()
	}
	if to.cursor != s.cursor {
		s.first = 0
		if !s.dirty && !s.moved {
			s.moved = true
			s.shard.moved = append(s.shard.moved, s)
		}
	}
	s.point = to
}

// unsentLocked goes on after a turn in which nothing was sent.
func (s *sub) unsentLocked(d *delivery) {
	switch {
	case s.shard.calls.Err() != nil: // the shard is dropped soon
	case errors.Is(d.err, errNothing):
		if s.over == "" && s.topic.view == d.view && s.about.LeaseEnd.After(time.Now()) {
			s.waitLocked()
			return
		}
		s.restLocked()
	case errors.Is(d.err, errMayNot):
		s.shard.uncheckLocked(s)
		s.laterLocked(unsureRetry)
	case errors.Is(d.err, errLocked):
		s.laterLocked(lockedRetry)
	case d.err != nil:
		s.shard.engine.opts.Logger.Warn("callbacks: the memory cannot be read", "set", s.about.Set, "err", d.err)
		s.laterLocked(memoryRetry)
	default: // a filter left out maxEmpty cuts, and there may be more
		s.restLocked()
	}
}

// laterLocked lets a sub have its next turn after about this time. The callback has not
// failed.
func (s *sub) laterLocked(while time.Duration) {
	s.next = time.Now().Add(backoff.Jitter(while))
	s.earliest = s.next
	s.restLocked()
}
