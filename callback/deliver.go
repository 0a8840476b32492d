package callback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/outbound/meter"
)

// maxEmpty bounds how many cuts one turn makes while the filter leaves each of them
// empty. Then other tasks have their turns.
const maxEmpty = 16

// Why nothing is delivered although there is something.
var (
	errMayNot = errors.New("the subscriber may not follow the set")
	errNoKey  = errors.New("the key of the secret is missing")
)

// A delivery is one turn of a sub: what the turn works with, and its result.
//
// sub.takeTurn copies the state of the sub into the delivery, so do needs no mutex. While
// do runs, the sub may be moved, renewed or removed. So settle looks at the sub before it
// uses the result.
type delivery struct {
	// Set by sub.takeTurn, never changed.
	sub    *sub
	engine *Engine
	about  *subscription.Subscription
	head   feed.Cursor // of the topic
	failed int
	first  bool // nothing was delivered yet
	limit  int  // most changes
	moves  int
	ctx    context.Context

	// end ends ctx, when do returns or the sub is gone. Otherwise a callback that subscribes
	// again could get two deliveries at once.
	end context.CancelFunc

	// Copied by sub.takeTurn and changed by do; read by settle after do.
	point point
	gap   feed.Cursor
	gaps  int

	// Set by do, read by settle after do.
	cut     *cut  // the cut that was sent; nil: none was
	size    int64 // bytes of the body that was sent
	err     error // why nothing was sent: errNothing, errMayNot, errNoKey, or the log could not be read; nil: a filter left out all
	attempt subscription.Attempt
	verdict outlet.Verdict
}

// takeTurn delivers what is behind the sub's cursor, if there is anything.
func (s *sub) takeTurn(*state) turn {
	if s.over != "" {
		return nil
	}
	e := s.shard.engine
	if head := s.topic.head.Position; s.about.Every > 0 && (s.burst == 0 || s.burst > head) { // positions may have begun anew
		s.burst = head
	}
	s.running = &delivery{
		sub: s, engine: e, about: s.about, head: s.topic.head, point: point{cursor: s.Cursor, from: s.From, until: s.until, number: s.number, diverged: s.Diverged}, gap: s.Gap, gaps: s.Gaps,
		failed: s.Failed, first: s.standing == untried, limit: cmp.Or(int(s.batch.most), e.opts.MaxChanges), moves: s.moves,
	}
	s.running.ctx, s.running.end = context.WithCancel(s.shard.calls)
	return s.running
}

// do makes the next cut that is not empty, and sends it.
func (d *delivery) do() {
	defer d.end()
	if _, why := d.engine.opts.Rights.May(d.about.By, d.about.Key, d.about.Anyone, d.about.Set); why != "" {
		d.err = errMayNot
		return
	}
	if d.about.Sealed != "" {
		d.err = errNoKey
		return
	}
	for range maxEmpty {
		var c *cut
		c, d.err = d.engine.cut(d.ctx, d.about.Set, &d.point, d.engine.format(d.about.Form), &d.about.Filter, d.limit)
		switch {
		case errors.Is(d.err, feed.ErrGone):
			if d.err = d.overrun(); d.err != nil {
				return
			}
		case d.err != nil:
			return
		case c.changes == 0:
			d.point.from, d.point.cursor, d.point.until, d.point.number = c.from, c.cursor, feed.Cursor{}, 0
		default:
			d.send(c)
			return
		}
	}
}

// overrun moves the point to the floor of the log, after the log has lost entries that
// follow the point. It returns errNothing if the set does not exist.
func (d *delivery) overrun() error {
	state, err := d.engine.log.State(d.ctx, d.about.Set)
	if errors.Is(err, feed.ErrNoSet) {
		return errNothing
	} else if err != nil {
		return fmt.Errorf("read state of set %q: %w", d.about.Set, err)
	}
	if d.gap.IsZero() {
		// What a filter left out since the last delivery is in no interval, so it is in the gap.
		d.gap = d.point.begin()
		d.gap.Micros = max(d.gap.Micros, 1) // the zero cursor would mean that there is no gap
	}
	if d.gap.Position > 0 && d.gap.Micros <= max(state.Begin-1, state.PriorMicros) {
		d.gap.Micros = -1 // its position is that of a deleted set: see outlet.Lost
	}
	d.gaps++
	d.point = point{cursor: state.Floor}
	return nil
}

// format returns the format of what is delivered to subscriptions of a form.
func (e *Engine) format(form string) *outlet.Format {
	return cmp.Or(e.opts.Formats[form], notification)
}

