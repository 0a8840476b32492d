package subscribe

import (
	"context"
	"errors"
	"time"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/limit"
)

// An output is the state of the output goroutine of a session.
type output struct {
	out       []byte // frames to write; may start within a frame
	tally     tally  // deliveries that are not counted yet
	deadlined bool   // whether a deadline of the socket may be set

	steps      []step // steps in progress
	statesRead bool   // whether the states of the sets of steps were read

	all        *everyFollow    // follow of every set; nil if there is none
	found      []string        // visible sets to start, because the client follows every set
	stopped    map[string]stop // sets that were stopped or excluded, or whose start failed
	acquired   int             // number of follows that count for the limit
	maxFollows int             // highest number of follows

	spare   []*setFollow // array for session.ready
	behind  []*setFollow // follows that have more changes, in the order of service
	delayed []*setFollow // follows that wait for the memory
	moved   []*setFollow // follows whose cursors a filter moved without a message

	waiting  []*baselineRead // baselines that wait for others to end
	reading  int             // number of baselines in progress
	reported time.Time       // time of the last appendCursors

	failures int       // number of consecutive failures of the memory
	retryAt  time.Time // time to use the memory again after a failure; zero if it is available
}

const (
	maxSteps     = 1_000                 // steps executed together; the states of their sets are read in one call
	stepsBudget  = 50 * time.Millisecond // time for steps between two deliveries
	batchEntries = 5_000                 // entries read for a set at a time
	maxSpare     = 64                    // capacity of an array that is retained
	cursorsEvery = time.Minute           // minimum time between two reports of cursors that filters moved
)

// run is the output goroutine of c.
func (c *session) run() {
	c.turn.Lock()
	defer c.turn.Unlock()
	defer c.releaseAll()
	var err error
	for err == nil && c.ctx.Err() == nil {
		err = c.work()
	}
	if err == nil {
		err = c.flush() // out may start within a frame
	}
	if errors.Is(err, errTooSlow) {
		c.goodbye(closeTooSlow, "too slow: the client accepted no data for too long")
	}
	if errors.Is(err, errStuck) {
		c.mu.Lock()
		if c.bye == nil {
			c.why = tooSlow
		}
		c.mu.Unlock()
	}
	if c.server.ctx.Err() != nil {
		c.goodbye(websocket.CloseGoingAway, stopping)
	}
	if c.leaving() && (err == nil || errors.Is(err, errTooSlow)) {
		c.writeClose()
		return
	}
	c.closeSocket() // the reader notices, and ends c
}

// releaseAll ends all follows.
func (c *session) releaseAll() {
	c.cancel()
	for i := range c.steps {
		if f := c.steps[i].f; f != nil {
			c.server.topics.leave(f)
		}
	}
	for _, f := range c.follows {
		c.drop(f)
	}
	c.releaseFollows(c.acquired)
	if c.ended != nil {
		c.ended(c.maxFollows)
	}
}

// acquireFollows counts n follows for the limit.
func (c *session) acquireFollows(n int) error {
	err := c.user.Acquire(limit.Follows, int64(n))
	if err == nil {
		c.acquired += n
	}
	return err
}

func (c *session) releaseFollows(n int) {
	c.user.Release(limit.Follows, int64(n))
	c.acquired -= n
}

// work does a bounded amount of work, and waits for more if there is none. So sets that are up to
// date, commands, and sets that catch up alternate.
func (c *session) work() error {
	if !c.retryAt.IsZero() && !time.Now().Before(c.retryAt) {
		c.retryAt = time.Time{}
		c.behind, c.delayed = append(c.behind, c.delayed...), nil
	}
	c.appendControl()
	if c.retryAt.IsZero() {
		c.noteMemory(c.applyNews())
	}
	if c.retryAt.IsZero() {
		c.noteMemory(c.execute())
	}
	if err := c.deliverReady(); err != nil {
		return err
	}
	if len(c.behind) > 0 && c.retryAt.IsZero() {
		f := c.behind[0]
		c.behind[0] = nil
		c.behind = c.behind[1:]
		f.behind = false
		c.deliver(f)
	}
	if err := c.writeParts(); err != nil {
		return err
	}
	if err := c.flush(); err != nil {
		return err
	}
	if !c.hasWork() {
		c.wait()
	}
	return nil
}

// noteMemory delays the next use of the memory after an error.
func (c *session) noteMemory(err error) {
	if err == nil || !c.retryAt.IsZero() {
		return
	}
	c.failures++
	c.retryAt = time.Now().Add(backoff.Jitter(backoff.Exponential(100*time.Millisecond, 5*time.Second, c.failures)))
}

