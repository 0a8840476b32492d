package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"
)

// A lossHook is a hook that observes every single try, including those that go-redis makes by
// itself in a Cluster. If a try may have been sent without a reply being received, the hook records
// that in the Call. It does not record failures to connect: go-redis connects, and sends its
// greeting, before it sends the try.
type lossHook struct{}

type callKey struct{}

// An unsentError is a failure before any part of a try was sent.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

func (lossHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, unsentError{err}
		}
		return conn, nil
	}
}

func (lossHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err != nil && isGreeting(cmd) {
			err = greetingError(err)
			cmd.SetErr(err) // go-redis checks this error
			return err
		}
		noteLost(ctx, err)
		return err
	}
}

func (lossHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if len(cmds) > 0 && isGreeting(cmds[0]) {
			return greetingError(err)
		}
		noteLost(ctx, err)
		for _, cmd := range cmds {
			noteLost(ctx, cmd.Err())
		}
		return err
	}
}

// isGreeting reports whether a command is one of those with which go-redis starts a connection. No
// Try sends one of them.
func isGreeting(cmd redis.Cmder) bool {
	switch cmd.Name() {
	case "hello", "auth", "select", "readonly", "client":
		return true
	}
	return false
}

// greetingError returns the error of a greeting. It returns an error that Redis replied with
// unchanged, with one exception: too many connections. go-redis would mistake that error for an old
// Redis without HELLO, and send the try on the connection that Redis has closed. go-redis unwraps
// an error of a greeting once, so greetingError wraps it twice.
func greetingError(err error) error {
	if isTooManyClients(err) {
		return fmt.Errorf("connect: %w", unsentError{errors.New(err.Error())})
	}
	if _, answered := ReplyText(err); answered || err == nil {
		return err
	}
	return fmt.Errorf("connect: %w", unsentError{err})
}

// noteLost records in the Call that a try may have been sent without a reply being received.
func noteLost(ctx context.Context, err error) {
	if err == nil || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed) {
		return
	}
	if _, answered := ReplyText(err); answered {
		return
	}
	if _, failed := errors.AsType[unsentError](err); failed {
		return
	}
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		c.lost.Store(true)
	}
}
