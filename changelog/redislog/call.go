package redislog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rshub/rshub/changelog"
)

// A call is one call of a method on its way, over all of its tries.
type call struct {
	reads bool        // whether it was done or not makes no difference
	lost  atomic.Bool // something was sent, perhaps, and not answered
}

type callKey struct{}

// tries bounds how often a call is sent.
const tries = 4

// do runs one step until it is answered, as often as tries and for as long as
// twice the timeouts allow: what fails for the moment is tried again. The step
// must be safe to repeat. Its error says what happened over all tries.
func (l *Log) do(ctx context.Context, c *call, step func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(context.WithValue(ctx, callKey{}, c), 2*l.opts.Timeout+l.opts.WaitTimeout)
	defer cancel()
	adopted := false
	for try := 1; ; try++ {
		err := step(limited)
		if err == nil {
			return nil
		}
		if _, other := errors.AsType[otherError](err); other && !adopted && !l.fixed {
			adopted = true
			if err = l.adopt(limited); err == nil {
				continue
			}
		}
		if !passing(err) || try == tries || !pause(limited, try) {
			return verdict(ctx, c, err)
		}
		if cluster, ok := l.client.(*redis.ClusterClient); ok && redis.HasErrorPrefix(err, "MOVED") {
			cluster.ReloadState(limited)
		}
	}
}

// verdict says what an error means to the caller.
func verdict(ctx context.Context, c *call, err error) error {
	if errors.Is(err, changelog.ErrUnknown) {
		return err
	}
	if c.lost.Load() && !c.reads {
		// What was refused in a later try may have been done by an earlier one, so
		// it must not look like a refusal.
		return fmt.Errorf("%w: %v", changelog.ErrUnknown, err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %v", ctx.Err(), err)
	}
	return meaning(err)
}

// meaning is the error that callers decide by.
func meaning(err error) error {
	if _, ok := errors.AsType[redis.Error](err); !ok {
		if _, ours := errors.AsType[refusal](err); ours {
			return err
		}
		return fmt.Errorf("%w: %w", changelog.ErrUnavailable, err)
	}
	switch text := err.Error(); {
	case strings.Contains(text, "OOM command not allowed"):
		return fmt.Errorf("%w: %w", changelog.ErrFull, err)
	case strings.Contains(text, "damaged: "):
		return fmt.Errorf("%w: %s", changelog.ErrCorrupt, damage(text))
	case busy(err), starts(err, "NOAUTH", "WRONGPASS", "NOPERM", "MISCONF", "ASK"):
		return fmt.Errorf("%w: %w", changelog.ErrUnavailable, err)
	}
	return err
}

// damage returns what a script said of it.
func damage(text string) string {
	_, text, _ = strings.Cut(text, "damaged: ")
	text, _, _ = strings.Cut(text, " script: ")
	return strings.TrimSuffix(strings.TrimSpace(text), ",")
}

// A refusal is what a script refused, or what is wrong with its answer: there
// is nothing to try again.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// passing reports whether trying again makes sense.
func passing(err error) bool {
	if _, ours := errors.AsType[refusal](err); ours || errors.Is(err, redis.ErrClosed) {
		return false
	}
	if _, answered := errors.AsType[redis.Error](err); answered {
		return busy(err)
	}
	return true
}

// busy reports whether Redis cannot do it now, or not there.
func busy(err error) bool {
	return starts(err, "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOREPLICAS", "MOVED", "max number of clients")
}

func starts(err error, words ...string) bool {
	if err == nil {
		return false
	}
	for _, w := range words {
		// A script that ran into it says so in its middle.
		if redis.HasErrorPrefix(err, w) || strings.Contains(err.Error(), "-"+w+" ") {
			return true
		}
	}
	return false
}

// pause waits before the next try, and reports whether there is time for one.
func pause(ctx context.Context, try int) bool {
	d := 20 * time.Millisecond << (2 * (try - 1))
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// common are the first arguments of every script.
func (l *Log) common() []any {
	return []any{l.ID(), l.opts.Now().UnixMicro(), l.opts.ClockSkew.Microseconds()}
}

// ask runs a script that only reads, or whose writes no replica is waited for, on
// keys of one slot. An answer that the set is not there is an error.
func (l *Log) ask(ctx context.Context, s *redis.Script, keys []string, args ...any) (answer, error) {
	a, err := s.Run(ctx, l.client, keys, append(l.common(), args...)...).Slice()
	if err != nil {
		return nil, err
	}
	return l.made(a)
}

// tell runs a script that writes, on keys of one slot, and waits for replicas
// where the options want it. An answer that the set is not there is an error.
func (l *Log) tell(ctx context.Context, s *redis.Script, keys []string, args ...any) (answer, error) {
	return l.tellAll(ctx, s, keys, append(l.common(), args...))
}

// tellAll is tell with all arguments.
func (l *Log) tellAll(ctx context.Context, s *redis.Script, keys []string, args []any) (answer, error) {
	if l.opts.Wait == 0 {
		a, err := s.Run(ctx, l.client, keys, args...).Slice()
		if err != nil {
			return nil, err
		}
		return l.made(a)
	}
	a, replicas, err := l.tellWait(ctx, s, keys, args)
	if err != nil {
		return nil, err
	}
	if a.word() == "ok" && replicas < int64(l.opts.Wait) {
		return nil, refuse("%w: %d replicas have it, and %d are waited for", changelog.ErrUnknown, replicas, l.opts.Wait)
	}
	return l.made(a)
}

// made turns the answer that a set is not there into an error.
func (l *Log) made(a answer) (answer, error) {
	switch a.word() {
	case "noset":
		return nil, refusal{changelog.ErrNoSet}
	case "other":
		return nil, l.other(a.text(1))
	}
	return a, nil
}

// tellWait runs a script and WAIT on the same connection.
func (l *Log) tellWait(ctx context.Context, s *redis.Script, keys []string, args []any) (answer, int64, error) {
	var node interface {
		Pipelined(context.Context, func(redis.Pipeliner) error) ([]redis.Cmder, error)
	} = l.client
	if cluster, ok := l.client.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, keys[0])
		if err != nil {
			return nil, 0, err
		}
		node = master
	}
	var reply *redis.Cmd
	var replicas *redis.Cmd
	run := func(eval func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) error {
		_, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
			reply = eval(ctx, p, keys, args...)
			replicas = p.Do(ctx, "wait", l.opts.Wait, l.opts.WaitTimeout.Milliseconds())
			return nil
		})
		return err
	}
	err := run(s.EvalSha)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		err = run(s.Eval)
	}
	if err != nil {
		return nil, 0, err
	}
	a, err := reply.Slice()
	if err != nil {
		return nil, 0, err
	}
	n, err := replicas.Int64()
	return a, n, err
}

// A watch sees each single try of a call, also those that go-redis makes by
// itself, and notes when one got lost.
type watch struct{}

// A dialError is a failure to connect: nothing was sent.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

func (watch) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, dialError{err}
		}
		return conn, nil
	}
}

func (watch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		note(ctx, err)
		return err
	}
}

func (watch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		note(ctx, err)
		for _, cmd := range cmds {
			note(ctx, cmd.Err())
		}
		return err
	}
}

// note notes a try that may have been sent and was not answered.
func note(ctx context.Context, err error) {
	if err == nil || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed) {
		return
	}
	if _, answered := errors.AsType[redis.Error](err); answered {
		return
	}
	if _, failed := errors.AsType[dialError](err); failed {
		return
	}
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.lost.Store(true)
	}
}
