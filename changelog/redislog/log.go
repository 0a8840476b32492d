// Package redislog implements changelog.Log in Redis, for several hubs. It stores blocks in hashes.
// Each step on a set is one script, so it is atomic. All keys of a set share a hash tag, so the
// memory can be in a Redis Cluster. If Redis is killed in the middle of a step, the writes of the
// step in the append-only file do no harm; see lib.lua.
//
// The settings of Redis determine how durable an append is. With appendfsync always, it survives a
// crash of the machine. With appendfsync everysec, a crash loses the appends of about the last
// second. A failover loses the appends that the replica did not have; a Conn that waits for
// replicas makes that unlikely. Followers notice a loss, because cursors verify themselves. Other
// hubs may read an entry while its append still waits for replicas.
//
// See package changelog for the contract, and package internal/redisconn for the connection. The
// package carries no compatibility promise.
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

// Options configures a Log. The zero value uses the defaults.
type Options struct {
	Prefix    string           // prefix of every key; default "rshub"
	ClockSkew time.Duration    // maximum difference between the clocks of Redis and the hub, and maximum lead of a set's head over the clock; must be equal in all hubs; default 1 minute
	Now       func() time.Time // the hub's clock; default time.Now
	Logger    *slog.Logger     // default: discard

	edit func(script string) string // changes each script in tests; nil if not needed
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
	// Set by Open and not modified afterwards.
	opts    Options
	conn    *redisconn.Conn // owned by the caller of Open
	scripts scripts
	fixedID bool // the log is the target of a copy, and never adopts another identity

	// Safe for concurrent use without a lock, except that only setID may set id, with mu held.
	id        atomic.Pointer[string]
	secret    atomic.Pointer[string]
	clock     atomic.Pointer[changelog.Clock] // newest record of Tick, by this or another hub
	checkedAt atomic.Int64                    // time of the last checkServers, in microseconds since 1970
	unfitErr  atomic.Pointer[error]           // reason why nothing may be written, or nil

	mu    sync.Mutex
	tails map[string]tail // by set
}

var _ changelog.Log = (*Log)(nil)

// Open opens the change memory with a prefix in a Redis (6.2 or newer) or a compatible server, and
// creates the memory if it does not exist. The Log uses conn, which remains the caller's, who must
// close it after the last call of the Log.
//
// Open refuses a Redis whose settings allow it to evict keys, because it would lose changes
// silently. IsTemporary reports whether a retry makes sense after an error.
func Open(ctx context.Context, conn *redisconn.Conn, opts Options) (*Log, error) {
	return open(ctx, conn, opts, func(l *Log) error { return l.loadIdentity(ctx) })
}

// open opens a Redis. It calls identify to read which memory Redis has, or to create one.
func open(ctx context.Context, conn *redisconn.Conn, opts Options, identify func(*Log) error) (*Log, error) {
	l := &Log{opts: opts.withDefaults(), conn: conn, tails: make(map[string]tail)}
	l.secret.Store(new(string))
	l.clock.Store(new(changelog.Clock))
	err := checkPrefix(l.opts.Prefix)
	if err == nil {
		l.scripts.readAll(l.opts.edit)
		err = l.checkServers(ctx, true)
	}
	if err == nil {
		err = identify(l)
	}
	if err != nil {
		return nil, fmt.Errorf("open the change memory in Redis: %w", err)
	}
	return l, nil
}

// loadIdentity reads the identity of the memory, or creates a memory.
func (l *Log) loadIdentity(ctx context.Context) error {
	id := rand.Text() // used if there is no memory yet
	l.id.Store(&id)
	a, err := l.memory(ctx, "")
	if err != nil {
		return err
	}
	is := a.Text(2)
	l.id.Store(&is)
	return nil
}

// Check returns nil if an append could succeed now: Redis accepts a write and does not evict keys,
// and its clock and the hub's agree. It does not check heads, because a head in the future affects
// only its set.
func (l *Log) Check(ctx context.Context) error {
	if err := l.check(ctx); err != nil {
		return fmt.Errorf("check the change memory: %w", err)
	}
	return nil
}

func (l *Log) check(ctx context.Context) error {
	if err := l.checkServers(ctx, false); err != nil {
		return err
	}
	hub := l.opts.Now().UnixMicro()
	now, err := l.syncIdentity(ctx, "check")
	if err != nil {
		return err
	}
	return l.compareClocks(now, hub)
}

// compareClocks returns an error if the clock of Redis and the hub's differ by more than the clock
// skew. Both times are in microseconds since 1970.
func (l *Log) compareClocks(now, hub int64) error {
	skew := l.opts.ClockSkew.Microseconds()
	if d := now - hub; d <= skew && -d <= skew {
		return nil
	}
	text := func(micros int64) string { return time.UnixMicro(micros).UTC().Format(time.RFC3339) }
	return refuse("%w: the clock of Redis is at %s, the hub's at %s", feed.ErrClock, text(now), text(hub))
}

// Close does nothing, because the connections belong to the caller of Open.
func (l *Log) Close() error { return nil }

// setsPerRead is the maximum number of sets that one pipeline reads.
const setsPerRead = 1000

// Sets returns the states of the named sets, or of all sets without names, sorted by name. With an
// error, it also returns the states that it could read.
func (l *Log) Sets(ctx context.Context, names ...string) ([]feed.State, error) {
	states, err := l.sets(ctx, names)
	if err != nil {
		err = fmt.Errorf("list the sets: %w", err)
	}
	slices.SortFunc(states, func(a, b feed.State) int { return strings.Compare(a.Set, b.Set) })
	return states, err
}

func (l *Log) sets(ctx context.Context, names []string) ([]feed.State, error) {
	if _, err := l.syncIdentity(ctx, ""); err != nil {
		if !l.conn.Cluster() || len(names) == 0 {
			return nil, err
		} // otherwise perhaps only the server of the cluster that has the identity is down
	}
	return l.states(ctx, names)
}

// states returns the states of the named sets, or of all sets without names. With an error, it also
// returns the states that it could read.
func (l *Log) states(ctx context.Context, names []string) (states []feed.State, err error) {
	if len(names) == 0 {
		if names, err = l.setNames(ctx); err != nil {
			return nil, err
		}
	}
	err = l.readSets(ctx, names, stateFields, func(name string, values []any) error {
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

// setNames returns the names of all sets that exist or existed.
func (l *Log) setNames(ctx context.Context) (names []string, err error) {
	err = l.read(ctx, func(t *redisconn.Try) (err error) {
		names, err = t.HKeys(l.setsKey())
		return err
	})
	return names, err
}

// readSets reads fields of the named sets and calls do for each of them. One round trip reads many
// sets. If a set cannot be read or do fails for it, readSets continues with the others. The error
// joins the first error of each round trip.
func (l *Log) readSets(ctx context.Context, names, fields []string, do func(name string, values []any) error) error {
	var errs []error
	for part := range slices.Chunk(names, setsPerRead) {
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
				continue // failed has the reason
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
