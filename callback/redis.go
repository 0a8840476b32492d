package callback

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rshub/rshub/changelog"
)

// Redis holds, behind the prefix and a colon, with the shard in the braces as a
// number:
//
//	hubs                         sorted set: the hubs, by when they last joined
//	{callback/<shard>}:claim     hash: hub, number, until; a free one has no hub
//	{callback/<shard>}:records   hash: subscriptions by ID
//	{callback/<shard>}:progress  hash: their progress by ID
//	{callback/<shard>}:inbox     stream: requests
//
// Times are microseconds by the clock of Redis. The braces make all keys of a
// shard live in one slot of a cluster. No set has a slash in its name, so none
// of these is a key of the change memory; and a prefix has no brace, so none is
// another prefix's.

//go:embed lua/*.lua
var sources embed.FS

// script reads a script that is embedded.
func script(name string) *redis.Script {
	b, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // it is embedded
	}
	return redis.NewScript(string(b))
}

// RedisOptions are what a Redis can be told. The zero value is good. All hubs
// must be told the same.
type RedisOptions struct {
	ClaimFor time.Duration // how long a claim lasts; default 5 s
	LiveFor  time.Duration // how long a hub is alive after it joined; default 3 s
	InboxMax int           // subscribers' requests that wait in a shard's inbox; default 10,000

	// ClockSkew is by how much the hub's clock may differ from that of Redis;
	// default 1 minute. A hub that is ahead would find leases over that are not.
	ClockSkew time.Duration

	// Wait is how many replicas must have a request before Send returns nil, and
	// what puts or deletes records before Commit does. When they do not within
	// WaitTimeout, by default 1 s, it is ErrUnknown (changelog). 0: none.
	Wait        int
	WaitTimeout time.Duration
}

// A Redis is a Registry that several hubs share. Each step on a shard is one
// script. How safe what was committed is, Redis decides, as it does for the
// change memory; a claim that Redis loses is fenced nevertheless, as numbers
// are made of the time.
type Redis struct {
	client redis.UniversalClient
	prefix string
	opts   RedisOptions
	name   string
	now    func() time.Time

	join, acquire, renew, release, send, commit, find, scans *redis.Script
}

var _ Registry = (*Redis)(nil)

// NewRedis returns the registry behind a prefix, for one hub. The client is its
// owner's to close.
func NewRedis(client redis.UniversalClient, prefix string, opts RedisOptions) (*Redis, error) {
	if prefix == "" || strings.ContainsAny(prefix, "{}") {
		return nil, fmt.Errorf("%q cannot begin the keys in Redis", prefix)
	}
	if opts.ClaimFor <= 0 {
		opts.ClaimFor = claimFor
	}
	if opts.LiveFor <= 0 {
		opts.LiveFor = liveFor
	}
	if opts.InboxMax <= 0 {
		opts.InboxMax = inboxMax
	}
	if opts.ClockSkew <= 0 {
		opts.ClockSkew = time.Minute
	}
	if opts.WaitTimeout <= 0 {
		opts.WaitTimeout = time.Second
	}
	return &Redis{
		client: client, prefix: prefix, opts: opts, name: rand.Text(), now: time.Now,
		join: script("join"), acquire: script("acquire"), renew: script("renew"),
		release: script("release"), send: script("send"), commit: script("commit"),
		find: script("find"), scans: script("scan"),
	}, nil
}

func (r *Redis) key(shard int, what string) string {
	return r.prefix + ":{callback/" + strconv.Itoa(shard) + "}:" + what
}

func (r *Redis) hubsKey() string          { return r.prefix + ":hubs" }
func (r *Redis) claimKey(s int) string    { return r.key(s, "claim") }
func (r *Redis) recordsKey(s int) string  { return r.key(s, "records") }
func (r *Redis) progressKey(s int) string { return r.key(s, "progress") }
func (r *Redis) inboxKey(s int) string    { return r.key(s, "inbox") }

// Name returns this hub's name.
func (r *Redis) Name() string { return r.name }

// ClaimFor returns how long a claim lasts.
func (r *Redis) ClaimFor() time.Duration { return r.opts.ClaimFor }

// failed wraps an error with what was being done, and with what callers decide
// by.
func (r *Redis) failed(ctx context.Context, err error, format string, args ...any) error {
	return r.wrap(ctx, err, meaning(err), fmt.Sprintf(format, args...))
}

// missed is failed for what only reads: whether it was done makes no difference.
func (r *Redis) missed(ctx context.Context, err error, format string, args ...any) error {
	kind := meaning(err)
	if kind == changelog.ErrUnknown {
		kind = changelog.ErrUnavailable
	}
	return r.wrap(ctx, err, kind, fmt.Sprintf(format, args...))
}

