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

// do runs a step of a call as redisconn.Call.Do does. If the step finds a set of
// another memory, do checks once which memory is in Redis now, and runs the step
// again.
func (l *Log) do(ctx context.Context, c *redisconn.Call, step func(*redisconn.Try) error) error {
	adopted := l.fixed
	return c.Do(ctx, func(t *redisconn.Try) error {
		err := step(t)
		if _, other := errors.AsType[otherError](err); !other || adopted {
			return err
		}
		adopted = true
		if err := l.adopt(t); err != nil {
			return err
		}
		return step(t)
	})
}

// read runs a step that only reads.
func (l *Log) read(ctx context.Context, step func(*redisconn.Try) error) error {
	return l.do(ctx, l.conn.Reading(), step)
}

// write runs a step that writes.
func (l *Log) write(ctx context.Context, step func(*redisconn.Try) error) error {
	return l.do(ctx, l.conn.Writing(), step)
}

// errAnew means that a set was made anew or described again since this hub looked
// at it. The step did nothing.
var errAnew = errors.New("the set is not what it was")

// looks is how often a call looks at a set, because the set may change between the
// look and the step.
const looks = 4

// again calls do until do does not return errAnew, at most looks times. do looks at the
// set first, and then runs one or more steps with the Call. If a try of a step was
// lost, its result is unknown. again then returns feed.ErrUnknown and does not try
// again.
func (l *Log) again(do func(*redisconn.Call) error) error {
	c := l.conn.Writing()
	for range looks {
		if err := do(c); !errors.Is(err, errAnew) {
			return err
		}
	}
	return fmt.Errorf("%w: %w, again and again", feed.ErrUnavailable, errAnew)
}

// change runs the steps of do on a set. Each step names the log that do gets, so that
// a late request cannot change a newer log of that name. If the set was made anew
// since this hub looked, change looks again, and calls do again.
func (l *Log) change(ctx context.Context, set string, do func(*redisconn.Call, tail) error) error {
	return l.again(func(c *redisconn.Call) error {
		end, err := l.tail(ctx, set)
		if err == nil {
			err = do(c, end)
		}
		if errors.Is(err, errAnew) {
			l.forget(set)
		}
		return err
	})
}

// common returns the first arguments of every script: the identity, the hub's clock
// and the clock skew, see lib.lua.
func (l *Log) common() []any {
	return []any{l.ID(), l.opts.Now().UnixMicro(), l.opts.ClockSkew.Microseconds()}
}

// ask runs a script on keys of one slot, and waits for no replica. It is for scripts
// that only read, and for writes that may be lost. If the set does not exist, the
// error is feed.ErrNoSet.
func (l *Log) ask(t *redisconn.Try, s *redisconn.Script, keys []string, args ...any) (redisconn.Answer, error) {
	return l.made(t.Run(s, keys, append(l.common(), args...)...))
}

// tell runs a script that writes, on keys of one slot. It waits for as many replicas
// as the options of the connection say. If the set does not exist, the error is
// feed.ErrNoSet.
func (l *Log) tell(t *redisconn.Try, s *redisconn.Script, keys []string, args ...any) (redisconn.Answer, error) {
	return l.tellAll(t, s, keys, append(l.common(), args...))
}

// tellAll is tell, but args must begin with the common arguments.
func (l *Log) tellAll(t *redisconn.Try, s *redisconn.Script, keys []string, args []any) (redisconn.Answer, error) {
	return l.made(t.RunWait(s, keys, args...))
}

// made converts the answers of a script that cannot do its work into errors:
// the set does not exist, was made anew, belongs to another memory, or is
// damaged.
func (l *Log) made(a redisconn.Answer, err error) (redisconn.Answer, error) {
	if err != nil {
		if text, _ := redisconn.Said(err); strings.Contains(text, "damaged: ") {
			err = refuse("%w: %s", changelog.ErrCorrupt, damage(text))
		}
		return nil, err
	}
	switch a.Word() {
	case "noset":
		return nil, redisconn.Refuse(feed.ErrNoSet)
	case "anew":
		return nil, redisconn.Refuse(errAnew)
	case "other":
		return nil, l.other(a.Text(1))
	}
	return a, nil
}

// damage returns the part of a script's error text that describes the damage.
func damage(text string) string {
	_, text, _ = strings.Cut(text, "damaged: ")
	text, _, _ = strings.Cut(text, " script: ")
	return strings.TrimSuffix(strings.TrimSpace(text), ",")
}

// refuse makes an error that ends a call: the call is not tried again.
func refuse(format string, args ...any) error { return redisconn.Refuse(fmt.Errorf(format, args...)) }
