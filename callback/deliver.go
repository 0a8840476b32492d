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

// maxEmpty bounds how many cuts without a matching entry a delivery skips, so that it reads the log for a
// limited time.
const maxEmpty = 16

// Waits before deliveries are attempted again, until the lease ends.
const (
	firstRetry  = time.Second     // after the first failure; each wait is twice the one before
	lastRetry   = 5 * time.Minute // longest wait
	memoryRetry = 2 * time.Second // after the log could not be read, or its head was not found

	// limitedRetry is the wait if the hub has too many connections to the address of a callback, which the
	// ready queue did not know.
	limitedRetry = time.Second
)

// deliver delivers the next cut. It reports whether nothing follows the cursor.
func (s *sub) deliver(ctx context.Context) (nothing bool) {
	e, about := s.shard.engine, s.about
	if _, why := e.opts.Rights.May(about.By, about.Key, about.Anyone, about.Set); why != "" {
		s.shard.mu.Lock()
		s.shard.unchecked = append(s.shard.unchecked, s)
		s.shard.mu.Unlock()
		s.pause(unsureRetry)
		return false
	}
	if about.Sealed != "" {
		s.pause(keyRetry)
		return false
	}
	p := point{cursor: s.Cursor, from: s.From, until: s.until, number: s.number, diverged: s.Diverged}
	c, err := s.nextCut(ctx, &p)
	switch {
	case ctx.Err() != nil, err == nil && c == nil: // canceled, or the filter matched nothing so far
	case errors.Is(err, errNothing):
		nothing = true
	case err != nil:
		e.opts.Logger.Warn("callbacks: read of the change memory failed", "set", about.Set, "err", err)
		s.pause(memoryRetry)
	default:
		s.send(ctx, &p, c)
		return false
	}
	s.moveCursor(&p)
	return nothing
}

// nextCut returns the next cut with an entry that the filter matches, or nil if it skipped maxEmpty others.
func (s *sub) nextCut(ctx context.Context, p *point) (*cut, error) {
	e, limit := s.shard.engine, cmp.Or(int(s.batch.limit), s.shard.engine.opts.MaxChanges)
	for range maxEmpty {
		c, err := e.cut(ctx, s.about.Set, p, e.format(s.about.Form), &s.about.Filter, limit)
		switch {
		case errors.Is(err, feed.ErrGone):
			if err := s.overrun(ctx, p); err != nil {
				return nil, err
			}
		case err != nil || c.changes > 0:
			return c, err
		default:
			p.from, p.cursor, p.until, p.number = c.from, c.cursor, feed.Cursor{}, 0
		}
	}
	return nil, nil
}

// overrun moves a point to the floor of the log after retention has removed entries that follow it. The
// gap is announced until a delivery succeeds. It returns errNothing if the set does not exist.
func (s *sub) overrun(ctx context.Context, p *point) error {
	e := s.shard.engine
	state, err := e.log.State(ctx, s.about.Set)
	if errors.Is(err, feed.ErrNoSet) {
		return errNothing
	} else if err != nil {
		return fmt.Errorf("read state of set %q: %w", s.about.Set, err)
	}
	if s.Gap.IsZero() {
		// Entries that a filter skipped since the last delivery are in no interval, so the gap has them.
		s.Gap = p.start()
		s.Gap.Micros = max(s.Gap.Micros, 1) // the zero cursor would mean no gap
	}
	if s.Gap.Position > 0 && s.Gap.Micros <= max(state.Begin-1, state.PriorMicros) {
		s.Gap.Micros = -1 // the position is in a deleted set: see outlet.Lost
	}
	*p = point{cursor: state.Floor}
	s.Gaps++
	e.metrics.gaps.Inc()
	e.opts.Logger.Warn("callbacks: a subscription fell behind retention", "id", s.id, "set", s.about.Set, "host", s.host.name, "lost", outlet.Lost(s.Gap, p.start()))
	s.moveCursor(p)
	s.save()
	return nil
}

// format returns the format of deliveries to subscriptions of a form.
func (e *Engine) format(form string) *outlet.Format {
	return cmp.Or(e.opts.Formats[form], notification)
}

// outlet returns the outlet of subscriptions of a form.
func (e *Engine) outlet(form string) outlet.Outlet { return cmp.Or(e.format(form).Outlet, e.callbacks) }

// moveCursor sets where the subscription is.
func (s *sub) moveCursor(p *point) {
	if p.diverged && !s.Diverged {
		s.shard.engine.opts.Logger.Warn("callbacks: the log lost its newest changes", "id", s.id, "set", s.about.Set, "host", s.host.name)
		defer s.save()
	}
	if p.cursor != s.Cursor {
		s.ahead = 0
	}
	s.Cursor, s.From, s.until, s.number, s.Diverged = p.cursor, p.from, p.until, p.number, p.diverged
}

