package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"
)

// A watch is a hook that sees every single try, including those that go-redis makes by
// itself in a Cluster. If a try may have been sent but its answer did not come, the watch
// notes that in the Call. It does not note a failure to connect: go-redis connects, and
// sends its greeting, before it sends the try.
type watch struct{}

type callKey struct{}

// An unsent is a failure before anything of a try was sent.
type unsent struct{ error }

func (e unsent) Unwrap() error { return e.error }

func (watch) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, unsent{err}
		}
		return conn, nil
	}
}

func (watch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err != nil && greets(cmd) {
			err = ungreeted(err)
			cmd.SetErr(err) // go-redis decides by this error
			return err
		}
		note(ctx, err)
		return err
	}
}

func (watch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if len(cmds) > 0 && greets(cmds[0]) {
			return ungreeted(err)
		}
		note(ctx, err)
		for _, cmd := range cmds {
			note(ctx, cmd.Err())
		}
		return err
	}
}

// greets reports whether a command is one of those that go-redis begins a
// connection with. No Try sends one of them.
func greets(cmd redis.Cmder) bool {
	switch cmd.Name() {
	case "hello", "auth", "select", "readonly", "client":
		return true
	}
	return false
}

// ungreeted returns the error of a greeting. It does not change an error that Redis
// answered, with one exception: too many connections. go-redis would take that error for
// an old Redis without HELLO, and send the try on the connection that Redis has closed.
// go-redis unwraps an error of a greeting once, so ungreeted wraps it once more.
func ungreeted(err error) error {
	if crowded(err) {
		return fmt.Errorf("connect: %w", unsent{errors.New(err.Error())})
	}
	if _, answered := Said(err); answered || err == nil {
		return err
	}
	return fmt.Errorf("connect: %w", unsent{err})
}

// note notes in the Call that a try may have been sent but its answer did not
// come.
func note(ctx context.Context, err error) {
	if err == nil || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed) {
		return
	}
	if _, answered := Said(err); answered {
		return
	}
	if _, failed := errors.AsType[unsent](err); failed {
		return
	}
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		c.lost.Store(true)
	}
}
