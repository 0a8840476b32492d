package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/rshub/rshub/feed"
)

// A Script is a program in Lua that Redis runs in one atomic step. All keys of a
// run lie in one slot of a Cluster.
type Script struct {
	script *redis.Script
	wrote  func(Answer) bool
}

// NewScript returns a script. RunWait calls wrote with the script's answer, to know
// whether the script has written something that replicas must have.
func NewScript(source string, wrote func(Answer) bool) *Script {
	return &Script{redis.NewScript(source), wrote}
}

// An eval sends a script to a connection or a pipeline, by its hash or in full.
type eval func(ctx context.Context, to redis.Scripter, keys []string, args ...any) *redis.Cmd

// each calls send with a function that sends the script by its hash. If send then reports
// that Redis does not know the script, each calls send again with a function that sends
// the script in full.
func (s *Script) each(send func(eval) (unknown bool)) {
	if send(s.script.EvalSha) {
		send(s.script.Eval)
	}
}

func unknownScript(cmd *redis.Cmd) bool { return redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") }

// read returns the answer to a script.
func read(cmd *redis.Cmd) (Answer, error) {
	value, err := cmd.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	return answer(value), nil
}

// Run runs a script, and waits for no replica.
func (t *Try) Run(s *Script, keys []string, args ...any) (Answer, error) {
	return read(s.script.Run(t.noted, t.node, keys, args...))
}

// RunWait runs a script that writes. It then waits for replicas, as many as the
// options of the Conn say. If they do not confirm the write in time, the error is
// ErrUnknown. A script that wrote nothing needs no replica.
func (t *Try) RunWait(s *Script, keys []string, args ...any) (Answer, error) {
	o := &t.conn.opts
	if o.Wait == 0 {
		return t.Run(s, keys, args...)
	}
	// WAIT waits only for what its own connection has written, so the script and WAIT
	// are one pipeline. A pipeline of a Cluster client could send them to two servers,
	// so this one goes to the right server of the Cluster.
	node := t.node
	if t.conn.cluster != nil {
		master, err := t.conn.cluster.MasterForKey(t.ctx, keys[0])
		if err != nil {
			return nil, err
		}
		node = master
	}
	var reply, replicas *redis.Cmd
	s.each(func(send eval) bool {
		_, _ = node.Pipelined(t.noted, func(p redis.Pipeliner) error { // each answer has its error
			reply = send(t.noted, p, keys, args...)
			replicas = p.Do(t.noted, "wait", o.Wait, o.WaitTimeout.Milliseconds())
			return nil
		})
		return unknownScript(reply)
	})
	a, err := read(reply)
	if err != nil || !s.wrote(a) {
		return a, err
	}
	n, err := replicas.Int64()
	if _, answered := Said(err); answered {
		return nil, Refuse(fmt.Errorf("%w: wait for replicas: %w", feed.ErrUnknown, err))
	}
	if err != nil {
		return nil, err
	}
	if n < int64(o.Wait) {
		return nil, Refuse(fmt.Errorf("%w: %d replicas have it, and %d are waited for", feed.ErrUnknown, n, o.Wait))
	}
	return a, nil
}

// RunAll runs a script n times, in one round trip, and waits for no replica.
// args returns the keys and arguments of each run. RunAll then calls do with
// the answer to each run that succeeded. The error is that of the first failed
// run.
func (t *Try) RunAll(s *Script, n int, args func(i int) (keys []string, args []any), do func(i int, a Answer)) error {
	if n == 0 {
		return nil
	}
	left := make([]int, n) // the runs to send
	for i := range left {
		left[i] = i
	}
	replies := make([]*redis.Cmd, n)
	s.each(func(send eval) bool {
		_, _ = t.node.Pipelined(t.noted, func(p redis.Pipeliner) error { // each answer has its error
			for _, i := range left {
				keys, args := args(i)
				replies[i] = send(t.noted, p, keys, args...)
			}
			return nil
		})
		left = slices.DeleteFunc(left, func(i int) bool { return !unknownScript(replies[i]) })
		return len(left) > 0
	})
	var first error
	for i, reply := range replies {
		a, err := read(reply)
		if err == nil {
			do(i, a)
		} else if first == nil {
			first = err
		}
	}
	return first
}
