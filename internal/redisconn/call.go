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

// A Call is one call with all of its tries. It may have several steps, one after the
// other. If a try of one step was lost, the steps after it take that into account too.
type Call struct {
	conn  *Conn
	reads bool        // a lost try does no harm, because the call writes nothing of importance
	lost  atomic.Bool // a try may have been sent, but its answer did not come
}

// Reading returns a new call that only reads. It is also for writes that do no harm if
// they are lost or happen twice. Its errors are never feed.ErrUnknown.
func (c *Conn) Reading() *Call { return &Call{conn: c, reads: true} }

// Writing returns a new call that writes.
func (c *Conn) Writing() *Call { return &Call{conn: c} }

// tries is how often Do tries a step at most.
const tries = 4

// Do runs a step until it succeeds, and blocks meanwhile. After a temporary failure
// it tries the step again: at most four times in all, and for about twice the
// timeout. So the step must be safe to repeat. An error says what happened over all
// tries:
//
//   - feed.ErrUnknown: Redis may have done a try whose answer did not come, or the
//     replicas did not confirm a write in time.
//   - feed.ErrUnavailable: Redis cannot do it now; nothing was written.
//   - feed.ErrFull: Redis has no room; nothing was written.
//   - the error of ctx: ctx ended the call, and nothing was written.
//   - any other error is that of the step, see Refuse.
func (c *Call) Do(ctx context.Context, step func(*Try) error) error { return c.run(ctx, tries, step) }

// Once is Do with one try only.
func (c *Call) Once(ctx context.Context, step func(*Try) error) error { return c.run(ctx, 1, step) }

// Lost reports whether a try may have been sent but its answer did not come. A later
// try may then find that the lost one did the work.
func (c *Call) Lost() bool { return c.lost.Load() }

func (c *Call) run(ctx context.Context, tries int, step func(*Try) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := &c.conn.opts
	limited, cancel := context.WithTimeout(ctx, 2*o.Timeout+o.WaitTimeout)
	defer cancel()
	t := &Try{conn: c.conn, node: c.conn.client, ctx: limited, noted: context.WithValue(limited, callKey{}, c)}
	for n := 1; ; n++ {
		err := step(t)
		if _, said := Said(err); err == nil || said {
			c.conn.answered.Store(true)
		}
		if err == nil {
			return nil
		}
		if c.conn.cluster != nil && redis.HasErrorPrefix(err, "MOVED") {
			c.conn.cluster.ReloadState(limited)
		}
		if n == tries || !passing(err) || !backoff.Wait(limited, 30*time.Millisecond<<(2*(n-1))) {
			return c.Verdict(ctx, err)
		}
	}
}

// Verdict says what an error means for the call, as the error of Do does. It is for an
// error that occurs between two steps of a call.
func (c *Call) Verdict(ctx context.Context, err error) error {
	if errors.Is(err, feed.ErrUnknown) {
		return err
	}
	if c.lost.Load() && !c.reads {
		// An earlier try may have done the work, and so caused this refusal. So the
		// error must not look like a refusal.
		return fmt.Errorf("%w: %v", feed.ErrUnknown, err)
	}
	if why := ctx.Err(); errors.Is(err, why) {
		return c.conn.explain(why)
	} else if why != nil {
		return fmt.Errorf("%w: %v", why, err)
	}
	return meaning(c.conn.explain(err))
}
