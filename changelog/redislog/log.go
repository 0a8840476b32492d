// Package redislog keeps the change memory in Redis, for several hubs. It
// stores blocks in hashes; each step on a set is one script, so it is atomic,
// and all keys of a set share a hash tag, so Redis Cluster works. What a kill of
// Redis leaves of a step in its append-only file does no harm: see lib.lua.
//
// How safe an append is, Redis decides: with appendfsync always it survives a
// crash of the machine, with everysec all but about a second of it. A failover
// loses what the replica did not have; Options.Wait makes that unlikely. What
// is lost is noticed: cursors verify themselves. Other hubs may read an entry
// while its append still waits for replicas.
package redislog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/rshub/rshub/changelog"
)

// Options are what a Log can be told. The zero value is good.
type Options struct {
	Prefix    string           // begins every key; default "rshub"
	ClockSkew time.Duration    // how far the clocks of Redis, the hub and a set's head may differ, the same for all hubs; default 1 minute
	Now       func() time.Time // the hub's clock; default time.Now
	Logger    *slog.Logger     // default: discard
	Timeout   time.Duration    // of connecting, of writing and of waiting for an answer; a call takes at most about twice as long; default 5 s

	Existing bool // do not make a memory where there is none

	// Wait is how many replicas must have a write before it is answered. When
	// they do not within WaitTimeout, by default 1 s, it is ErrUnknown. 0: none.
	Wait        int
	WaitTimeout time.Duration

	// AllowEviction takes a Redis that may evict keys, or that does not say (INFO
	// is forbidden). What Redis evicts is lost.
	AllowEviction bool

	edit func(script string) string // for tests
}

func (o Options) withDefaults() Options {
	if o.Prefix == "" {
		o.Prefix = "rshub"
	}
	if o.ClockSkew <= 0 {
		o.ClockSkew = time.Minute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
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

// A Log is a changelog.Log in Redis.
type Log struct {
	opts    Options
	client  redis.UniversalClient
	scripts scripts
	fixed   bool // another memory is never taken for this one: it is being copied to
	id      atomic.Pointer[string]

	newest  atomic.Int64          // datetime of the newest entry that was seen, of any set
	checked atomic.Int64          // when the server was last looked at, in microseconds
	unfit   atomic.Pointer[error] // why it must not be written to, as far as known

	mu     sync.Mutex
	places map[string]place
}

var _ changelog.Log = (*Log)(nil)

// Open opens the change memory in a Redis, 6.2 or newer, or the like, and makes
// one where there is none behind the prefix. The forms of the URL:
//
//	redis://[user:password@]host[:port][/db]           one server
//	redis://[user:password@]host[:port],host[:port]    a Redis Cluster
//	unix://[user:password@]/path/of/the/socket         one server
//	redis-sentinel://[user:password@]host[:port],host[:port][/db]?master=NAME
//
// rediss and rediss-sentinel are the same over TLS. The query may have ca_file
// (PEM; default: the system's), client_name, db, cluster=true for a cluster that
// is named by one address, and sentinel_username and sentinel_password.
//
// Open refuses a Redis that may evict keys: it would lose changes in silence.
func Open(ctx context.Context, url string, opts Options) (*Log, error) {
	return openURL(ctx, url, opts, func(l *Log) error { return l.identify(ctx) })
}

// openURL opens a Redis; identify reads or writes whose memory it holds.
func openURL(ctx context.Context, url string, opts Options, identify func(*Log) error) (*Log, error) {
	l := &Log{opts: opts.withDefaults(), places: make(map[string]place)}
	if err := checkPrefix(l.opts.Prefix); err != nil {
		return nil, fmt.Errorf("open the change memory in Redis: %w", err)
	}
	o, err := parseURL(url)
	if err != nil {
		return nil, fmt.Errorf("open the change memory in Redis: the URL: %w", err)
	}
	l.scripts.load(l.opts.edit)
	hush()
	l.connect(o)
	err = l.fit(ctx, true)
	if err == nil {
		err = identify(l)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the change memory in Redis: %w", err), l.client.Close())
	}
	return l, nil
}

// hush keeps go-redis from writing to standard error, which it does for the
// whole process, what every call here returns as an error.
var hush = sync.OnceFunc(func() { redis.SetLogger(silence{}) })

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// connect makes the client. It connects when it is used.
func (l *Log) connect(o *redis.UniversalOptions) {
	o.DialTimeout = l.opts.Timeout
	o.ReadTimeout = l.opts.Timeout + l.opts.WaitTimeout
	o.WriteTimeout = l.opts.Timeout
	o.PoolTimeout = l.opts.Timeout
	o.ContextTimeoutEnabled = true
	o.DialerRetries = 1
	o.MaxRetries = -1 // do tries again, and knows what happened before
	o.PoolSize = 32
	o.PipelinePoolSize = -1
	o.MaxIdleConns = 16
	o.ConnMaxIdleTime = 5 * time.Minute
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	l.client = redis.NewUniversalClient(o)
	if cluster, ok := l.client.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(watch{}) })
	} else {
		l.client.AddHook(watch{})
	}
}

