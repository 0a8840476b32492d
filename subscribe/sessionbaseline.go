package subscribe

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/rshub/rshub/feed"
)

// A baselineRead is a baseline that a session reads. Its goroutine reads part after part, and waits
// until the output goroutine has written each of them.
type baselineRead struct {
	f       *setFollow
	since   string
	id      json.RawMessage // id of the client's message, for the first part
	cancel  context.CancelFunc
	ctx     context.Context
	written chan struct{} // receives a value when the output goroutine is done with a part
}

// A baselinePart is a part of a baseline, or its end because of an error.
type baselinePart struct {
	from *baselineRead
	*part
	err  error
	last bool // whether the goroutine of the baseline has ended
}

// maxBaselines is the number of baselines that a session reads at a time.
const maxBaselines = 4

// addBaseline starts the baseline of f, or queues it.
func (c *session) addBaseline(f *setFollow, s *step) {
	b := &baselineRead{f: f, since: s.since, id: s.id, written: make(chan struct{}, 1)}
	b.ctx, b.cancel = context.WithCancel(c.ctx)
	f.baseline = b
	c.waiting = append(c.waiting, b)
	c.startBaselines()
}

// startBaselines starts waiting baselines.
func (c *session) startBaselines() {
	for len(c.waiting) > 0 && c.reading < maxBaselines {
		b := c.waiting[0]
		c.waiting = slices.Delete(c.waiting, 0, 1)
		if b.f.ended {
			continue
		}
		c.reading++
		c.server.wg.Go(func() { c.readBaseline(b) })
	}
}

// readBaseline reads a baseline and passes its parts to the output goroutine.
func (c *session) readBaseline(r *baselineRead) {
	defer r.cancel()
	pass := func(p *part) bool {
		c.addPart(baselinePart{from: r, part: p})
		select {
		case <-r.written:
			return true
		case <-r.ctx.Done():
			return false
		}
	}
	var filter feed.Filter
	if r.f.filter != nil {
		filter = *r.f.filter
	}
	b, err := c.server.baseline(r.ctx, r.f.set(), r.since, filter)
	if err == nil {
		defer b.close()
	}
	for err == nil {
		var p *part
		if p, err = b.next(r.ctx, feed.JSON); err == nil && (!pass(p) || p.End) {
			break
		}
	}
	c.addPart(baselinePart{from: r, err: err, last: true})
}

// addPart passes a part to the output goroutine.
func (c *session) addPart(p baselinePart) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts = append(c.parts, p)
	c.wakeup.Wake()
}

// writeParts writes the parts of baselines that were read.
func (c *session) writeParts() error {
	c.mu.Lock()
	parts := c.parts
	c.parts = nil
	c.mu.Unlock()
	for _, p := range parts {
		r, f := p.from, p.from.f
		switch {
		case p.last:
			c.reading--
			c.startBaselines()
			if p.err != nil && !f.ended && c.ctx.Err() == nil {
				c.stop(f, p.err, feed.Cursor{}, errors.Is(p.err, feed.ErrNoSet))
			}
			continue
		case !f.ended:
			before := len(c.out)
			c.appendMessage(r.id, slices.Concat(p.head, p.body, p.tail))
			r.id = nil
			c.server.countBaseline(byWebSocket, p.resources, len(c.out)-before)
			f.moveTo(p.Next.Cursor, p.Next.Cursor)
			if p.End {
				f.baseline = nil
				c.markBehind(f)
			}
		}
		if err := c.flush(); err != nil {
			return err
		}
		r.written <- struct{}{}
	}
	return nil
}
