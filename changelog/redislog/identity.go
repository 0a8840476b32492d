package redislog

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
)

// ID returns the identity of this memory. It changes if Redis was emptied and another hub has
// created a new memory in it.
func (l *Log) ID() string { return *l.id.Load() }

// Secret returns the secret of this memory. It changes after a restart or failover of Redis, as
// soon as a call of Make, Sets or Check notices that.
func (l *Log) Secret() string { return *l.secret.Load() }

// memory creates the memory if it does not exist, adopts its secret and clock, and returns the
// answer of memory.lua. With the task "check" it also tries a write.
func (l *Log) memory(ctx context.Context, task string) (a redisconn.Answer, err error) {
	err = l.read(ctx, func(t *redisconn.Try) error {
		run := l.run // no need to wait for replicas; Check tests whether they follow
		if task != "" {
			run = l.runWait
		}
		a, err = run(t, l.scripts.memory, []string{l.memoryKey()}, formatVersion, task, rand.Text())
		return err
	})
	if err != nil {
		return nil, err
	}
	secret := a.Text(5)
	l.secret.Store(&secret)
	l.clock.Store(&changelog.Clock{At: a.Number(6), Doubted: a.Number(7)})
	return a, checkFormat(a.Text(1))
}

func checkFormat(format string) error {
	switch format {
	case formatVersion:
		return nil
	case formatUnfinished:
		return changelog.ErrUnfinished
	}
	return unknownFormat(format)
}

func unknownFormat(format string) error {
	return fmt.Errorf("unsupported format %q, want %s; start the version of rshub that wrote it, or a newer one", format, formatVersion)
}

// syncIdentity makes sure that a memory exists, and adopts its identity. It returns the time of
// Redis's clock in microseconds since 1970. If Redis has no memory, it was emptied; then
// syncIdentity creates an empty memory with the same identity. That is safe, because every old
// cursor is gone then.
func (l *Log) syncIdentity(ctx context.Context, check string) (now int64, err error) {
	a, err := l.memory(ctx, check)
	if err != nil {
		return 0, err
	}
	l.setID(a.Text(2))
	if a.Number(3) == 1 {
		l.opts.Logger.Error("Redis was emptied or restarted without its data; the change memory is lost and starts again", "prefix", l.opts.Prefix)
	}
	return a.Number(4), nil
}

// adoptID adopts the identity of the memory that is in Redis now.
func (l *Log) adoptID(t *redisconn.Try) error {
	v, err := t.HMGet(l.memoryKey(), "format", "id")
	if err != nil {
		return err
	}
	id := v.Text(1)
	if id == "" { // Redis has no memory, only sets; the next syncIdentity creates one
		return nil
	}
	if err := checkFormat(v.Text(0)); err != nil {
		return redisconn.Refuse(err)
	}
	l.setID(id)
	return nil
}

// setID changes the identity of the log. Followers of the old memory need not be notified: cursors
// verify themselves, so their next read reports that the cursor is gone or that the log has
// diverged.
func (l *Log) setID(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.ID()
	if was == id {
		return
	}
	l.id.Store(&id)
	clear(l.tails)
	l.opts.Logger.Error("the change memory in Redis was replaced by another one; its changes are gone, and followers are notified",
		"prefix", l.opts.Prefix, "was", was, "is", id)
}

// An otherError reports that a set belongs to another memory than the log.
type otherError struct{ error }

func (e otherError) Unwrap() error { return e.error }

// otherMemory returns the error for a set of another memory. Callers get it only if the set does
// not have the identity of the memory that is in Redis now, either.
func (l *Log) otherMemory(id string) error {
	return redisconn.Refuse(otherError{fmt.Errorf("%w: the set belongs to another memory: got %s, want %s",
		feed.ErrUnavailable, id, l.ID())})
}