// outlet returns the way to subscribers of a form.
func (e *Engine) outlet(form string) outlet.Outlet {
	return cmp.Or(e.format(form).Outlet, e.callbacks)
}

// send hands a cut to the outlet, unless the hub must not call the callback any more.
func (d *delivery) send(c *cut) {
	if d.ctx.Err() != nil || !d.sub.shard.mayCall() {
		return
	}
	d.cut = c
	if d.point.number == 0 {
		d.point.number = d.sub.shard.deliveries.Add(1)
	}
	format, gap := d.engine.format(d.about.Form), ""
	if !d.gap.IsZero() {
		gap = outlet.Lost(d.gap, c.from)
	}
	body := stamp(c.body, format, d.point.number, gap)
	d.size = sizeOf(body)
	begin := time.Now()
	d.verdict = d.engine.outlet(d.about.Form).Deliver(d.ctx, &outlet.Delivery{
		To: d.about, Format: format, Body: body, Changes: c.changes, From: c.from, Cursor: c.cursor,
		Attempt: d.failed + 1, First: d.first, Number: d.point.number, Gap: d.gap, Diverged: d.point.diverged,
	})
	d.attempt = subscription.Attempt{At: begin.UTC(), Kind: "deliver", Status: d.verdict.Status, Took: time.Since(begin), Changes: c.changes, Error: d.verdict.Error}
}

// settle brings the result of a delivery into the sub.
func (d *delivery) settle(st *state) {
	s, e := d.sub, d.engine
	s.running = nil
	switch {
	case s.stage == dead, s.over == refused:
		return
	case s.moves != d.moves: // the sub goes on elsewhere by now
		st.rest(s)
		return
	case d.cut == nil || d.verdict.Decision != outlet.Done && s.shard.calls.Err() != nil:
		st.advance(d, d.point)
		st.unsent(d)
		return
	}
	s.host.met(d.verdict.Place)
	if d.verdict.Decision == outlet.Limited {
		st.advance(d, d.point)
		st.restFor(s, limitedRetry)
		return
	}
	s.Last = withAttempt(s.Last, d.attempt)
	s.Delivery = d.point.number
	st.markDirty(s)
	e.opts.Meter.Count(meter.Delivery, d.verdict.Outcome, d.attempt.Took)
	if d.failed > 0 {
		e.metrics.retries.Inc()
	}
	if a := &d.attempt; a.Error != "" || d.failed > 0 {
		e.opts.Activity.Called(Outcome{Set: d.about.Set, ID: s.id, Callback: d.about.Callback, Kind: a.Kind, Status: a.Status, Error: a.Error})
	}
	switch d.verdict.Decision {
	case outlet.Done:
		st.succeed(d)
	case outlet.Over:
		st.end(s, ended)
	default:
		st.advance(d, d.point)
		s.until, s.first = d.cut.cursor, d.cut.first
		st.fail(d)
	}
}

// succeed goes on behind what was delivered.
func (st *state) succeed(d *delivery) {
	s, e := d.sub, d.engine
	e.opts.Activity.Delivered(d.about.Set, d.cut.changes)
	e.metrics.deliveries.Inc()
	e.metrics.bytes.Add(float64(d.size))
	e.metrics.changes.Add(float64(d.cut.changes))
	st.advance(d, point{cursor: d.cut.cursor})
	s.batch.succeed(e.opts.MaxChanges)
	s.Gap = feed.Cursor{}
	s.setFailed(0)
	s.Next, s.earliest = time.Time{}, time.Time{}
	s.standing = standingAfter(d.attempt.Took)
	// A burst ends at what there was when it began. What comes meanwhile is delivered
	// together, after the interval.
	if s.about.Every > 0 && s.Cursor.Position >= s.burst {
		s.burst, s.quiet = 0, time.Now().Add(s.about.Every)
	}
	st.rest(s)
}

// advance sets the sub's point, and reports changes that were lost on the way.
func (st *state) advance(d *delivery, to point) {
	s, e := d.sub, d.engine
	if d.gaps > s.Gaps {
		e.metrics.gaps.Add(float64(d.gaps - s.Gaps))
		e.opts.Logger.Warn("callbacks: a subscription fell behind retention", "id", s.id, "set", s.about.Set, "host", s.host.name, "lost", outlet.Lost(d.gap, d.point.begin()))
		s.Gap, s.Gaps = d.gap, d.gaps
		st.markDirty(s)
	}
	if to.diverged && !s.Diverged {
		e.opts.Logger.Warn("callbacks: the log lost its newest changes", "id", s.id, "set", s.about.Set, "host", s.host.name)
		st.markDirty(s)
	}
	if to.cursor != s.Cursor {
		s.first = 0
		s.markSkipped()
	}
	s.Cursor, s.From, s.until, s.number, s.Diverged = to.cursor, to.from, to.until, to.number, to.diverged
}

