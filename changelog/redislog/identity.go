package redislog

import (
	"context"
	"fmt"

	"github.com/rshub/rshub/changelog"
)

// ID returns the identity of this memory. It changes when Redis was emptied and
// somebody else has begun a new memory in it.
func (l *Log) ID() string { return *l.id.Load() }

// memory makes the memory where there is none.
func (l *Log) memory(ctx context.Context, check string) (a answer, err error) {
	err = l.read(ctx, func(ctx context.Context) error {
		run := l.ask // it makes the memory once; Check is what shows whether replicas follow
		if check != "" {
			run = l.tell
		}
		a, err = run(ctx, l.scripts.memory, []string{l.memoryKey()}, formatVersion, check)
		return err
	})
	if err != nil {
		return nil, err
	}
	return a, checkFormat(a.text(1))
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

// same makes sure that there is a memory, whose identity the log then has. A
// memory that is gone altogether was emptied; it goes on under its identity, as
// its cursors are known to be gone.
func (l *Log) same(ctx context.Context, check string) (now int64, err error) {
	a, err := l.memory(ctx, check)
	if err != nil {
		return 0, err
	}
	l.become(a.text(2))
	if a.number(3) == 1 {
		l.opts.Logger.Error("Redis was emptied, or restarted without its data: the change memory is lost and begins again", "prefix", l.opts.Prefix)
	}
	return a.number(4), nil
}

// adopt asks what memory is in Redis now.
func (l *Log) adopt(ctx context.Context) error {
	v, err := l.client.HMGet(context.WithValue(ctx, callKey{}, new(call)), l.memoryKey(), "format", "id").Result()
	if err != nil {
		return err
	}
	format, _ := v[0].(string)
	id, _ := v[1].(string)
	if id == "" { // then the set is all there is, see same
		return nil
	}
	if err := checkFormat(format); err != nil {
		return refusal{err}
	}
	l.become(id)
	return nil
}

// become takes an identity for the log's. Cursors verify themselves, so nothing
// else has to be done: who had a cursor of the memory that was is told so.
func (l *Log) become(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.ID()
	if was == id {
		return
	}
	l.id.Store(&id)
	clear(l.places)
	l.newest.Store(0)
	l.opts.Logger.Error("the change memory in Redis was replaced by another one: what it held is gone, and followers are told so",
		"prefix", l.opts.Prefix, "was", was, "is", id)
}

// An otherError says that a set is of another memory than the log.
type otherError struct{ error }

func (e otherError) Unwrap() error { return e.error }

// other is the error for a set of another memory. It remains where the memory in
// Redis has not the set's identity either.
func (l *Log) other(id string) error {
	return refusal{otherError{fmt.Errorf("%w: the set is of another memory (%s) than that which is in Redis (%s)",
		changelog.ErrUnavailable, id, l.ID())}}
}
