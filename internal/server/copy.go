package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/changelog/redislog"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/source/poll"
)

// A CopyProgress is the number of copied items.
type CopyProgress struct {
	redislog.Progress
	Subscriptions int
}

// Copy copies the change memory and the subscriptions in the directory c.Data, which no hub may use,
// into the Redis of c. It calls report after each step, and blocks until everything is copied. After
// an error no hub can start on the copy, and another Copy starts from scratch. The error is
// disklog.ErrInUse if a hub uses the directory.
func Copy(ctx context.Context, c Config, report func(CopyProgress)) (done CopyProgress, err error) {
	c = c.withDefaults()
	o := c.diskOptions()
	o.Existing = true
	from, err := disklog.Open(ctx, filepath.Join(c.Data, storeDir), o)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	conn, err := c.connectRedis()
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	to, err := redislog.OpenImport(ctx, conn, from.ID(), c.redisOptions())
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	old, _, err := c.subscriptionsOnDisk(ctx, from.Bucket(callbackKeep))
	if err != nil {
		return done, err
	}
	kept, claims, err := c.subscriptionsInRedis(conn)
	if err != nil {
		return done, err
	}
	if done.Subscriptions, err = subscription.Copy(ctx, old, kept, claims); err != nil {
		return done, err
	}
	if done.Progress, err = to.Copy(ctx, from, func(now redislog.Progress) { report(CopyProgress{now, done.Subscriptions}) }); err != nil {
		return done, err
	}
	if err := copyComplete(ctx, from, to); err != nil {
		return done, err
	}
	if err := copySources(ctx, from, poll.RedisOutcomes(conn, c.Prefix)); err != nil {
		return done, err
	}
	return done, to.Finish(ctx)
}

// copySources copies the state of polled sources, such as pings that have not been handled yet.
func copySources(ctx context.Context, from *disklog.Log, to poll.Outcomes) error {
	states, err := from.Sets(ctx)
	if err != nil {
		return err
	}
	for _, s := range states {
		if err := poll.Copy(ctx, poll.DiskOutcomes(from.Bucket(sourceKeep)), to, s.Set); err != nil {
			return fmt.Errorf("copy the state of the source of set %q: %w", s.Set, err)
		}
	}
	return nil
}

// copyComplete marks the copied sets that are complete. A set whose log lacks a part is not, because
// its inventory is rebuilt from the log.
func copyComplete(ctx context.Context, from *disklog.Log, to *redislog.Import) error {
	states, err := from.Sets(ctx)
	if err != nil {
		return err
	}
	for _, s := range states {
		_, head, err := inventory.New(from.Inventories(), s.Set, inventory.Options{}).Load(ctx)
		if errors.Is(err, inventory.ErrDamaged) {
			continue
		}
		if err == nil && head.IsComplete(s.Head) && s.Floor.Position == 0 {
			err = inventory.New(to.Inventories(), s.Set, inventory.Options{}).SetComplete(ctx, s.Head, "")
		}
		if err != nil {
			return fmt.Errorf("copy whether set %q is complete: %w", s.Set, err)
		}
	}
	return nil
}