// unsent goes on after a turn in which nothing was sent.
func (st *state) unsent(d *delivery) {
	s := d.sub
	switch {
	case s.shard.calls.Err() != nil: // the shard is dropped soon
	case errors.Is(d.err, errNothing) && s.over == "" && s.topic.head == d.head && s.leaseEnd().After(time.Now()):
		st.await(s)
	case errors.Is(d.err, errMayNot):
		s.uncheck()
		st.restFor(s, unsureRetry)
	case errors.Is(d.err, errNoKey):
		st.restFor(s, keyRetry)
	case d.err != nil && !errors.Is(d.err, errNothing):
		d.engine.opts.Logger.Warn("callbacks: read of the change memory failed", "set", s.about.Set, "err", d.err)
		st.restFor(s, memoryRetry)
	default: // there may be more, or something new
		st.rest(s)
	}
}

// How failing deliveries are tried again, until the lease ends.
const (
	firstRetry  = time.Second     // the first wait; each is twice the one before
	lastRetry   = 5 * time.Minute // the longest wait
	memoryRetry = 2 * time.Second // the wait after the log could not be read

	// The wait after the hub made no connection, because there are enough to the
	// address. By then the task waits for the permits of that address.
	limitedRetry = time.Second
)

// restFor lets a sub have its next turn after about this time. The callback has not
// failed.
func (st *state) restFor(s *sub, while time.Duration) {
	s.Next = time.Now().Add(backoff.Jitter(while))
	s.earliest = s.Next
	st.rest(s)
}

// fail decides when to try again.
//
// A new change brings the next try forward, since a callback that is well again should
// not wait. But a change does so only once after each failure, and not before a tenth
// of the wait (at least 1 s) is over: under a stream of changes a dead callback is
// tried every 30 s instead of every five minutes. No try comes before the verdict's
// After is over.
func (st *state) fail(d *delivery) {
	s, now := d.sub, time.Now()
	s.standing = doubtful
	if d.verdict.Decision == outlet.Smaller && d.cut.changes > 1 {
		s.batch.refuse(d.cut.changes)
		s.until, s.number = feed.Cursor{}, 0 // the callback may take fewer changes, so there is no reason to wait long
		s.Next = now.Add(max(backoff.Jitter(firstRetry), d.verdict.After))
		s.earliest = s.Next
	} else {
		wait := max(backoff.Jitter(backoff.Exponential(firstRetry, lastRetry, s.Failed)), d.verdict.After)
		s.Next = now.Add(wait)
		s.earliest = now.Add(max(firstRetry, wait/10, d.verdict.After))
	}
	s.setFailed(s.Failed + 1)
	st.rest(s)
}

// setFailed sets how many tries have failed in a row.
func (s *sub) setFailed(n int) {
	switch {
	case s.Failed == 0 && n > 0:
		s.topic.failed++
	case s.Failed > 0 && n == 0:
		s.topic.failed--
	}
	s.Failed = n
}

// maxPatience bounds how many deliveries a callback takes before it is offered more
// again: a callback that can never take more refuses one delivery of that many.
const maxPatience = 64

// A batchSize is how many changes a callback takes at once, as far as its answers say.
// A refusal (413) halves the deliveries. Successes double them again, for a refusal may
// have been a passing trouble, and a backlog must not go out in small pieces for ever.
// The zero value has no bound.
type batchSize struct {
	most     int32 // changes in a delivery; 0: as many as the engine allows
	taken    int32 // deliveries that succeeded since most was set
	patience int32 // deliveries that have to succeed before most is doubled, less one
	grown    bool  // most was doubled since the last refusal
}

// refuse notes that a delivery of so many changes was too large. A refusal of what was
// just doubled says that the callback has a limit of its own there, so the next
// doubling waits for twice as many successes.
func (b *batchSize) refuse(changes int) {
	if b.grown {
		b.patience = min(2*b.patience+1, maxPatience-1)
	}
	b.most, b.taken, b.grown = int32(changes/2), 0, false
}

// succeed notes a delivery that succeeded. limit is the engine's bound.
func (b *batchSize) succeed(limit int) {
	if b.most == 0 {
		return
	}
	if b.taken++; b.taken <= b.patience {
		return
	}
	b.most, b.taken, b.grown = 2*b.most, 0, true
	if int(b.most) >= limit {
		b.most = 0
	}
}
