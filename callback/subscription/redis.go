package subscription

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/rshub/rshub/changelog"
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

// RedisOptions are the options of a Redis. Zero values are the defaults. All hubs must have the same.
type RedisOptions struct {
	InboxMax int   // limit on requests of subscribers in the inbox of a shard; default InboxMax
	Keys     *Keys // keys that encrypt the secrets; default: secrets are stored in clear text
}

// A Redis is a Registry that several hubs share. Each operation on a shard is one script. How durable a
// commit is depends on the configuration of Redis. Send, and a Commit that puts or deletes records, wait
// for the replicas in the options of the connection.
//
// Its keys are, after the prefix and a colon:
//
//	{callback/<shard>}:records   hash: subscriptions by ID
//	{callback/<shard>}:progress  hash: their progress by ID
//	{callback/<shard>}:inbox     stream: requests
//
// The braces put all keys of a shard in one slot of a cluster. No key of the change memory is the same,
// because the name of a set has no slash, and none with another prefix, because a prefix has no brace.
type Redis struct {
	conn    *redisconn.Conn
	prefix  string
	opts    RedisOptions
	commits atomic.Uint64 // number of the latest commit, see commit.lua

	send, commit, find, scans *redisconn.Script
}

var _ Registry = (*Redis)(nil)

// NewRedis returns the registry of one hub. Its keys start with prefix. The caller retains ownership of
// conn.
func NewRedis(conn *redisconn.Conn, prefix string, opts RedisOptions) (*Redis, error) {
	if prefix == "" || strings.ContainsAny(prefix, "{}") {
		return nil, fmt.Errorf("invalid prefix of Redis keys %q", prefix)
	}
	opts.InboxMax = cmp.Or(opts.InboxMax, InboxMax)
	script := func(source string) *redisconn.Script {
		return redisconn.NewScript(source, func(a redisconn.Answer) bool { return a.Word() != "" && a.Word() != "0" })
	}
	return &Redis{
		conn: conn, prefix: prefix, opts: opts,
		send: script(sendLua), commit: script(commitLua), find: script(findLua), scans: script(scanLua),
	}, nil
}

// ClaimKind is the kind of work for which hubs claim shards, as in the keys of claim.Redis.
const ClaimKind = "callback"

func (r *Redis) key(shard int, name string) string {
	return r.prefix + ":{" + ClaimKind + "/" + strconv.Itoa(shard) + "}:" + name
}

func (r *Redis) recordsKey(shard int) string  { return r.key(shard, "records") }
func (r *Redis) progressKey(shard int) string { return r.key(shard, "progress") }
func (r *Redis) inboxKey(shard int) string    { return r.key(shard, "inbox") }

