package redislog

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
)

// ID returns the identity of this memory. It changes when Redis was emptied and
// another hub has begun a new memory in it.
func (l *Log) ID() string { return *l.id.Load() }

// Secret returns the secret of this memory. It changes when Redis was restarted, and
// after a failover, as soon as a call of Make, Sets or Check notices that.
func (l *Log) Secret() string { return *l.secret.Load() }

// memory makes the memory if there is none, adopts its secret, and returns the
// answer of memory.lua. With the task "check" it also tries a write.
func (l *Log) memory(ctx context.Context, task string) (a redisconn.Answer, err error) {
	err = l.read(ctx, func(t *redisconn.Try) error {
		run := l.ask // no need to wait for replicas: Check finds out whether they follow
		if task != "" {
			run = l.tell
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
	return fmt.Errorf("it has format %q, and this version of rshub knows only format %s: start the version that wrote it, or a newer one", format, formatVersion)
}

// same makes sure that there is a memory and that the log has its identity. It
// returns the time of Redis's clock, in microseconds. If Redis holds no memory, it
// was emptied. same then makes an empty memory with the same identity. That is
// safe, because every old cursor is then gone.
func (l *Log) same(ctx context.Context, check string) (now int64, err error) {
	a, err := l.memory(ctx, check)
	if err != nil {
		return 0, err
	}
	l.become(a.Text(2))
	if a.Number(3) == 1 {
		l.opts.Logger.Error("Redis was emptied, or restarted without its data: the change memory is lost and begins again", "prefix", l.opts.Prefix)
	}
	return a.Number(4), nil
}

// adopt asks which memory is in Redis now, and adopts its identity.
func (l *Log) adopt(t *redisconn.Try) error {
	v, err := t.HMGet(l.memoryKey(), "format", "id")
	if err != nil {
		return err
	}
	id := v.Text(1)
	if id == "" { // Redis holds no memory, only sets: the next call of same makes one
		return nil
	}
	if err := checkFormat(v.Text(0)); err != nil {
		return redisconn.Refuse(err)
	}
	l.become(id)
	return nil
}

// become gives the log another identity. Followers of the old memory need not
// be told: cursors verify themselves, so their next read says that the cursor
// is gone or that the log has diverged.
func (l *Log) become(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.ID()
	if was == id {
		return
	}
	l.id.Store(&id)
	clear(l.tails)
	l.opts.Logger.Error("the change memory in Redis was replaced by another one: what it held is gone, and followers are told so",
		"prefix", l.opts.Prefix, "was", was, "is", id)
}

// An otherError says that a set belongs to another memory than the log.
type otherError struct{ error }

func (e otherError) Unwrap() error { return e.error }

// other returns the error for a set of another memory. Callers get it only if
// the memory that is now in Redis does not have the set's identity, either.
func (l *Log) other(id string) error {
	return redisconn.Refuse(otherError{fmt.Errorf("%w: the set is of another memory (%s) than that which is in Redis (%s)",
		feed.ErrUnavailable, id, l.ID())})
}
