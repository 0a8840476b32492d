package claim

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/rshub/rshub/internal/redisconn"
)

var (
	//go:embed lua/join.lua
	joinLua string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/renew.lua
	renewLua string
	//go:embed lua/release.lua
	releaseLua string
)

// RedisOptions configures a Redis. Zero values are the defaults. All hubs must use the same
// options.
type RedisOptions struct {
	ClaimFor time.Duration // lifetime of a claim; default 5 s
	LiveFor  time.Duration // time for which a hub counts as alive after it joined; default 3 s
	Hubs     string        // name of the key that lists the hubs; kinds of work that the same hubs share may use one key; default "hubs"
}

// clockSkew is the maximum difference between the clocks of the hub and of Redis. A hub whose clock
// is ahead would end leases that have not expired.
const clockSkew = time.Minute

// A Redis is a Store that several hubs share. Its keys in Redis, after the prefix
// and a colon, are:
//
//	hubs                     sorted set: the hubs, by the time when they last joined (RedisOptions.Hubs)
//	{<kind>/<shard>}:claim   hash: hub, number, until, commit; the shard is free if hub is missing
//
// The field commit is for the scripts that write under the claim: the number of the last commit.
// Times are in microseconds by the clock of Redis. If Redis loses a claim, fencing still works: the
// next number is derived from the time, so it is higher.
type Redis struct {
	conn   *redisconn.Conn
	prefix string
	kind   string
	opts   RedisOptions
	name   string
	now    func() time.Time

	join, acquire, renew, release *redisconn.Script
}

var _ Store = (*Redis)(nil)

// NewRedis returns the Store of one hub for the shards of one kind of work. Its keys start with
// prefix. The caller retains ownership of conn.
func NewRedis(conn *redisconn.Conn, prefix, kind string, opts RedisOptions) *Redis {
	opts.ClaimFor, opts.LiveFor, opts.Hubs = cmp.Or(opts.ClaimFor, claimFor), cmp.Or(opts.LiveFor, liveFor), cmp.Or(opts.Hubs, "hubs")
	return &Redis{
		conn: conn, prefix: prefix, kind: kind, opts: opts, name: rand.Text(), now: time.Now,
		join: script(joinLua), acquire: script(acquireLua), renew: script(renewLua), release: script(releaseLua),
	}
}

// script returns a script that does not wait for replicas. The loss of a claim is harmless, because
// of fencing.
func script(source string) *redisconn.Script {
	return redisconn.NewScript(source, func(redisconn.Answer) bool { return false })
}

// RedisKey returns the Redis key of the claim on a shard. In a cluster it is in the same slot as
// all keys with the same text in braces, so one script can check the claim and write.
func RedisKey(prefix, kind string, shard int) string {
	return prefix + ":{" + kind + "/" + strconv.Itoa(shard) + "}:claim"
}

func (s *Redis) hubsKey() string           { return s.prefix + ":" + s.opts.Hubs }
func (s *Redis) claimKey(shard int) string { return RedisKey(s.prefix, s.kind, shard) }

// Name returns this hub's name.
func (s *Redis) Name() string { return s.name }

// ClaimFor returns the lifetime of a claim.
func (s *Redis) ClaimFor() time.Duration { return s.opts.ClaimFor }

// once makes one attempt at a step. what names the operation in errors.
func (s *Redis) once(ctx context.Context, what string, step func(*redisconn.Try) error) error {
	if err := s.conn.WriteCall().Once(ctx, step); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Join announces that this hub is alive, and returns all hubs that are.
func (s *Redis) Join(ctx context.Context) (live []string, err error) {
	err = s.once(ctx, "join the hubs", func(t *redisconn.Try) error {
		a, err := t.Run(s.join, []string{s.hubsKey()}, s.name, s.opts.LiveFor.Microseconds(), s.now().UnixMicro(), clockSkew.Microseconds())
		if err != nil {
			return err
		}
		if ahead := a.Number(0); ahead != 0 {
			return redisconn.Refuse(fmt.Errorf("%w: this hub is %v ahead of Redis", ErrClock, time.Duration(ahead)*time.Microsecond))
		}
		live = live[:0]
		for i := range a {
			live = append(live, a.Text(i))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(live)
	return live, nil
}

// Leave announces that this hub is no longer alive.
func (s *Redis) Leave(ctx context.Context) error {
	return s.once(ctx, "leave the hubs", func(t *redisconn.Try) error { return t.ZRem(s.hubsKey(), s.name) })
}

// Acquire claims the shards that no other hub has.
func (s *Redis) Acquire(ctx context.Context, shards []int) (claims []Claim, err error) {
	err = s.once(ctx, "claim shards", func(t *redisconn.Try) error {
		var bad error
		err := t.RunAll(s.acquire, len(shards), func(i int) ([]string, []any) {
			return []string{s.claimKey(shards[i])}, []any{s.name, s.opts.ClaimFor.Microseconds()}
		}, func(i int, a redisconn.Answer) {
			text := a.Word()
			if text == "" {
				return // another hub has it
			}
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				bad = redisconn.Refuse(fmt.Errorf("damaged claim on shard %d: invalid number %q", shards[i], text))
				return
			}
			claims = append(claims, Claim{shards[i], n, s.name})
		})
		return cmp.Or(err, bad)
	})
	return claims, err
}

// Renew extends claims.
func (s *Redis) Renew(ctx context.Context, claims []Claim) (held []Claim, err error) {
	err = s.once(ctx, "renew claims", func(t *redisconn.Try) error {
		return t.RunAll(s.renew, len(claims), func(i int) ([]string, []any) {
			c := claims[i]
			return []string{s.claimKey(c.Shard)}, []any{c.Holder, c.Number, s.opts.ClaimFor.Microseconds()}
		}, func(i int, a redisconn.Answer) {
			if a.Number(0) == 1 {
				held = append(held, claims[i])
			}
		})
	})
	return held, err
}

// Release releases claims.
func (s *Redis) Release(ctx context.Context, claims []Claim) error {
	return s.once(ctx, "release claims", func(t *redisconn.Try) error {
		return t.RunAll(s.release, len(claims), func(i int) ([]string, []any) {
			return []string{s.claimKey(claims[i].Shard)}, []any{claims[i].Holder, claims[i].Number}
		}, func(int, redisconn.Answer) {})
	})
}
