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

// A Copied is what Copy has copied.
type Copied struct {
	redislog.Copied
	Subscriptions int
}

// Copy copies the change memory and the subscriptions in the directory c.Data, on which no
// hub may run, into the Redis of c. It calls report after each step. It blocks until all is
// copied, ctx ends, or something fails. Then no hub can start on the copy, and another Copy
// begins anew. The error is disklog.ErrInUse if a hub runs on the directory.
func Copy(ctx context.Context, c Config, report func(Copied)) (done Copied, err error) {
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
	old, _, err := c.subscriptionsOnDisk(ctx, from.Keep(callbackKeep))
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
	if done.Copied, err = to.Copy(ctx, from, func(now redislog.Copied) { report(Copied{now, done.Subscriptions}) }); err != nil {
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

// copySources copies what the hub knows of the sources that it polls, such as pings that it has
// answered and not looked for yet.
func copySources(ctx context.Context, from *disklog.Log, to poll.Outcomes) error {
	states, err := from.Sets(ctx)
	if err != nil {
		return err
	}
	for _, s := range states {
		if err := poll.Copy(ctx, poll.DiskOutcomes(from.Keep(sourceKeep)), to, s.Set); err != nil {
			return fmt.Errorf("copy what is known of the source of set %q: %w", s.Set, err)
		}
	}
	return nil
}

// copyComplete says of the copied sets which ones the hub knows all resources of. If
// retention has removed a part of a log, the inventory that is made from it lacks that part.
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
