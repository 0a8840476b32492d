package callback

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/changelog"
)

// How failing deliveries are tried again, until the lease ends.
const (
	firstRetry    = time.Second // doubling
	lastRetry     = 5 * time.Minute
	maxRetryAfter = time.Hour
	slowAfter     = time.Second // a success that took longer proves nothing
	memoryRetry   = 2 * time.Second
	maxEmpty      = 16 // cuts that a filter left empty, until others have their turn
)

const userAgent = "rshub (+https://github.com/rshub/rshub)"

// A delivery is one turn of a sub: what it works with, and what came of it. The
// sub may change meanwhile.
type delivery struct {
	sub     *sub
	engine  *Engine
	about   *Subscription
	topic   *topic
	filter  *filter
	place   place
	gap     changelog.Cursor
	gaps    int
	failed  int
	limit   int
	moves   int
	version int // of the topic

	cut     *cut  // that was sent; nil: there was nothing, or err
	err     error // the memory could not be read; errNothing
	attempt Attempt
	outcome outcome
	retry   time.Duration // what the answer's Retry-After says

	over   atomic.Bool // the sub is no more
	cancel atomic.Pointer[context.CancelFunc]
}

// end cancels a delivery whose sub is no more: who subscribes again must not get
// two at once.
func (d *delivery) end() {
	d.over.Store(true)
	if cancel := d.cancel.Load(); cancel != nil {
		(*cancel)()
	}
}

// turn delivers what is behind the sub's cursor, if there is anything.
func (s *sub) turn() turn {
	if s.over != "" {
		return nil
	}
	e := s.shard.engine
	s.running = &delivery{
		sub: s, engine: e, about: s.about, topic: s.topic, filter: s.filter, place: s.place,
		gap: s.gap, gaps: s.gaps, failed: s.failed, limit: or(s.limit, e.opts.MaxChanges), moves: s.moves, version: s.topic.version,
	}
	return s.running
}

// do makes the next cut that is not empty, and sends it.
func (d *delivery) do() {
	ctx := d.sub.shard.ctx
	for range maxEmpty {
		var c *cut
		c, d.err = d.topic.cut(ctx, &d.place, d.filter, d.limit, d.version)
		switch {
		case errors.Is(d.err, changelog.ErrGone):
			if d.err = d.overrun(ctx); d.err != nil {
				return
			}
		case d.err != nil:
			return
		case c.changes == 0:
			d.place.from, d.place.cursor, d.place.until = c.from, c.cursor, changelog.Cursor{}
		default:
			d.send(ctx, c)
			return
		}
	}
}

// overrun moves a place that the memory does not reach back to any more to the
// oldest that is kept. In a set that is not there, there is nothing to deliver.
func (d *delivery) overrun(ctx context.Context) error {
	state, err := d.engine.log.State(ctx, d.about.Set)
	if errors.Is(err, changelog.ErrNoSet) {
		return errNothing
	} else if err != nil {
		return fmt.Errorf("state of set %q: %w", d.about.Set, err)
	}
	if d.gap.IsZero() {
		d.gap = d.place.cursor
		d.gap.Micros = max(d.gap.Micros, 1) // the zero cursor would say that there is no gap
	}
	d.gaps++
	d.place = place{cursor: state.Floor}
	return nil
}

// send posts a cut to the callback.
func (d *delivery) send(ctx context.Context, c *cut) {
	d.cut = c
	ctx, cancel := context.WithTimeout(ctx, d.engine.opts.Timeout)
	defer cancel()
	if d.cancel.Store(&cancel); d.over.Load() {
		return
	}
	begin := time.Now()
	status, retry, err := d.post(ctx, cancel, c)
	d.attempt = Attempt{At: begin.UTC(), Kind: "deliver", Status: status, Took: time.Since(begin), Changes: c.changes}
	d.retry = retry
	var f *failure
	switch {
	case err != nil:
		f = explain(err)
	case status < 200 || status > 299:
		f = answered("the answer is no success", status)
	default:
		return
	}
	d.attempt.Error, d.outcome = f.text, f.outcome
}

func (d *delivery) post(ctx context.Context, cancel context.CancelFunc, c *cut) (status int, retry time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.about.Callback, c.reader())
	if err != nil {
		return 0, 0, err
	}
	r.ContentLength = c.size()
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(c.reader()), nil }
	r.Header = http.Header{
		"Content-Type": {"application/xml"},
		"User-Agent":   {userAgent},
		"Link":         {d.topic.link},
		"Rs-Position":  {strconv.FormatUint(c.cursor.Position, 10)},
		"Rs-Previous":  {strconv.FormatUint(c.from.Position, 10)},
		"Rs-Attempt":   {strconv.Itoa(d.failed + 1)},
		// Not sent, but lets the transport try again by itself when the callback
		// closed a kept connection: a repeat is allowed.
		"Idempotency-Key": {},
	}
	if !d.gap.IsZero() {
		r.Header["Rs-Gap"] = []string{gapText(d.gap, d.place.begin())}
	}
	if d.place.diverged {
		r.Header["Rs-Diverged"] = []string{"true"}
	}
	if d.about.Secret != "" {
		r.Header["X-Hub-Signature"] = []string{signature(d.about.Secret, c.body)}
	}
	resp, err := d.engine.transport.RoundTrip(r)
	if err != nil {
		return 0, 0, err
	}
	drain(resp, cancel)
	return resp.StatusCode, retryAfter(resp.Header.Get("Retry-After"), time.Now()), nil
}

