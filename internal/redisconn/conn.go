// Package redisconn is the only part of rshub that imports a Redis client. A Conn makes calls,
// tries a call again if that makes sense, and translates the outcome of all tries into the errors
// of package feed.
//
// So its callers need not know the client library, and the same failure gives each of them the same
// error. It knows no keys: package redislog does, and the registries and claims in Redis.
package redisconn

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options of a Conn. Zero values are the defaults.
type Options struct {
	// Timeout is for connecting, for writing and for waiting for an answer. A call
	// takes at most about twice as long. Default 5 s.
	Timeout time.Duration

	// Wait is how many replicas must confirm a write of Try.RunWait. If they do
	// not confirm it within WaitTimeout (default 1 s), the call returns
	// feed.ErrUnknown. 0 waits for no replica.
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

// A Conn is a connection pool to one Redis: a server, the master that Sentinels
// name, or a Cluster. Its methods may be called concurrently.
type Conn struct {
	opts    Options
	client  redis.UniversalClient
	cluster *redis.ClusterClient // the client of a Cluster, else nil

	tls      bool
	answered atomic.Bool // Redis has answered once
}

// Open reads the URL of a Redis. It does not connect: the first call does. The
// forms of the URL:
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
// The caller closes the Conn. An error of Open contains no secret.
func Open(url string, opts Options) (*Conn, error) {
	o, err := parseURL(url)
	if err != nil {
		return nil, fmt.Errorf("the URL of Redis: %w", err)
	}
	hush()
	c := &Conn{opts: opts.withDefaults(), tls: o.TLSConfig != nil}
	o.DialTimeout = c.opts.Timeout
	o.ReadTimeout = c.opts.Timeout + c.opts.WaitTimeout
	o.WriteTimeout = c.opts.Timeout
	o.PoolTimeout = c.opts.Timeout
	o.ContextTimeoutEnabled = true
	o.DialerRetries = 1
	o.MaxRetries = -1 // a Call tries again, and knows what happened before
	o.PoolSize = 32
	o.PipelinePoolSize = -1
	o.MaxIdleConns = 16
	o.ConnMaxIdleTime = 5 * time.Minute
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c.client = redis.NewUniversalClient(o)
	if cluster, ok := c.client.(*redis.ClusterClient); ok {
		c.cluster = cluster
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(watch{}) })
	} else {
		c.client.AddHook(watch{})
	}
	return c, nil
}

// hush turns off the logger of go-redis, which writes failures to standard error. Every
// call of this package returns them as errors. go-redis has one logger for the whole
// process.
var hush = sync.OnceFunc(func() { redis.SetLogger(silence{}) })

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// Cluster reports whether the Redis is a Cluster. In a Cluster some keys may be
// reachable while others are not.
func (c *Conn) Cluster() bool { return c.cluster != nil }

// Waits reports whether Try.RunWait waits for replicas.
func (c *Conn) Waits() bool { return c.opts.Wait > 0 }

// Close closes the connections. Nothing may be called after it.
func (c *Conn) Close() error {
	if err := c.client.Close(); err != nil {
		return fmt.Errorf("close the connections to Redis: %w", err)
	}
	return nil
}