// send delivers a cut that follows a point.
func (s *sub) send(ctx context.Context, p *point, c *cut) {
	sh, e, about := s.shard, s.shard.engine, s.about
	if !sh.mayCall() {
		return
	}
	if p.number == 0 {
		p.number = sh.deliveries.Add(1)
	}
	format, gap := e.format(about.Form), ""
	if !s.Gap.IsZero() {
		gap = outlet.Lost(s.Gap, c.from)
	}
	d := &outlet.Delivery{
		To: about, Format: format, Body: stamp(c.body, format, p.number, gap), Changes: c.changes, From: c.from, Cursor: c.cursor,
		Attempt: s.Failed + 1, First: s.standing == untried, Number: p.number, Gap: s.Gap, Diverged: p.diverged,
	}
	s.startBurst()
	start := time.Now()
	v := e.outlet(about.Form).Deliver(ctx, d)
	if v.Decision != outlet.Done && ctx.Err() != nil { // canceled, and not a failure of the callback
		p.until = c.cursor
		s.moveCursor(p)
		return
	}
	e.queue.setAddress(s.host, v.Place)
	if v.Decision == outlet.Limited {
		s.moveCursor(p)
		s.pause(limitedRetry)
		return
	}
	s.settle(p, c, d, v, subscription.Attempt{At: start.UTC(), Kind: kindDelivery, Status: v.Status, Took: time.Since(start), Changes: c.changes, Error: v.Error})
}

// settle updates the subscription after a delivery.
func (s *sub) settle(p *point, c *cut, d *outlet.Delivery, v outlet.Verdict, a subscription.Attempt) {
	e := s.shard.engine
	s.history, s.Delivery = s.history.with(a), p.number
	defer s.save()
	e.opts.Meter.Count(meter.Delivery, v.Outcome, a.Took)
	if d.Attempt > 1 {
		e.metrics.retries.Inc()
	}
	if a.Error != "" || d.Attempt > 1 {
		e.opts.Activity.Called(Outcome{Set: d.To.Set, ID: s.id, Callback: d.To.Callback, Kind: a.Kind, Status: a.Status, Error: a.Error})
	}
	switch v.Decision {
	case outlet.Done:
		e.opts.Activity.Delivered(d.To.Set, c.changes)
		e.metrics.deliveries.Inc()
		e.metrics.bytes.Add(float64(d.Size()))
		e.metrics.changes.Add(float64(c.changes))
		s.moveCursor(&point{cursor: c.cursor})
		s.batch.succeed(e.opts.MaxChanges)
		s.Gap, s.Failed, s.Next, s.earliest = feed.Cursor{}, 0, time.Time{}, time.Time{}
		s.standing = standingAfter(a.Took)
		s.endBurst()
	case outlet.Over:
		s.shard.mu.Lock()
		s.over = ended
		s.shard.mu.Unlock()
	default:
		s.moveCursor(p)
		s.until, s.ahead = c.cursor, c.first
		s.fail(c, v)
	}
}

// startBurst sets the end of a burst to the head of the topic, if there is no burst. With about.Every,
// what comes during a burst is delivered after the interval.
func (s *sub) startBurst() {
	if s.about.Every == 0 {
		return
	}
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	if head := s.topic.head.Position; s.burst == 0 || s.burst > head { // positions may have started again
		s.burst = head
	}
}

func (s *sub) endBurst() {
	if s.about.Every > 0 && s.Cursor.Position >= s.burst {
		s.burst, s.quiet = 0, time.Now().Add(s.about.Every)
	}
}

// pause delays the next delivery, although the callback has not failed.
func (s *sub) pause(d time.Duration) {
	s.Next = time.Now().Add(backoff.Jitter(d))
	s.earliest = s.Next
}

// fail sets the time of the next attempt. A new change brings it forward, since a callback that works
// again should not wait, but not before a tenth of the wait.
func (s *sub) fail(c *cut, v outlet.Verdict) {
	now := time.Now()
	s.standing = doubtful
	if v.Decision == outlet.Smaller && c.changes > 1 {
		s.batch.refuse(c.changes)
		s.until, s.number = feed.Cursor{}, 0 // the next cut has fewer changes, so there is no reason to wait long
		s.Next = now.Add(max(backoff.Jitter(firstRetry), v.After))
		s.earliest = s.Next
	} else {
		wait := max(backoff.Jitter(backoff.Exponential(firstRetry, lastRetry, s.Failed)), v.After)
		s.Next = now.Add(wait)
		s.earliest = now.Add(max(firstRetry, wait/10, v.After))
	}
	s.Failed++
}

// maxPatience bounds how many deliveries have to succeed before a callback is offered more changes: one
// that has a limit refuses one delivery of that many.
const maxPatience = 64

// A batchSize is how many changes a callback accepts at once, as far as its responses show. A refusal
// (413) halves the deliveries. Successes double them again, because the cause may have been temporary.
// The zero value has no limit.
type batchSize struct {
	limit    int32 // changes in a delivery; zero means Options.MaxChanges
	accepted int32 // deliveries that succeeded since limit was set
	patience int32 // deliveries that have to succeed before limit is doubled, less one
	grown    bool  // whether limit was doubled since the last refusal
}

// refuse notes that a delivery was too large. If it was just doubled, the callback has a limit of its own
// there, so the next doubling waits for twice as many successes.
func (b *batchSize) refuse(changes int) {
	if b.grown {
		b.patience = min(2*b.patience+1, maxPatience-1)
	}
	b.limit, b.accepted, b.grown = int32(changes/2), 0, false
}

// succeed notes that a delivery succeeded. most is the limit of the engine.
func (b *batchSize) succeed(most int) {
	if b.limit == 0 {
		return
	}
	if b.accepted++; b.accepted <= b.patience {
		return
	}
	b.limit, b.accepted, b.grown = 2*b.limit, 0, true
	if int(b.limit) >= most {
		b.limit = 0
	}
}
