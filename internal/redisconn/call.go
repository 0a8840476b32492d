package redisconn

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// A Call is one call with all of its tries. It may have several consecutive steps. If a try of one
// step was lost, later steps take that into account.
type Call struct {
	conn     *Conn
	readOnly bool        // whether a lost try is harmless, because the call writes nothing important
	lost     atomic.Bool // whether a try may have been sent without a reply being received
}

// ReadCall returns a new call that only reads. It is also for writes that are harmless if they are
// lost or happen twice. Its errors are never feed.ErrUnknown.
func (c *Conn) ReadCall() *Call { return &Call{conn: c, readOnly: true} }

// WriteCall returns a new call that writes.
func (c *Conn) WriteCall() *Call { return &Call{conn: c} }

// maxTries is the maximum number of tries of a step in Do.
const maxTries = 4

// Do runs a step until it succeeds, and blocks until then. After a temporary failure it
// retries the step: at most four tries in all, and for about twice the timeout. So the
// step must be safe to repeat. The error reflects all tries:
//
//   - feed.ErrUnknown: Redis may have executed a try whose reply was lost, or the
//     replicas did not confirm a write in time.
//   - feed.ErrUnavailable: Redis cannot execute it now; nothing was written.
//   - feed.ErrFull: Redis is out of memory; nothing was written.
//   - the error of ctx: ctx was done, and nothing was written.
//   - any other error comes from the step, see Refuse.
func (c *Call) Do(ctx context.Context, step func(*Try) error) error {
	return c.run(ctx, maxTries, step)
}

// Once is Do with a single try.
func (c *Call) Once(ctx context.Context, step func(*Try) error) error { return c.run(ctx, 1, step) }

// Lost reports whether a try may have been sent without a reply being received. A later try may
// then find that the lost one took effect.
func (c *Call) Lost() bool { return c.lost.Load() }

// run runs a step with at most maxTries tries.
func (c *Call) run(ctx context.Context, tries int, step func(*Try) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := &c.conn.opts
	limited, cancel := context.WithTimeout(ctx, 2*o.Timeout+o.WaitTimeout)
	defer cancel()
	t := &Try{conn: c.conn, node: c.conn.client, ctx: limited, writeCtx: context.WithValue(limited, callKey{}, c)}
	for n := 1; ; n++ {
		err := step(t)
		if _, said := ReplyText(err); err == nil || said {
			c.conn.answered.Store(true)
		}
		if err == nil {
			return nil
		}
		if c.conn.cluster != nil && redis.HasErrorPrefix(err, "MOVED") {
			c.conn.cluster.ReloadState(limited)
		}
		if n == tries || !isTemporary(err) || !backoff.Wait(limited, 30*time.Millisecond<<(2*(n-1))) {
			return c.Verdict(ctx, err)
		}
	}
}

// Verdict returns the error of Do for err. It is for an error that occurs between two steps of a
// call.
func (c *Call) Verdict(ctx context.Context, err error) error {
	if errors.Is(err, feed.ErrUnknown) {
		return err
	}
	if c.lost.Load() && !c.readOnly {
		// An earlier try may have taken effect and thereby caused this refusal, so the
		// error must not be a refusal.
		return fmt.Errorf("%w: %v", feed.ErrUnknown, err)
	}
	if why := ctx.Err(); errors.Is(err, why) {
		return c.conn.explain(why)
	} else if why != nil {
		return fmt.Errorf("%w: %v", why, err)
	}
	return translate(c.conn.explain(err))
}
