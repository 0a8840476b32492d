package redislog

import (
	"context"
	"errors"
	"fmt"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
)

// start begins a new epoch of every set of a memory that has the mark of a copy, or whose
// server was restarted or replaced. Then it removes the mark. Several hubs may do so at the
// same time; beginning an epoch twice does no harm. start skips damaged sets, because they
// cannot be read anyway.
func (l *Log) start(ctx context.Context) error {
	names, err := l.names(ctx)
	if err != nil {
		return err
	}
	for _, set := range names {
		err := l.BeginEpoch(ctx, set, feed.MaxNumber)
		_, other := errors.AsType[otherError](err)
		switch {
		case err == nil, errors.Is(err, feed.ErrNoSet):
		case other, errors.Is(err, changelog.ErrCorrupt):
			l.opts.Logger.Error("a set of the change memory cannot be used", "set", set, "err", err)
		default:
			return err
		}
	}
	if _, err := l.memory(ctx, "started"); err != nil {
		return err
	}
	l.opts.Logger.Info("the change memory is a copy, or Redis was restarted: the Change Lists that are open get new names", "prefix", l.opts.Prefix)
	return nil
}

// BeginEpoch begins a new epoch of a set's log.
func (l *Log) BeginEpoch(ctx context.Context, set string, after uint64) error {
	name := changelog.NewEpoch()
	err := l.change(ctx, set, func(c *redisconn.Call, end tail) error {
		return l.do(ctx, c, func(t *redisconn.Try) error {
			_, err := l.tell(t, l.scripts.epoch, l.keys(set), end.begin, name, after)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("begin an epoch of set %q: %w", set, err)
	}
	return nil
}