func (r *Redis) wrap(ctx context.Context, err, kind error, what string) error {
	if cluster, ok := r.client.(*redis.ClusterClient); ok && redis.HasErrorPrefix(err, "MOVED") {
		cluster.ReloadState(ctx)
	}
	if kind != nil {
		return fmt.Errorf("%s: %w: %w", what, kind, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// meaning is the error of the change memory that says what another is, or nil.
func meaning(err error) error {
	if errors.Is(err, changelog.ErrFull) || errors.Is(err, changelog.ErrCorrupt) || errors.Is(err, changelog.ErrUnknown) {
		return nil // it says so itself
	}
	if _, answered := errors.AsType[redis.Error](err); answered {
		text := err.Error()
		if strings.Contains(text, "OOM command not allowed") {
			return changelog.ErrFull
		}
		for _, word := range []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOREPLICAS",
			"MOVED", "ASK", "NOAUTH", "WRONGPASS", "NOPERM", "MISCONF"} {
			if redis.HasErrorPrefix(err, word) || strings.Contains(text, "-"+word+" ") { // the latter from within a script
				return changelog.ErrUnavailable
			}
		}
		return nil
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrClosed) {
		return changelog.ErrUnavailable
	}
	return changelog.ErrUnknown // something was sent, perhaps, and not answered
}

// run runs a script.
func (r *Redis) run(ctx context.Context, s *redis.Script, keys []string, args ...any) *redis.Cmd {
	return s.Run(ctx, r.client, keys, args...)
}

// tell runs a script that writes to one slot, and waits for replicas where the
// options want it. WAIT is about what its own connection has sent.
func (r *Redis) tell(ctx context.Context, s *redis.Script, keys []string, args ...any) *redis.Cmd {
	if r.opts.Wait <= 0 {
		return r.run(ctx, s, keys, args...)
	}
	var node interface {
		Pipelined(context.Context, func(redis.Pipeliner) error) ([]redis.Cmder, error)
	} = r.client
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, keys[0])
		if err != nil {
			return failedCmd(ctx, err)
		}
		node = master
	}
	var reply, replicas *redis.Cmd
	try := func(eval func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) {
		_, _ = node.Pipelined(ctx, func(p redis.Pipeliner) error { // each answer has its error
			reply = eval(ctx, p, keys, args...)
			replicas = p.Do(ctx, "wait", r.opts.Wait, r.opts.WaitTimeout.Milliseconds())
			return nil
		})
	}
	if try(s.EvalSha); redis.HasErrorPrefix(reply.Err(), "NOSCRIPT") {
		try(s.Eval)
	}
	if did := reply.Val(); reply.Err() != nil || did == int64(0) || did == "" {
		return reply // nothing was written
	}
	n, err := replicas.Int()
	if err == nil && n < r.opts.Wait {
		err = fmt.Errorf("%d replicas have it, and %d are waited for", n, r.opts.Wait)
	}
	if err != nil {
		return failedCmd(ctx, fmt.Errorf("%w: %w", changelog.ErrUnknown, err))
	}
	return reply
}

// failedCmd is the answer to what could not be run.
func failedCmd(ctx context.Context, err error) *redis.Cmd {
	c := redis.NewCmd(ctx)
	c.SetErr(err)
	return c
}

// Send adds a request to the end of its shard's inbox.
func (r *Redis) Send(ctx context.Context, q Request) error {
	id := q.ID()
	b, err := encodeRequest(&q)
	if err != nil {
		return fmt.Errorf("send a request for subscription %v: %w", id, err)
	}
	room := q.inboxRoom(r.opts.InboxMax)
	number, err := r.tell(ctx, r.send, []string{r.inboxKey(id.Shard())}, room, b).Text()
	if err == nil && number == "" {
		return fmt.Errorf("send a request for subscription %v: %w: %d", id, ErrBusy, room)
	}
	if err != nil {
		return r.failed(ctx, err, "send a request for subscription %v", id)
	}
	return nil
}

// Join says that this hub lives, and returns all that do.
func (r *Redis) Join(ctx context.Context) ([]string, error) {
	answer := r.join.Run(ctx, r.client, []string{r.hubsKey()}, r.name, r.opts.LiveFor.Microseconds(), r.now().UnixMicro(), r.opts.ClockSkew.Microseconds())
	if ahead, ok := answer.Val().(int64); ok {
		return nil, fmt.Errorf("join the hubs: %w: it is %v ahead of that of Redis", ErrClock, time.Duration(ahead)*time.Microsecond)
	}
	live, err := answer.StringSlice()
	if err != nil {
		return nil, r.failed(ctx, err, "join the hubs")
	}
	slices.Sort(live)
	return live, nil
}

// Leave says that this hub lives no more.
func (r *Redis) Leave(ctx context.Context) error {
	if err := r.client.ZRem(ctx, r.hubsKey(), r.name).Err(); err != nil {
		return r.failed(ctx, err, "leave the hubs")
	}
	return nil
}

