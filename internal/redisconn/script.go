package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/rshub/rshub/feed"
)

// A Script is a Lua program that Redis executes atomically. All keys of a run must be in one slot
// of a Cluster.
type Script struct {
	script *redis.Script
	wrote  func(Answer) bool
}

// NewScript returns a script. RunWait calls wrote with the script's answer to determine whether the
// script has written data that replicas must have.
func NewScript(source string, wrote func(Answer) bool) *Script {
	return &Script{redis.NewScript(source), wrote}
}

// An eval sends a script on a connection or a pipeline, by its hash or in full.
type eval func(ctx context.Context, to redis.Scripter, keys []string, args ...any) *redis.Cmd

// sendWith calls send with a function that sends the script by its hash. If send then reports that
// Redis does not know the script, sendWith calls send again with a function that sends the script
// in full.
func (s *Script) sendWith(send func(eval) (unknown bool)) {
	if send(s.script.EvalSha) {
		send(s.script.Eval)
	}
}

func unknownScript(cmd *redis.Cmd) bool { return redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") }

// readAnswer returns the answer to a script.
func readAnswer(cmd *redis.Cmd) (Answer, error) {
	value, err := cmd.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	return newAnswer(value), nil
}

// Run runs a script without waiting for replicas.
func (t *Try) Run(s *Script, keys []string, args ...any) (Answer, error) {
	return readAnswer(s.script.Run(t.writeCtx, t.node, keys, args...))
}

// RunWait runs a script that writes, and then waits for the number of replicas in the options of
// the Conn. If they do not confirm the write in time, the error is feed.ErrUnknown. If the script
// wrote nothing, RunWait does not wait.
func (t *Try) RunWait(s *Script, keys []string, args ...any) (Answer, error) {
	o := &t.conn.opts
	if o.Wait == 0 {
		return t.Run(s, keys, args...)
	}
	// WAIT waits only for writes of its own connection, so the script and WAIT
	// form one pipeline. A pipeline of a Cluster client could send them to two servers,
	// so this one is sent to the right server of the Cluster.
	node := t.node
	if t.conn.cluster != nil {
		master, err := t.conn.cluster.MasterForKey(t.ctx, keys[0])
		if err != nil {
			return nil, err
		}
		node = master
	}
	var reply, replicas *redis.Cmd
	s.sendWith(func(send eval) bool {
		_, _ = node.Pipelined(t.writeCtx, func(p redis.Pipeliner) error { // each reply has its own error
			reply = send(t.writeCtx, p, keys, args...)
			replicas = p.Do(t.writeCtx, "wait", o.Wait, o.WaitTimeout.Milliseconds())
			return nil
		})
		return unknownScript(reply)
	})
	a, err := readAnswer(reply)
	if err != nil || !s.wrote(a) {
		return a, err
	}
	n, err := replicas.Int64()
	if _, answered := ReplyText(err); answered {
		return nil, Refuse(fmt.Errorf("%w: wait for replicas: %w", feed.ErrUnknown, err))
	}
	if err != nil {
		return nil, err
	}
	if n < int64(o.Wait) {
		return nil, Refuse(fmt.Errorf("%w: confirmed by %d replicas, want %d", feed.ErrUnknown, n, o.Wait))
	}
	return a, nil
}

// RunAll runs a script n times in one round trip, without waiting for replicas. args returns the
// keys and arguments of each run. RunAll then calls do with the answer to each run that succeeded.
// The error is from the first run that failed.
func (t *Try) RunAll(s *Script, n int, args func(i int) (keys []string, args []any), do func(i int, a Answer)) error {
	if n == 0 {
		return nil
	}
	left := make([]int, n) // indexes of the runs to send
	for i := range left {
		left[i] = i
	}
	replies := make([]*redis.Cmd, n)
	s.sendWith(func(send eval) bool {
		_, _ = t.node.Pipelined(t.writeCtx, func(p redis.Pipeliner) error { // each reply has its own error
			for _, i := range left {
				keys, args := args(i)
				replies[i] = send(t.writeCtx, p, keys, args...)
			}
			return nil
		})
		left = slices.DeleteFunc(left, func(i int) bool { return !unknownScript(replies[i]) })
		return len(left) > 0
	})
	var first error
	for i, reply := range replies {
		a, err := readAnswer(reply)
		if err == nil {
			do(i, a)
		} else if first == nil {
			first = err
		}
	}
	return first
}
