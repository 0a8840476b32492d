package subscription

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/internal/redisconn"
)

// sequenceBits is how many of the lowest bits of a request's number are a
// sequence number. The inbox is a stream, and the ID of a message in a stream
// is a time in milliseconds and a sequence number; a request's number holds
// both.
const sequenceBits = 20

// number reads the ID of a message in a stream.
func number(id string) (uint64, error) {
	ms, seq, _ := strings.Cut(id, "-")
	m, err1 := strconv.ParseUint(ms, 10, 64-sequenceBits)
	s, err2 := strconv.ParseUint(seq, 10, sequenceBits)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("%w: request has the ID %q", changelog.ErrCorrupt, id)
	}
	return m<<sequenceBits | s, nil
}

// streamID returns the ID that number reads.
func streamID(number uint64) string {
	return strconv.FormatUint(number>>sequenceBits, 10) + "-" + strconv.FormatUint(number&(1<<sequenceBits-1), 10)
}

// read runs one step that only reads. If the step fails, the error says what
// was being done.
func (r *Redis) read(ctx context.Context, step func(*redisconn.Try) error, format string, args ...any) error {
	if err := r.conn.ReadCall().Once(ctx, step); err != nil {
		return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
	}
	return nil
}

// Newest returns, for each of the shards, the number of the newest request.
func (r *Redis) Newest(ctx context.Context, shards []int) ([]uint64, error) {
	keys := make([]string, len(shards))
	for i, shard := range shards {
		keys[i] = r.inboxKey(shard)
	}
	var ids []string
	failed := r.read(ctx, func(t *redisconn.Try) (err error) { ids, err = t.XNewest(keys); return err }, "list inboxes")
	numbers := make([]uint64, len(shards))
	for i, id := range ids {
		if id == "" {
			continue
		}
		n, err := number(id)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("check inbox of shard %d: %w", shards[i], err))
		}
		numbers[i] = n
	}
	return numbers, failed
}

// Inbox returns the oldest requests of a shard with a number greater than
// after.
func (r *Redis) Inbox(ctx context.Context, shard int, after uint64, limit int) ([]Request, error) {
	var messages []redisconn.Message
	err := r.read(ctx, func(t *redisconn.Try) (err error) {
		messages, err = t.XRange(r.inboxKey(shard), streamID(after), "r", limit)
		return err
	}, "read inbox of shard %d", shard)
	if err != nil {
		return nil, err
	}
	requests := make([]Request, len(messages))
	for i, m := range messages {
		n, err := number(m.ID)
		if err != nil {
			return nil, fmt.Errorf("read inbox of shard %d: %w", shard, err)
		}
		requests[i] = decodeRequest(n, []byte(m.Value), r.opts.Keys)
	}
	return requests, nil
}

// Find returns one record.
func (r *Redis) Find(ctx context.Context, id ID) (Record, error) {
	var parts redisconn.Answer
	err := r.read(ctx, func(t *redisconn.Try) (err error) {
		parts, err = t.Run(r.find, []string{r.recordsKey(id.Shard()), r.progressKey(id.Shard())}, id[:])
		return err
	}, "find subscription %v", id)
	if err != nil {
		return Record{}, err
	}
	if len(parts) == 0 || parts[0] == nil {
		return Record{}, fmt.Errorf("find subscription %v: %w", id, ErrNoSubscription)
	}
	found, err := decodeRecord([]byte(parts.Text(0)), []byte(parts.Text(1)), r.opts.Keys)
	if err != nil {
		return Record{}, fmt.Errorf("find subscription %v: %w", id, err)
	}
	return found, nil
}

// scanCount is about how many records one command looks at.
const scanCount = 200

// A kept is a record as Redis returned it.
type kept struct {
	id                     ID
	subscription, progress string
}

func (k *kept) decode(keys *Keys) (Record, error) {
	r, err := decodeRecord([]byte(k.subscription), []byte(k.progress), keys)
	if err != nil {
		return r, fmt.Errorf("%w, %v: %w", ErrRecord, k.id, err)
	}
	return r, nil
}

// scan reads the records of n shards, from shard first on, whose IDs fit a
// pattern of Redis. It calls do with the records that each step found, until do
// returns false. It may find a record twice.
func (r *Redis) scan(ctx context.Context, first, n int, pattern string, do func([]kept) bool) error {
	type look struct { // the next look at a shard, from a cursor of HSCAN on
		shard  int
		cursor string
	}
	looks := make([]look, n)
	for i := range looks {
		looks[i] = look{first + i, "0"}
	}
	for len(looks) > 0 {
		var some []kept
		var bad error
		at := looks
		looks = nil
		err := r.conn.ReadCall().Once(ctx, func(t *redisconn.Try) error {
			return t.RunAll(r.scans, len(at), func(i int) ([]string, []any) {
				return []string{r.recordsKey(at[i].shard), r.progressKey(at[i].shard)}, []any{at[i].cursor, pattern, scanCount}
			}, func(i int, parts redisconn.Answer) {
				for k := 1; k+2 < len(parts); k += 3 {
					id := parts.Text(k)
					if len(id) != len(ID{}) {
						bad = fmt.Errorf("%w: subscription has the ID %q", changelog.ErrCorrupt, id)
						return
					}
					some = append(some, kept{ID([]byte(id)), parts.Text(k + 1), parts.Text(k + 2)})
				}
				if cursor := parts.Word(); cursor != "0" {
					looks = append(looks, look{at[i].shard, cursor})
				}
			})
		})
		if err := cmp.Or(err, bad); err != nil {
			return err
		}
		if !do(some) {
			return nil
		}
	}
	return nil
}

// Load yields all records of a shard.
func (r *Redis) Load(ctx context.Context, shard int) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		seen := make(map[ID]bool)
		more := true
		err := r.scan(ctx, shard, 1, "*", func(some []kept) bool {
			for i := range some {
				if seen[some[i].id] {
					continue
				}
				seen[some[i].id] = true
				if more = yield(some[i].decode(r.opts.Keys)); !more {
					return false
				}
			}
			return true
		})
		if err != nil && more {
			yield(Record{}, fmt.Errorf("load shard %d: %w", shard, err))
		}
	}
}

// maxShards bounds how many shards List searches at once.
const maxShards = 32

// List returns records of one set in the order of their IDs. As long as it
// finds little, it searches more and more shards at once.
func (r *Redis) List(ctx context.Context, set string, after ID, limit int) (records []Record, more bool, err error) {
	pattern := "?" + literal.Replace(string(setMark(set))) + "*"
	for shard, shards := after.Shard(), 1; shard < Shards && !more; {
		shards = min(shards, Shards-shard)
		var some []kept
		err := r.scan(ctx, shard, shards, pattern, func(found []kept) bool { some = append(some, found...); return true })
		slices.SortFunc(some, func(a, b kept) int { return bytes.Compare(a.id[:], b.id[:]) })
		some = slices.CompactFunc(some, func(a, b kept) bool { return a.id == b.id })
		for i := 0; err == nil && i < len(some) && !more; i++ {
			if !some[i].id.after(after) {
				continue
			}
			var record Record
			if record, err = some[i].decode(r.opts.Keys); record.Set != set { // another set has the same mark, which is rare
				continue
			}
			if more = len(records) == limit; !more {
				records = append(records, record)
			}
		}
		if err != nil {
			return nil, false, fmt.Errorf("list subscriptions of set %q: %w", set, err)
		}
		shard, shards = shard+shards, min(2*shards, maxShards)
	}
	return records, more, nil
}

// literal escapes a text so that it stands for itself in a pattern of Redis.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)