// isTemporary reports whether the memory is unavailable, so that the same call may succeed later.
func isTemporary(err error) bool {
	return errors.Is(err, feed.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// hasWork reports whether work need not wait for another goroutine.
func (c *session) hasWork() bool {
	if !c.retryAt.IsZero() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.behind) > 0 || len(c.steps) > 0 || len(c.commands) > 0 || c.all != nil && (!c.all.done || len(c.found) > 0)
}

// wait waits until another goroutine has work, or the memory may be used again.
func (c *session) wait() {
	if cap(c.out) > maxIdle {
		c.out = nil
	}
	var retry <-chan time.Time
	if !c.retryAt.IsZero() {
		timer := time.NewTimer(time.Until(c.retryAt))
		defer timer.Stop()
		retry = timer.C
	}
	if c.deadlined { // otherwise it would apply to direct writes, too
		c.deadlined = false
		_ = c.nc.SetWriteDeadline(time.Time{})
	}
	c.turn.Unlock()
	defer c.turn.Lock()
	select {
	case <-c.wakeup:
	case <-retry:
	case <-c.ctx.Done():
	}
}

// appendControl appends pending control frames, and the frames of a heartbeat if it is due.
func (c *session) appendControl() {
	c.mu.Lock()
	control, due := c.control, c.due
	c.control, c.due = nil, false
	c.mu.Unlock()
	c.out = append(c.out, control...)
	if !due {
		return
	}
	c.out = appendFrame(c.out, websocket.PingMessage, nil)
	if now := time.Now(); len(c.moved) > 0 && now.Sub(c.reported) >= cursorsEvery {
		c.reported = now
		c.appendCursors()
	}
}

// markBehind notes that the set of f has more changes.
func (c *session) markBehind(f *setFollow) {
	if !f.behind {
		f.behind = true
		c.behind = append(c.behind, f)
	}
}

// deliverReady appends the changes of the follows that were marked as ready.
func (c *session) deliverReady() error {
	c.mu.Lock()
	ready := c.ready
	c.ready = c.spare[:0]
	for _, f := range ready {
		f.ready = false
	}
	c.mu.Unlock()
	for _, f := range ready {
		if f.behind {
			continue // it is served in order
		}
		c.deliver(f)
		if len(c.out) >= maxChunk {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	clear(ready)
	if c.spare = ready; cap(ready) > maxSpare {
		c.spare = nil
	}
	return nil
}

// deliver appends changes of the set of f, up to about the size of a chunk. If there are more, it marks
// f as behind.
func (c *session) deliver(f *setFollow) {
	if !f.started {
		f.woken = true
		return
	}
	defer c.server.count(byWebSocket, f.set(), &c.tally)
	size, examined := 0, 0
	for !f.ended && f.baseline == nil {
		batches, err := c.server.follower.Next(c.ctx, f.set(), f.cursor, defaultLimit)
		if err == nil {
			c.failures = 0
		} else if !isTemporary(err) {
			err = c.fail(f, err)
		}
		if err != nil {
			c.noteMemory(err)
			f.behind = true
			c.delayed = append(c.delayed, f)
		}
		if len(batches) == 0 {
			return
		}
		for _, b := range batches {
			if size >= maxChunk || examined >= batchEntries {
				c.markBehind(f)
				return
			}
			size += c.appendBatch(f, b)
			examined += len(b.Entries)
		}
	}
}

// deliverNow writes the changes of the set of f to the socket without waiting, if the output goroutine
// waits and nothing is pending. It reports whether the output goroutine has nothing to do for f. The
// rest of a frame that the socket does not accept is left to it.
func (c *session) deliverNow(f *setFollow, d *directDelivery) (done bool) {
	if c.raw == nil || !c.turn.TryLock() {
		return false
	}
	defer c.turn.Unlock()
	if len(c.out) > 0 || !f.started || f.ended || f.behind || f.baseline != nil || c.ctx.Err() != nil {
		return false
	}
	if d.format == c.wire.format && d.after == f.cursor && f.filter == nil && f.lastSent == f.cursor {
		f.moveTo(d.end, d.end)
	} else if !c.prepareNow(f, d) {
		return false
	}
	if len(d.buf) == 0 {
		return d.all
	}
	n, err := d.writer.write(c.raw, d.buf)
	d.tally.plus(d.sum)
	if err != nil {
		c.closeSocket() // the reader notices, and ends c
	}
	if n < len(d.buf) {
		c.out = append(c.out, d.buf[n:]...)
		c.wakeup.Wake()
	}
	return d.all
}

// prepareNow puts the cached changes of the set of f into d, and moves f's cursor. It returns false if
// the log would have to be read.
func (c *session) prepareNow(f *setFollow, d *directDelivery) bool {
	batches, ok := c.server.follower.Cached(f.set(), f.cursor)
	if !ok {
		return false
	}
	d.format, d.after = c.wire.format, f.cursor
	if f.filter != nil || f.lastSent != f.cursor {
		d.format = nil
	}
	own := c.out
	c.out = d.buf[:0]
	for len(batches) > 0 && len(c.out) < maxChunk {
		c.appendBatch(f, batches[0])
		batches = batches[1:]
	}
	d.buf, c.out = c.out, own
	d.sum, c.tally = c.tally, tally{}
	d.end, d.all = f.cursor, len(batches) == 0
	return true
}

// flush writes the frames in out.
func (c *session) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	c.deadlined = true
	err := finish(c, c.nc, c.server.opts.WriteTimeout, c.out)
	if c.out = c.out[:0]; cap(c.out) > 2*maxChunk {
		c.out = nil
	}
	return err
}

// setDeadline implements writer.
func (c *session) setDeadline(d time.Duration) (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last = c.bye != nil; last {
		d = lingering
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(d))
	return last
}

// writeClose writes the close frame of a leaving session. The reader then waits for the client to
// answer or to close, for as long as lingering.
func (c *session) writeClose() {
	c.mu.Lock()
	bye := c.bye
	c.mu.Unlock()
	writeLast(c.nc, c.wire.end(bye, ""))
}
