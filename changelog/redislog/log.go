// Package redislog implements changelog.Log in Redis, for several hubs. It stores blocks in hashes.
// Each step on a set is one script, so it is atomic. All keys of a set share a hash tag, so the
// memory can be in a Redis Cluster. If Redis is killed in the middle of a step, the rest of the
// step in the append-only file does no harm: see lib.lua.
//
// The settings of Redis decide how durable an append is. With appendfsync always, it survives a
// crash of the machine. With appendfsync everysec, a crash loses the appends of about the last
// second. A failover loses the appends that the replica did not have; a Conn that waits for
// replicas makes that unlikely. Followers notice a loss, because cursors verify themselves. Other
// hubs may read an entry while its append still waits for replicas.
//
// Package changelog has the contract, and package internal/redisconn the connection. The package
// carries no compatibility promise.
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

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
)

// Options of a Log. Zero values are the defaults.
type Options struct {
	Prefix    string           // begins every key; default "rshub"
	ClockSkew time.Duration    // how far the clocks of Redis and the hub may differ, and how far a set's head may lie in the future, the same for all hubs; default 1 minute
	Now       func() time.Time // the hub's clock; default time.Now
	Logger    *slog.Logger     // default: discard

	edit func(script string) string // changes each script, for tests
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
	return o
}

// A Log is a changelog.Log in Redis.
type Log struct {
	// Set by Open, and not changed after it.
	opts    Options
	conn    *redisconn.Conn // it belongs to the caller of Open
	scripts scripts
	fixed   bool // the log is the target of a copy, and never adopts another identity

	// Any goroutine may read and set these, except that only become sets id, with mu held.
	id      atomic.Pointer[string]
	secret  atomic.Pointer[string]
	clock   atomic.Pointer[changelog.Clock] // what Tick has noted, of this hub or another one
	checked atomic.Int64                    // when fit last checked the servers, in microseconds
	unfit   atomic.Pointer[error]           // why nothing must be written; nil: no known reason

	mu    sync.Mutex
	tails map[string]tail // by set
}

var _ changelog.Log = (*Log)(nil)

// Open opens the change memory behind the prefix in a Redis (6.2 or newer) or a
// compatible server. It makes a memory if there is none. The log uses conn, which belongs
// to the caller. The caller closes conn after the last call of the log.
//
// Open refuses a Redis whose settings allow it to evict keys, because it would lose
// changes silently. MayPass says whether to try again after an error.
func Open(ctx context.Context, conn *redisconn.Conn, opts Options) (*Log, error) {
	return open(ctx, conn, opts, func(l *Log) error { return l.identify(ctx) })
}

// open opens a Redis. identify reads which memory it holds, or makes a memory.
func open(ctx context.Context, conn *redisconn.Conn, opts Options, identify func(*Log) error) (*Log, error) {
	l := &Log{opts: opts.withDefaults(), conn: conn, tails: make(map[string]tail)}
	l.secret.Store(new(string))
	l.clock.Store(new(changelog.Clock))
	err := checkPrefix(l.opts.Prefix)
	if err == nil {
		l.scripts.readAll(l.opts.edit)
		err = l.fit(ctx, true)
	}
	if err == nil {
		err = identify(l)
	}
	if err != nil {
		return nil, fmt.Errorf("open the change memory in Redis: %w", err)
	}
	return l, nil
}

// identify reads the identity of the memory, or makes a memory.
func (l *Log) identify(ctx context.Context) error {
	id := rand.Text() // for the case that there is no memory yet
	l.id.Store(&id)
	a, err := l.memory(ctx, "")
	if err != nil {
		return err
	}
	is := a.Text(2)
	l.id.Store(&is)
	return nil
}

// Check reports whether an append could succeed now: Redis takes a write, its clock
// and the hub's agree, and Redis does not evict. Check does not look at heads: a
// head in the future stops only appends to its own set.
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
	return l.apart(now, hub)
}

// apart returns an error when the clock of Redis and the hub's differ by more than the
// clock skew. Both times are in microseconds since 1970.
func (l *Log) apart(now, hub int64) error {
	skew := l.opts.ClockSkew.Microseconds()
	if d := now - hub; d <= skew && -d <= skew {
		return nil
	}
	text := func(micros int64) string { return time.UnixMicro(micros).UTC().Format(time.RFC3339) }
	return refuse("%w: the clock of Redis says %s and the hub's %s", feed.ErrClock, text(now), text(hub))
}

// Close does nothing: the connections belong to the caller of Open.
func (l *Log) Close() error { return nil }

// setsAtOnce is how many sets one pipeline reads at most.
const setsAtOnce = 1000

// Sets returns the states of the named sets, sorted by name; without a name, of all
// sets. With an error it also returns the states that could be read.
func (l *Log) Sets(ctx context.Context, names ...string) ([]feed.State, error) {
	states, err := l.sets(ctx, names)
	if err != nil {
		err = fmt.Errorf("list the sets: %w", err)
	}
	slices.SortFunc(states, func(a, b feed.State) int { return strings.Compare(a.Set, b.Set) })
	return states, err
}

func (l *Log) sets(ctx context.Context, names []string) ([]feed.State, error) {
	if _, err := l.same(ctx, ""); err != nil {
		if !l.conn.Cluster() || len(names) == 0 {
			return nil, err
		} // else perhaps only the one server of the cluster is down that has the identity
	}
	return l.states(ctx, names)
}

// states reads the states of the named sets; without a name, of all sets. With an
// error it also returns the states that could be read.
func (l *Log) states(ctx context.Context, names []string) (states []feed.State, err error) {
	if len(names) == 0 {
		if names, err = l.names(ctx); err != nil {
			return nil, err
		}
	}
	err = l.everySet(ctx, names, stateFields, func(name string, values []any) error {
		s, err := l.decodeState(name, values)
		if errors.Is(err, feed.ErrNoSet) {
			return nil // it was deleted
		}
		if err == nil {
			states = append(states, s)
		}
		return err
	})
	return states, err
}

// names returns the names of all sets that exist or ever did.
func (l *Log) names(ctx context.Context) (names []string, err error) {
	err = l.read(ctx, func(t *redisconn.Try) (err error) {
		names, err = t.HKeys(l.setsKey())
		return err
	})
	return names, err
}

// everySet reads fields of the named sets and calls do for each of them. One round
// trip reads many sets. If a set cannot be read or do fails for it, everySet goes on
// with the others. The error joins the first error of each round trip.
func (l *Log) everySet(ctx context.Context, names, fields []string, do func(name string, values []any) error) error {
	var errs []error
	for part := range slices.Chunk(names, setsAtOnce) {
		keys := make([]string, len(part))
		for i, name := range part {
			keys[i] = l.setKey(name)
		}
		var values []redisconn.Answer
		failed := l.read(ctx, func(t *redisconn.Try) (err error) {
			values, err = t.HMGetAll(keys, fields...)
			return err
		})
		for i, name := range part {
			if values == nil || values[i] == nil {
				continue // failed says why
			}
			if err := do(name, values[i]); err != nil && failed == nil {
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