// link returns the Link header of deliveries (Change Notification section 4.3):
// one field with hub and self.
func (e *Engine) link(set string) string {
	return "<" + e.opts.BaseURL + `/hub>; rel="hub", <` + e.topicURL(set) + `>; rel="self"`
}

// gapText says which positions were lost. A set that was made anew counts from
// the beginning again, so only where the gap begins is known.
func gapText(before, floor changelog.Cursor) string {
	text := strconv.FormatUint(before.Position+1, 10) + "-"
	if floor.Position > before.Position {
		text += strconv.FormatUint(floor.Position, 10)
	}
	return text
}

// signature returns the value of X-Hub-Signature (WebSub section 7.1).
func signature(secret string, body [][]byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	for _, part := range body {
		mac.Write(part)
	}
	return string(hex.AppendEncode([]byte("sha256="), mac.Sum(nil)))
}

// retryAfter reads the header of that name: seconds or a date.
func retryAfter(value string, now time.Time) time.Duration {
	if value == "" {
		return 0
	}
	if n, err := strconv.ParseUint(value, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// settle takes what came of a delivery into the sub.
func (d *delivery) settle() {
	s := d.sub
	s.running = nil
	switch {
	case s.state == dead:
		return
	case s.moves != d.moves: // it goes on elsewhere by now
		s.rest()
		return
	case d.cut == nil || s.shard.ctx.Err() != nil:
		s.advance(d, d.place)
		s.unsent(d)
		return
	}
	s.last.add(d.attempt)
	s.soil()
	m := s.shard.engine.metrics
	m.attempted(forDelivery, d.outcome, d.attempt.Took)
	if d.failed > 0 {
		m.retries.Inc()
	}
	switch d.outcome {
	case outcomeSuccess:
		m.deliveries.Inc()
		m.bytes.Add(float64(d.cut.size()))
		m.changes.Add(float64(d.cut.changes))
		s.advance(d, place{cursor: d.cut.cursor})
		s.gap = changelog.Cursor{}
		s.setFailed(0)
		s.next, s.earliest = time.Time{}, time.Time{}
		s.proven = d.attempt.Took <= slowAfter
		s.rest()
	case outcomeGone:
		s.end(ended)
	default:
		s.advance(d, d.place)
		s.until, s.first = d.cut.cursor, d.cut.first
		s.fail(d)
		s.rest()
	}
}

// advance sets the sub's place, and counts what was lost on the way.
func (s *sub) advance(d *delivery, to place) {
	e := s.shard.engine
	if d.gaps > s.gaps {
		e.metrics.gaps.Add(float64(d.gaps - s.gaps))
		e.opts.Logger.Warn("callbacks: the memory overran a subscription", "id", s.id, "set", s.about.Set, "host", s.host.name, "lost", gapText(d.gap, d.place.begin()))
		s.gap, s.gaps = d.gap, d.gaps
		s.soil()
	}
	if to.diverged && !s.diverged {
		e.opts.Logger.Warn("callbacks: the log had lost its tail", "id", s.id, "set", s.about.Set, "host", s.host.name)
		s.soil()
	}
	if to.cursor != s.cursor {
		s.first = 0
		if !s.dirty && !s.moved {
			s.moved = true
			s.shard.moved = append(s.shard.moved, s)
		}
	}
	s.place = to
}

// unsent goes on after a turn in which nothing was sent.
func (s *sub) unsent(d *delivery) {
	switch {
	case s.shard.ctx.Err() != nil: // the shard is dropped soon
	case errors.Is(d.err, errNothing):
		if s.over == "" && s.topic.version == d.version && s.about.LeaseEnd.After(time.Now()) {
			s.wait()
			return
		}
		s.rest()
	case d.err != nil:
		s.shard.engine.opts.Logger.Warn("callbacks: the memory cannot be read", "set", s.about.Set, "err", d.err)
		s.next = time.Now().Add(jitter(memoryRetry))
		s.earliest = s.next
		s.rest()
	default: // a filter left much out
		s.rest()
	}
}

// fail decides when to try again.
//
// A new change brings the try forward, for a callback that is well again should
// not wait. But it does so only once after each failure, and not before a tenth
// of the wait (1 s at least) is over: a stream of changes makes a callback that
// is dead be tried each 30 s instead of each five minutes. Retry-After is never
// undercut.
func (s *sub) fail(d *delivery) {
	s.proven = false
	now := time.Now()
	if d.attempt.Status == http.StatusRequestEntityTooLarge && d.cut.changes > 1 {
		s.limit, s.until = d.cut.changes/2, changelog.Cursor{} // less may do: that is no reason to wait long
		s.setFailed(s.failed + 1)
		s.next = now.Add(max(jitter(firstRetry), d.retry))
		s.earliest = s.next
		return
	}
	wait := max(jitter(backoff(s.failed)), d.retry)
	s.setFailed(s.failed + 1)
	s.next = now.Add(wait)
	s.earliest = now.Add(max(firstRetry, wait/10, d.retry))
}

func (s *sub) setFailed(n int) {
	e := s.shard.engine
	switch {
	case s.failed == 0 && n > 0:
		e.failing++
	case s.failed > 0 && n == 0:
		e.failing--
	}
	s.failed = n
}

// backoff returns how long to wait after a number of earlier failures.
func backoff(failed int) time.Duration {
	return min(firstRetry<<min(failed, 16), lastRetry)
}

// jitter changes d by up to a fifth.
func jitter(d time.Duration) time.Duration { return d - d/5 + rand.N(2*d/5+1) }