// Send implements Registry.
func (r *Redis) Send(ctx context.Context, q Request) error {
	id := q.ID()
	b, err := encodeRequest(&q, r.opts.Keys)
	if err == nil {
		limit := q.inboxLimit(r.opts.InboxMax)
		err = r.conn.WriteCall().Once(ctx, func(t *redisconn.Try) error {
			a, err := t.RunWait(r.send, []string{r.inboxKey(id.Shard())}, limit, b)
			if err == nil && a.Word() == "" {
				err = redisconn.Refuse(fmt.Errorf("%w: %d", ErrBusy, limit))
			}
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("send request for subscription %v: %w", id, err)
	}
	return nil
}

// Commit implements Registry.
func (r *Redis) Commit(ctx context.Context, c claim.Claim, changes Changes) error {
	if err := r.commitChanges(ctx, c, &changes); err != nil {
		return fmt.Errorf("commit to shard %d: %w", c.Shard, err)
	}
	return nil
}

func (r *Redis) commitChanges(ctx context.Context, c claim.Claim, changes *Changes) error {
	if err := changes.check(c.Shard); err != nil {
		return err
	}
	var put, progress, removed, done []any
	for i := range changes.Put {
		record := &changes.Put[i]
		id := record.ID()
		b, err := encodeSubscription(&record.Subscription, r.opts.Keys)
		if err != nil {
			return err
		}
		put, progress = append(put, id[:], b), append(progress, id[:], encodeProgress(&record.Progress))
	}
	for id, p := range changes.Progress { // replaces the progress of a record
		progress = append(progress, id[:], encodeProgress(&p))
	}
	for _, id := range changes.Delete {
		removed = append(removed, id[:])
	}
	for _, n := range changes.Done {
		done = append(done, streamID(n))
	}
	args := []any{c.Holder, c.Number, r.commits.Add(1), len(put), len(progress), len(removed), len(done)}
	keys := []string{claim.RedisKey(r.prefix, ClaimKind, c.Shard), r.recordsKey(c.Shard), r.progressKey(c.Shard), r.inboxKey(c.Shard)}
	return r.conn.WriteCall().Once(ctx, func(t *redisconn.Try) error {
		run := t.RunWait
		if len(put)+len(removed) == 0 { // the deliveries since a lost progress are only repeated
			run = t.Run
		}
		a, err := run(r.commit, keys, slices.Concat(args, put, progress, removed, done)...)
		if err == nil && a.Number(0) == 0 {
			err = redisconn.Refuse(claim.ErrLost)
		}
		return err
	})
}

// An inbox is a stream, in which the ID of a message is a time in milliseconds and a sequence number. The
// number of a request has the sequence number in its lowest bits.
const sequenceBits = 20

// requestOf returns the number of the request with the ID of a message.
func requestOf(id string) (uint64, error) {
	ms, seq, _ := strings.Cut(id, "-")
	m, err1 := strconv.ParseUint(ms, 10, 64-sequenceBits)
	s, err2 := strconv.ParseUint(seq, 10, sequenceBits)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("%w: request has the ID %q", changelog.ErrCorrupt, id)
	}
	return m<<sequenceBits | s, nil
}

// streamID returns the ID of the message with a request.
func streamID(number uint64) string {
	return strconv.FormatUint(number>>sequenceBits, 10) + "-" + strconv.FormatUint(number&(1<<sequenceBits-1), 10)
}

// Newest implements Registry.
func (r *Redis) Newest(ctx context.Context, shards []int) ([]uint64, error) {
	keys := make([]string, len(shards))
	for i, shard := range shards {
		keys[i] = r.inboxKey(shard)
	}
	var ids []string
	err := r.conn.ReadCall().Once(ctx, func(t *redisconn.Try) (err error) { ids, err = t.XNewest(keys); return err })
	numbers := make([]uint64, len(shards))
	for i, id := range ids {
		if id != "" {
			n, invalid := requestOf(id)
			numbers[i], err = n, errors.Join(err, invalid)
		}
	}
	if err != nil {
		return numbers, fmt.Errorf("list inboxes: %w", err)
	}
	return numbers, nil
}

// Inbox implements Registry.
func (r *Redis) Inbox(ctx context.Context, shard int, after uint64, limit int) ([]Request, error) {
	var requests []Request
	err := r.conn.ReadCall().Once(ctx, func(t *redisconn.Try) error {
		messages, err := t.XRange(r.inboxKey(shard), streamID(after), "r", limit)
		if err != nil {
			return err
		}
		requests = make([]Request, len(messages))
		for i, m := range messages {
			n, err := requestOf(m.ID)
			if err != nil {
				return err
			}
			requests[i] = decodeRequest(n, []byte(m.Value), r.opts.Keys)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read inbox of shard %d: %w", shard, err)
	}
	return requests, nil
}

// Find implements Registry.
func (r *Redis) Find(ctx context.Context, id ID) (found Record, err error) {
	var parts redisconn.Answer
	err = r.conn.ReadCall().Once(ctx, func(t *redisconn.Try) (err error) {
		parts, err = t.Run(r.find, []string{r.recordsKey(id.Shard()), r.progressKey(id.Shard())}, id[:])
		return err
	})
	switch {
	case err != nil:
	case len(parts) == 0 || parts[0] == nil:
		err = ErrNoSubscription
	default:
		found, err = decodeRecord([]byte(parts.Text(0)), []byte(parts.Text(1)), r.opts.Keys)
	}
	if err != nil {
		return Record{}, fmt.Errorf("find subscription %v: %w", id, err)
	}
	return found, nil
}

// A storedRecord is a record as it is in Redis.
type storedRecord struct {
	id                     ID
	subscription, progress string
}

func (s *storedRecord) decode(keys *Keys) (Record, error) {
	r, err := decodeRecord([]byte(s.subscription), []byte(s.progress), keys)
	if err != nil {
		return r, fmt.Errorf("%w, %v: %w", ErrRecord, s.id, err)
	}
	return r, nil
}

// scanCount is about how many records one command examines.
const scanCount = 200

// scan reads the records of n shards from first on whose IDs match a pattern of Redis. It calls do with
// those that each round trip found, until do returns false. It may find a record twice.
func (r *Redis) scan(ctx context.Context, first, n int, pattern string, do func([]storedRecord) bool) error {
	type position struct { // in the scan of a shard
		shard  int
		cursor string // of HSCAN
	}
	next := make([]position, n)
	for i := range next {
		next[i] = position{first + i, "0"}
	}
	for len(next) > 0 {
		var found []storedRecord
		var invalid error
		at := next
		next = nil
		err := r.conn.ReadCall().Once(ctx, func(t *redisconn.Try) error {
			return t.RunAll(r.scans, len(at), func(i int) ([]string, []any) {
				return []string{r.recordsKey(at[i].shard), r.progressKey(at[i].shard)}, []any{at[i].cursor, pattern, scanCount}
			}, func(i int, parts redisconn.Answer) {
				for k := 1; k+2 < len(parts); k += 3 {
					id := parts.Text(k)
					if len(id) != len(ID{}) {
						invalid = fmt.Errorf("%w: subscription has the ID %q", changelog.ErrCorrupt, id)
						return
					}
					found = append(found, storedRecord{ID([]byte(id)), parts.Text(k + 1), parts.Text(k + 2)})
				}
				if cursor := parts.Word(); cursor != "0" {
					next = append(next, position{at[i].shard, cursor})
				}
			})
		})
		if err := cmp.Or(err, invalid); err != nil {
			return err
		}
		if !do(found) {
			return nil
		}
	}
	return nil
}

// Load implements Registry.
func (r *Redis) Load(ctx context.Context, shard int) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		seen := map[ID]bool{}
		more := true
		err := r.scan(ctx, shard, 1, "*", func(found []storedRecord) bool {
			for i := 0; i < len(found) && more; i++ {
				if id := found[i].id; !seen[id] {
					seen[id] = true
					more = yield(found[i].decode(r.opts.Keys))
				}
			}
			return more
		})
		if err != nil && more {
			yield(Record{}, fmt.Errorf("load shard %d: %w", shard, err))
		}
	}
}

// maxShards is the most shards that List searches in one round trip.
const maxShards = 32

// List implements Registry. As long as it finds little, it searches more and more shards at once.
func (r *Redis) List(ctx context.Context, set string, after ID, limit int) (records []Record, more bool, err error) {
	pattern := "?" + literal.Replace(string(setHash(set))) + "*"
	for shard, n := after.Shard(), 1; shard < Shards && !more && err == nil; shard, n = shard+n, min(2*n, maxShards) {
		n = min(n, Shards-shard)
		var found []storedRecord
		err = r.scan(ctx, shard, n, pattern, func(some []storedRecord) bool { found = append(found, some...); return true })
		slices.SortFunc(found, func(a, b storedRecord) int { return a.id.compare(b.id) })
		found = slices.CompactFunc(found, func(a, b storedRecord) bool { return a.id == b.id })
		for i := 0; i < len(found) && !more && err == nil; i++ {
			if found[i].id.compare(after) <= 0 {
				continue
			}
			var record Record
			record, err = found[i].decode(r.opts.Keys)
			switch {
			case err != nil, record.Set != set: // another set has the same hash
			case len(records) == limit:
				more = true
			default:
				records = append(records, record)
			}
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("list subscriptions of set %q: %w", set, err)
	}
	return records, more, nil
}

// literal escapes a text for a pattern of Redis.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)
