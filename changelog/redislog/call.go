package redislog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
)

// do runs a step of a call like redisconn.Call.Do. If the step finds a set of another memory, do
// checks once which memory is in Redis now, and runs the step again.
func (l *Log) do(ctx context.Context, c *redisconn.Call, step func(*redisconn.Try) error) error {
	adopted := l.fixedID
	return c.Do(ctx, func(t *redisconn.Try) error {
		err := step(t)
		if _, other := errors.AsType[otherError](err); !other || adopted {
			return err
		}
		adopted = true
		if err := l.adoptID(t); err != nil {
			return err
		}
		return step(t)
	})
}

// read runs a step that only reads.
func (l *Log) read(ctx context.Context, step func(*redisconn.Try) error) error {
	return l.do(ctx, l.conn.ReadCall(), step)
}

// write runs a step that writes.
func (l *Log) write(ctx context.Context, step func(*redisconn.Try) error) error {
	return l.do(ctx, l.conn.WriteCall(), step)
}

// errSetChanged reports that a set was created again or described since this hub read it. The step
// did nothing.
var errSetChanged = errors.New("the set was changed by another hub")

// maxAttempts is the maximum number of times that a call reads a set again because the set has
// changed before the step.
const maxAttempts = 4

// retryChanged calls do at most maxAttempts times, until it returns another error than
// errSetChanged. do reads the set, and then runs one or more steps with the Call. If the answer to
// a step was lost, its result is unknown; then retryChanged returns feed.ErrUnknown instead of
// retrying.
func (l *Log) retryChanged(do func(*redisconn.Call) error) error {
	c := l.conn.WriteCall()
	for range maxAttempts {
		if err := do(c); !errors.Is(err, errSetChanged) {
			return err
		}
	}
	return fmt.Errorf("%w: %w repeatedly", feed.ErrUnavailable, errSetChanged)
}

// changeSet runs the steps of do on a set. Each step names the log that do gets, so that a late
// request cannot change a newer log with that name. If the set was created again since this hub
// read it, changeSet reads it again and calls do again.
func (l *Log) changeSet(ctx context.Context, set string, do func(*redisconn.Call, tail) error) error {
	return l.retryChanged(func(c *redisconn.Call) error {
		end, err := l.tail(ctx, set)
		if err == nil {
			err = do(c, end)
		}
		if errors.Is(err, errSetChanged) {
			l.dropTail(set)
		}
		return err
	})
}

// commonArgs returns the first arguments of every script: the identity, the hub's clock and the
// clock skew; see lib.lua.
func (l *Log) commonArgs() []any {
	return []any{l.ID(), l.opts.Now().UnixMicro(), l.opts.ClockSkew.Microseconds()}
}

// run runs a script on keys of one slot, without waiting for replicas. It is for scripts that only
// read, and for writes that may be lost. If the set does not exist, the error is feed.ErrNoSet.
func (l *Log) run(t *redisconn.Try, s *redisconn.Script, keys []string, args ...any) (redisconn.Answer, error) {
	return l.checkAnswer(t.Run(s, keys, append(l.commonArgs(), args...)...))
}

// runWait runs a script that writes, on keys of one slot. It waits for as many replicas as the
// options of the connection require. If the set does not exist, the error is feed.ErrNoSet.
func (l *Log) runWait(t *redisconn.Try, s *redisconn.Script, keys []string, args ...any) (redisconn.Answer, error) {
	return l.runWaitArgs(t, s, keys, append(l.commonArgs(), args...))
}

// runWaitArgs is like runWait, but args must start with the common arguments.
func (l *Log) runWaitArgs(t *redisconn.Try, s *redisconn.Script, keys []string, args []any) (redisconn.Answer, error) {
	return l.checkAnswer(t.RunWait(s, keys, args...))
}

// checkAnswer converts the answers of a script that could not do its work into errors: the set does
// not exist, was created again, belongs to another memory, or is damaged.
func (l *Log) checkAnswer(a redisconn.Answer, err error) (redisconn.Answer, error) {
	if err != nil {
		if text, _ := redisconn.ReplyText(err); strings.Contains(text, "damaged: ") {
			err = refuse("%w: %s", changelog.ErrCorrupt, damageText(text))
		}
		return nil, err
	}
	switch a.Word() {
	case "noset":
		return nil, redisconn.Refuse(feed.ErrNoSet)
	case "anew":
		return nil, redisconn.Refuse(errSetChanged)
	case "other":
		return nil, l.otherMemory(a.Text(1))
	}
	return a, nil
}

// damageText returns the part of a script's error text that describes the damage.
func damageText(text string) string {
	_, text, _ = strings.Cut(text, "damaged: ")
	text, _, _ = strings.Cut(text, " script: ")
	return strings.TrimSuffix(strings.TrimSpace(text), ",")
}

// refuse returns a formatted error that ends a call without a retry.
func refuse(format string, args ...any) error { return redisconn.Refuse(fmt.Errorf(format, args...)) }
