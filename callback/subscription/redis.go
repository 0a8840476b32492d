package subscription

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/redisconn"
)

var (
	//go:embed lua/send.lua
	sendLua string
	//go:embed lua/commit.lua
	commitLua string
	//go:embed lua/find.lua
	findLua string
	//go:embed lua/scan.lua
	scanLua string
)

// RedisOptions are the options of a Redis. Zero values are the defaults. All
// hubs must have the same.
type RedisOptions struct {
	InboxMax int   // subscribers' requests that wait in a shard's inbox; default 10,000
	Keys     *Keys // encrypt the secrets; default: they are kept in clear
}

// A Redis is a Registry that several hubs share. Each step on a shard is one
// script. How safe a commit is depends on how Redis is set up, as for the
// change memory. Send waits for as many replicas as the conn says. So does a
// Commit that puts or deletes records.
//
// Its keys are these, after the prefix and a colon, with the shard as a
// number in the braces:
//
//	{callback/<shard>}:records   hash: subscriptions by ID
//	{callback/<shard>}:progress  hash: their progress by ID
//	{callback/<shard>}:inbox     stream: requests
//
// Times are microseconds by the clock of Redis. Because of the braces, all keys of
// a shard are in one slot of a cluster. They cannot be keys of the change memory,
// because no set has a slash in its name. They cannot be keys of another prefix,
// because no prefix has a brace.
type Redis struct {
	conn   *redisconn.Conn
	prefix string
	opts   RedisOptions

	send, commit, find, scans *redisconn.Script
}

var _ Registry = (*Redis)(nil)

// NewRedis returns one hub's registry. It keeps its keys behind the prefix. The
// owner of conn closes it.
func NewRedis(conn *redisconn.Conn, prefix string, opts RedisOptions) (*Redis, error) {
	if prefix == "" || strings.ContainsAny(prefix, "{}") {
		return nil, fmt.Errorf("invalid prefix of Redis keys %q", prefix)
	}
	if opts.InboxMax <= 0 {
		opts.InboxMax = InboxMax
	}
	wrote := func(a redisconn.Answer) bool { return a.Word() != "" && a.Word() != "0" }
	script := func(source string) *redisconn.Script { return redisconn.NewScript(source, wrote) }
	return &Redis{
		conn: conn, prefix: prefix, opts: opts,
		send: script(sendLua), commit: script(commitLua), find: script(findLua), scans: script(scanLua),
	}, nil
}

// key returns one of the keys of a shard.
func (r *Redis) key(shard int, what string) string {
	return r.prefix + ":{" + ClaimKind + "/" + strconv.Itoa(shard) + "}:" + what
}

// ClaimKind is the kind of work for which hubs claim the shards. claim.Redis
// has it in the names of its keys.
const ClaimKind = "callback"

func (r *Redis) claimKey(s int) string    { return claim.RedisKey(r.prefix, ClaimKind, s) }
func (r *Redis) recordsKey(s int) string  { return r.key(s, "records") }
func (r *Redis) progressKey(s int) string { return r.key(s, "progress") }
func (r *Redis) inboxKey(s int) string    { return r.key(s, "inbox") }

// Send adds a request to the end of its shard's inbox.
func (r *Redis) Send(ctx context.Context, q Request) error {
	id := q.ID()
	b, err := encodeRequest(&q, r.opts.Keys)
	if err == nil {
		room := q.inboxRoom(r.opts.InboxMax)
		err = r.conn.WriteCall().Once(ctx, func(t *redisconn.Try) error {
			a, err := t.RunWait(r.send, []string{r.inboxKey(id.Shard())}, room, b)
			if err == nil && a.Word() == "" {
				err = redisconn.Refuse(fmt.Errorf("%w: %d", ErrBusy, room))
			}
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("send request for subscription %v: %w", id, err)
	}
	return nil
}

// Commit makes changes to a shard in one atomic step.
func (r *Redis) Commit(ctx context.Context, c claim.Claim, changes Changes) error {
	var put, with, progress, gone, done []any
	for i := range changes.Put {
		record := &changes.Put[i]
		id := record.ID()
		b, err := encodeSubscription(&record.Subscription, r.opts.Keys)
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
	args := []any{c.Holder, c.Number, len(put), len(with), len(progress), len(gone), len(done)}
	keys := []string{r.claimKey(c.Shard), r.recordsKey(c.Shard), r.progressKey(c.Shard), r.inboxKey(c.Shard)}
	err := r.conn.WriteCall().Once(ctx, func(t *redisconn.Try) error {
		run := t.RunWait
		if len(put)+len(gone) == 0 { // if a progress is lost, its changes are delivered again
			run = t.Run
		}
		a, err := run(r.commit, keys, slices.Concat(args, put, with, progress, gone, done)...)
		if err == nil && a.Number(0) == 0 {
			err = redisconn.Refuse(claim.ErrLost)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("commit to shard %d: %w", c.Shard, err)
	}
	return nil
}
