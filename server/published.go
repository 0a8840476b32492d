package server

import (
	"context"
	"fmt"

	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/claim/cursors"
	"github.com/rshub/rshub/indexnow"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/xmpp"
)

// publishedKinds are the ways in which sets are published to somebody who does not ask for it.
// What is kept of a kind is in the change memory on the disk at the place of that name. In Redis,
// the key of the hubs that publish begins with it.
var publishedKinds = []string{xmpp.Kind, indexnow.Kind}

// publishedInRedis and publishedOnDisk return where it is kept how far sets are published in one
// way, and who does it.
func (c *Config) publishedInRedis(conn *redisconn.Conn, kind string) (cursors.Cursors, claim.Store, error) {
	return cursors.InRedis(conn, c.Prefix, kind), claim.NewRedis(conn, c.Prefix, kind, claim.RedisOptions{ClockSkew: c.ClockSkew, Hubs: kind + "-hubs"}), nil
}

func publishedOnDisk(ctx context.Context, keep *disklog.Keep, kind string) (cursors.Cursors, claim.Store, error) {
	claims, err := claim.OpenLocal(ctx, keep, 1)
	if err != nil {
		return nil, nil, fmt.Errorf("open what is kept for %s: %w", kind, err)
	}
	return cursors.OnDisk(keep, claims), claims, nil
}

// published opens what is kept of a kind beside the change memory of a hub.
func (c *Config) published(ctx context.Context, store *store, kind string) (cursors.Cursors, claim.Store, error) {
	if store.disk == nil {
		return c.publishedInRedis(store.redis, kind)
	}
	return publishedOnDisk(ctx, store.disk.Keep(kind), kind)
}
