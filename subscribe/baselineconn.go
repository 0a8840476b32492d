package subscribe

import (
	"context"
	"errors"
	"slices"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/zst"
)

// beginBaseline makes c start with a baseline, or with the rest of one.
func (c *conn) beginBaseline(ctx context.Context, since string) (err error) {
	if c.key.format.Baseline == nil {
		return noBaselines(c.key.format.Name)
	}
	c.baseline, err = c.server.baseline(ctx, c.key.set, since, c.filter)
	if err == nil {
		c.readUpTo(c.baseline.part())
	}
	return err
}

// endBaseline releases the baseline of c.
func (c *conn) endBaseline() {
	if c.baseline != nil {
		c.baseline.close()
		c.baseline = nil
	}
}

// sendBaseline writes the baseline. The output goroutine calls it after the pending frames. err is
// the result of writing those.
func (c *conn) sendBaseline(err error) error {
	b := c.baseline
	defer c.endBaseline()
	for ended := false; err == nil && !ended; {
		if err = c.between(); err != nil {
			break
		}
		ctx, cancel := c.waiting()
		p, failed := b.next(ctx, c.key.format)
		interrupted := ctx.Err() != nil
		cancel()
		if failed != nil {
			if !interrupted { // otherwise there is pending output
				c.server.logFailure(c.key.set, failed)
				c.fail(failed)
			}
			continue
		}
		if c.key.format.Zstd {
			p.head, p.body, p.tail = zst.Append(nil, slices.Concat(p.head, p.body, p.tail)), nil, nil
		}
		n := len(p.head) + len(p.body) + len(p.tail)
		if err = c.finish(append(c.key.head(nil, n), p.head...), p.body, append(p.tail, c.key.tail()...)); err == nil || errors.Is(err, errTooSlow) {
			c.readUpTo(p.BaselinePart)
			c.server.countBaseline(c.key.kind(), p.resources, n)
			ended = p.End
		}
	}
	return err
}

// readUpTo records that the client has received a part of a baseline.
func (c *conn) readUpTo(p *feed.BaselinePart) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cursor, c.lastSent, c.resumeFrom = p.Next.Cursor, p.Next.Cursor, p.Cursor()
	if p.End {
		c.resumeFrom = ""
	}
}
