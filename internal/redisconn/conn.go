// Package redisconn is the only part of rshub that imports a Redis client. A Conn makes calls,
// retries them where that is useful, and translates the outcome of all tries into the errors of
// package feed.
//
// So its callers need not know the client library, and the same failure gives each of them the same
// error. It knows no keys: package redislog does, and the registries and claims in Redis.
package redisconn

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options configures a Conn. The zero value uses the defaults.
type Options struct {
	// Timeout applies to connecting, to writing and to waiting for a reply. A call takes at most
	// about twice as long. Default 5 s.
	Timeout time.Duration

	// Wait is the number of replicas that must confirm a write of Try.RunWait. If they do not
	// confirm it within WaitTimeout (default 1 s), the call returns feed.ErrUnknown. Zero means
	// that it does not wait.
	Wait        int
	WaitTimeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Wait <= 0 {
		o.Wait, o.WaitTimeout = 0, 0
	} else if o.WaitTimeout <= 0 {
		o.WaitTimeout = time.Second
	}
	return o
}

// A Conn is a connection pool to one Redis: a server, the master that Sentinels name, or a Cluster.
// It is safe for concurrent use.
type Conn struct {
	opts    Options
	client  redis.UniversalClient
	cluster *redis.ClusterClient // client of a Cluster; nil otherwise

	tls      bool
	answered atomic.Bool // whether Redis has replied at least once
}

// Open parses the URL of a Redis. It does not connect: the first call does. The
// URL has one of these forms:
//
//	redis://[user:password@]host[:port][/db]           one server
//	redis://[user:password@]host[:port],host[:port]    a Redis Cluster
//	unix://[user:password@]/path/of/the/socket         one server
//	redis-sentinel://[user:password@]host[:port],host[:port][/db]?master=NAME
//
// rediss and rediss-sentinel are the same over TLS. The query may have ca_file
// (PEM; default: the system's), client_name, db, cluster=true for a cluster
// that has only one address in the URL, and sentinel_username and
// sentinel_password.
//
// The caller must close the Conn. The error contains no secret.
func Open(url string, opts Options) (*Conn, error) {
	o, err := parseURL(url)
	if err != nil {
		return nil, fmt.Errorf("parse URL of Redis: %w", err)
	}
	logging.Disable() // it writes failures to standard error, which all calls return; go-redis has one logger for the whole process
	c := &Conn{opts: opts.withDefaults(), tls: o.TLSConfig != nil}
	o.DialTimeout = c.opts.Timeout
	o.ReadTimeout = c.opts.Timeout + c.opts.WaitTimeout
	o.WriteTimeout = c.opts.Timeout
	o.PoolTimeout = c.opts.Timeout
	o.ContextTimeoutEnabled = true
	o.DialerRetries = 1
	o.MaxRetries = -1 // a Call retries, and knows what happened before
	o.PoolSize = 32
	o.PipelinePoolSize = -1
	o.MaxIdleConns = 16
	o.ConnMaxIdleTime = 5 * time.Minute
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c.client = redis.NewUniversalClient(o)
	if cluster, ok := c.client.(*redis.ClusterClient); ok {
		c.cluster = cluster
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(lossHook{}) })
	} else {
		c.client.AddHook(lossHook{})
	}
	return c, nil
}

// Cluster reports whether the Redis is a Cluster. In a Cluster some keys may be reachable while
// others are not.
func (c *Conn) Cluster() bool { return c.cluster != nil }

// Waits reports whether Try.RunWait waits for replicas.
func (c *Conn) Waits() bool { return c.opts.Wait > 0 }

// Close closes the connections. No method may be called afterwards.
func (c *Conn) Close() error {
	if err := c.client.Close(); err != nil {
		return fmt.Errorf("close connections to Redis: %w", err)
	}
	return nil
}