// runAll runs a script once for each i from 0 to n-1, in one round trip, and
// calls do with the answers. Its error is the first one; do is called for the
// others nevertheless.
func (r *Redis) runAll(ctx context.Context, s *redis.Script, n int, args func(i int) ([]string, []any), do func(i int, answer *redis.Cmd)) error {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	answers := make([]*redis.Cmd, n)
	run := func(eval func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) {
		_, _ = r.client.Pipelined(ctx, func(p redis.Pipeliner) error { // each answer has its error
			for _, i := range all {
				keys, args := args(i)
				answers[i] = eval(ctx, p, keys, args...)
			}
			return nil
		})
	}
	run(s.EvalSha)
	all = slices.DeleteFunc(all, func(i int) bool { return !redis.HasErrorPrefix(answers[i].Err(), "NOSCRIPT") })
	if len(all) > 0 {
		run(s.Eval)
	}
	var first error
	for i, a := range answers {
		if err := a.Err(); err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		do(i, a)
	}
	return first
}

// Acquire claims shards that no other hub has.
func (r *Redis) Acquire(ctx context.Context, shards []int) ([]Claim, error) {
	var claims []Claim
	var bad error
	err := r.runAll(ctx, r.acquire, len(shards), func(i int) ([]string, []any) {
		return []string{r.claimKey(shards[i])}, []any{r.name, r.opts.ClaimFor.Microseconds()}
	}, func(i int, answer *redis.Cmd) {
		if text, _ := answer.Text(); text != "" {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				bad = fmt.Errorf("%w: the claim on shard %d has number %q", changelog.ErrCorrupt, shards[i], text)
				return
			}
			claims = append(claims, Claim{shards[i], n})
		}
	})
	if err := errors.Join(err, bad); err != nil {
		return claims, r.failed(ctx, err, "claim shards")
	}
	return claims, nil
}

// Renew prolongs claims.
func (r *Redis) Renew(ctx context.Context, claims []Claim) ([]Renewed, error) {
	var held []Renewed
	var bad error
	err := r.runAll(ctx, r.renew, len(claims), func(i int) ([]string, []any) {
		c := claims[i]
		return []string{r.claimKey(c.Shard), r.inboxKey(c.Shard)}, []any{r.name, c.Number, r.opts.ClaimFor.Microseconds()}
	}, func(i int, answer *redis.Cmd) {
		if id, _ := answer.Text(); id != "" {
			newest, err := number(id)
			if err != nil {
				bad = err
			}
			held = append(held, Renewed{claims[i], newest})
		}
	})
	if err := errors.Join(err, bad); err != nil {
		return held, r.failed(ctx, err, "renew claims")
	}
	return held, nil
}

// Release gives claims up.
func (r *Redis) Release(ctx context.Context, claims []Claim) error {
	err := r.runAll(ctx, r.release, len(claims), func(i int) ([]string, []any) {
		return []string{r.claimKey(claims[i].Shard)}, []any{r.name, claims[i].Number}
	}, func(int, *redis.Cmd) {})
	if err != nil {
		return r.failed(ctx, err, "release claims")
	}
	return nil
}

// Commit makes changes to a shard in one atomic step.
func (r *Redis) Commit(ctx context.Context, c Claim, changes Changes) error {
	var put, with, progress, gone, done []any
	for i := range changes.Put {
		record := &changes.Put[i]
		id := record.ID()
		b, err := encodeSubscription(&record.Subscription)
		if err = errors.Join(inShard(c, id), err); err != nil {
			return fmt.Errorf("commit to shard %d: %w", c.Shard, err)
		}
		put = append(put, id[:], b)
		with = append(with, id[:], encodeProgress(&record.Progress))
	}
	for id, p := range changes.Progress {
		if err := inShard(c, id); err != nil {
			return fmt.Errorf("commit to shard %d: %w", c.Shard, err)
		}
		progress = append(progress, id[:], encodeProgress(&p))
	}
	for _, id := range changes.Delete {
		if err := inShard(c, id); err != nil {
			return fmt.Errorf("commit to shard %d: %w", c.Shard, err)
		}
		gone = append(gone, id[:])
	}
	for _, n := range changes.Done {
		done = append(done, streamID(n))
	}
	args := []any{r.name, c.Number, len(put), len(with), len(progress), len(gone), len(done)}
	keys := []string{r.claimKey(c.Shard), r.recordsKey(c.Shard), r.progressKey(c.Shard), r.inboxKey(c.Shard)}
	run := r.tell
	if len(put)+len(gone) == 0 { // what is lost of a progress is delivered again
		run = r.run
	}
	held, err := run(ctx, r.commit, keys, slices.Concat(args, put, with, progress, gone, done)...).Int()
	if err != nil {
		return r.failed(ctx, err, "commit to shard %d", c.Shard)
	}
	if held == 0 {
		return fmt.Errorf("commit to shard %d: %w", c.Shard, ErrClaimLost)
	}
	return nil
}