// identify reads the identity of the memory, or makes a memory.
func (l *Log) identify(ctx context.Context) error {
	if l.opts.Existing {
		if err := l.exists(ctx); err != nil {
			return err
		}
	}
	id := rand.Text() // in case that there is no memory yet
	l.id.Store(&id)
	a, err := l.memory(ctx, "")
	if err != nil {
		return err
	}
	is := a.text(2)
	l.id.Store(&is)
	return nil
}

// exists returns nil when there is a memory.
func (l *Log) exists(ctx context.Context) error {
	return l.read(ctx, func(ctx context.Context) error {
		n, err := l.client.Exists(ctx, l.memoryKey()).Result()
		if err == nil && n == 0 {
			err = refuse("there is no change memory behind the prefix %q", l.opts.Prefix)
		}
		return err
	})
}

// Check reports whether an append could succeed now: Redis takes a write, its
// clock and the hub's agree, no head that this hub saw lies too far in the
// future, and Redis does not evict.
func (l *Log) Check(ctx context.Context) error {
	if err := l.check(ctx); err != nil {
		return fmt.Errorf("check the change memory: %w", err)
	}
	return nil
}

func (l *Log) check(ctx context.Context) error {
	if err := l.fit(ctx, false); err != nil {
		return err
	}
	hub := l.opts.Now().UnixMicro()
	now, err := l.same(ctx, "check")
	if err != nil {
		return err
	}
	skew := l.opts.ClockSkew.Microseconds()
	if d := now - hub; d > skew || -d > skew {
		return late(now, changelog.Cursor{}, hub)
	}
	if newest := l.newest.Load(); newest > now+skew {
		return late(now, changelog.Cursor{Micros: newest}, hub)
	}
	return nil
}

// late is the error for clocks that differ too much.
func late(now int64, head changelog.Cursor, hub int64) error {
	text := func(micros int64) string { return time.UnixMicro(micros).UTC().Format(time.RFC3339) }
	if head.Micros > now {
		return refuse("%w: the newest entry is of %s and the clock of Redis says %s", changelog.ErrClock, text(head.Micros), text(now))
	}
	return refuse("%w: the clock of Redis says %s and the hub's %s", changelog.ErrClock, text(now), text(hub))
}

// saw notes the head of a set.
func (l *Log) saw(head changelog.Cursor) {
	for {
		old := l.newest.Load()
		if head.Micros <= old || l.newest.CompareAndSwap(old, head.Micros) {
			return
		}
	}
}

// Close releases the connections. Nothing may be called after it.
func (l *Log) Close() error {
	if err := l.client.Close(); err != nil {
		return fmt.Errorf("close the change memory: %w", err)
	}
	return nil
}

// setsAtOnce bounds one pipeline.
const setsAtOnce = 1000

// Sets returns the states of the sets with the names, without one of all sets,
// sorted by name.
func (l *Log) Sets(ctx context.Context, names ...string) ([]changelog.State, error) {
	states, err := l.sets(ctx, names)
	if err != nil {
		err = fmt.Errorf("list the sets: %w", err)
	}
	slices.SortFunc(states, func(a, b changelog.State) int { return strings.Compare(a.Set, b.Set) })
	return states, err
}

func (l *Log) sets(ctx context.Context, names []string) ([]changelog.State, error) {
	if _, err := l.same(ctx, ""); err != nil {
		if _, cluster := l.client.(*redis.ClusterClient); !cluster || len(names) == 0 {
			return nil, err
		} // else only the shard may be down that knows what memory this is
	}
	return l.states(ctx, names)
}

// states reads the states of sets, without names of all. With an error it returns
// those that could be read.
func (l *Log) states(ctx context.Context, names []string) (states []changelog.State, err error) {
	if len(names) == 0 {
		if names, err = l.names(ctx); err != nil {
			return nil, err
		}
	}
	err = l.everySet(ctx, names, stateFields, func(name string, values []any) error {
		s, err := l.decodeState(name, values)
		if errors.Is(err, changelog.ErrNoSet) {
			return nil // it was deleted
		}
		if err == nil {
			states = append(states, s)
		}
		return err
	})
	return states, err
}

// names returns the names of all sets that there are or were.
func (l *Log) names(ctx context.Context) (names []string, err error) {
	err = l.read(ctx, func(ctx context.Context) (err error) {
		names, err = l.client.HKeys(ctx, l.setsKey()).Result()
		return err
	})
	return names, err
}

// everySet reads fields of sets, many in one round trip. What is wrong with one
// keeps no other from being done; the error has the first of each round trip.
func (l *Log) everySet(ctx context.Context, names, fields []string, do func(name string, values []any) error) error {
	var errs []error
	for part := range slices.Chunk(names, setsAtOnce) {
		var values []*redis.SliceCmd
		failed := l.read(ctx, func(ctx context.Context) error {
			values = values[:0]
			_, err := l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, name := range part {
					values = append(values, p.HMGet(ctx, l.setKey(name), fields...))
				}
				return nil
			})
			return err
		})
		for i, name := range part {
			if values == nil || values[i].Err() != nil {
				continue // failed says it
			}
			if err := do(name, values[i].Val()); err != nil && failed == nil {
				failed = fmt.Errorf("set %q: %w", name, err)
			}
		}
		if failed != nil {
			errs = append(errs, failed)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// read runs a step that only reads.
func (l *Log) read(ctx context.Context, step func(context.Context) error) error {
	return l.do(ctx, &call{reads: true}, step)
}
