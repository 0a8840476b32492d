package callback

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/rshub/rshub/changelog"
)

// The inbox is a stream, whose IDs are milliseconds and a sequence. A number is
// both.
const sequenceBits = 20

// number reads an ID of a stream.
func number(id string) (uint64, error) {
	ms, seq, _ := strings.Cut(id, "-")
	m, err1 := strconv.ParseUint(ms, 10, 64-sequenceBits)
	s, err2 := strconv.ParseUint(seq, 10, sequenceBits)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("%w: a request with the ID %q", changelog.ErrCorrupt, id)
	}
	return m<<sequenceBits | s, nil
}

// streamID is what number reads.
func streamID(number uint64) string {
	return strconv.FormatUint(number>>sequenceBits, 10) + "-" + strconv.FormatUint(number&(1<<sequenceBits-1), 10)
}

// Inbox returns the oldest requests of a shard behind after.
func (r *Redis) Inbox(ctx context.Context, shard int, after uint64, limit int) ([]Request, error) {
	messages, err := r.client.XRangeN(ctx, r.inboxKey(shard), "("+streamID(after), "+", int64(limit)).Result()
	if err != nil {
		return nil, r.failed(ctx, err, "read the inbox of shard %d", shard)
	}
	requests := make([]Request, len(messages))
	for i, m := range messages {
		n, err := number(m.ID)
		if err == nil {
			text, _ := m.Values["r"].(string)
			requests[i], err = decodeRequest(n, []byte(text))
		}
		if err != nil {
			return nil, fmt.Errorf("read the inbox of shard %d: %w", shard, err)
		}
	}
	return requests, nil
}

// Find returns one record.
func (r *Redis) Find(ctx context.Context, id ID) (Record, error) {
	parts, err := r.find.Run(ctx, r.client, []string{r.recordsKey(id.Shard()), r.progressKey(id.Shard())}, id[:]).Slice()
	if err != nil {
		return Record{}, r.failed(ctx, err, "find subscription %v", id)
	}
	subscription, there := parts[0].(string)
	progress, _ := parts[1].(string)
	if !there {
		return Record{}, fmt.Errorf("find subscription %v: %w", id, ErrNoSubscription)
	}
	found, err := decodeRecord([]byte(subscription), []byte(progress))
	if err != nil {
		return Record{}, fmt.Errorf("find subscription %v: %w", id, err)
	}
	return found, nil
}

// scanCount is about how many records one command looks at.
const scanCount = 200

// Load yields all records of a shard.
func (r *Redis) Load(ctx context.Context, shard int) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		seen := make(map[ID]bool) // a scan may meet one twice
		for cursor := uint64(0); ; {
			found, next, err := r.client.HScan(ctx, r.recordsKey(shard), cursor, "", scanCount).Result()
			var some []kept
			if err == nil {
				some, err = keptOf(found)
			}
			some = slices.DeleteFunc(some, func(k kept) bool { return seen[k.id] })
			var records []Record
			if err == nil {
				records, err = r.complete(ctx, some)
			}
			if err != nil {
				yield(Record{}, r.failed(ctx, err, "load shard %d", shard))
				return
			}
			for i := range records {
				seen[records[i].ID()] = true
				if !yield(records[i], nil) {
					return
				}
			}
			if cursor = next; cursor == 0 {
				return
			}
		}
	}
}

// A kept is a subscription as it was read.
type kept struct {
	id   ID
	text string
}

// keptOf reads the answer to HSCAN.
func keptOf(found []string) ([]kept, error) {
	some := make([]kept, 0, len(found)/2)
	for i := 0; i+1 < len(found); i += 2 {
		if len(found[i]) != len(ID{}) {
			return nil, fmt.Errorf("%w: a subscription with the ID %q", changelog.ErrCorrupt, found[i])
		}
		some = append(some, kept{ID([]byte(found[i])), found[i+1]})
	}
	return some, nil
}

// complete adds their progress to subscriptions. Those without any were removed
// since they were read.
func (r *Redis) complete(ctx context.Context, some []kept) ([]Record, error) {
	records := make([]Record, 0, len(some))
	for len(some) > 0 {
		shard, ids := some[0].id.Shard(), []string(nil)
		for _, k := range some {
			if k.id.Shard() == shard && len(ids) < scanCount {
				ids = append(ids, string(k.id[:]))
			} else {
				break
			}
		}
		progress, err := r.client.HMGet(ctx, r.progressKey(shard), ids...).Result()
		if err != nil {
			return nil, err
		}
		for i, k := range some[:len(ids)] {
			p, there := progress[i].(string)
			if !there {
				continue
			}
			record, err := decodeRecord([]byte(k.text), []byte(p))
			if err != nil {
				return nil, fmt.Errorf("subscription %v: %w", k.id, err)
			}
			records = append(records, record)
		}
		some = some[len(ids):]
	}
	return records, nil
}

// maxShards bounds how many shards List looks through at once.
const maxShards = 32

// List returns records of one set in the order of their IDs. It looks through
// more shards at once as long as it finds little.
func (r *Redis) List(ctx context.Context, set string, after ID, limit int) ([]Record, bool, error) {
	for {
		some, err := r.behind(ctx, set, after, limit+1)
		more := len(some) > limit
		var records []Record
		if err == nil {
			records, err = r.complete(ctx, some[:min(limit, len(some))])
		}
		if err != nil {
			return nil, false, r.failed(ctx, err, "list the subscriptions of set %q", set)
		}
		records = slices.DeleteFunc(records, func(k Record) bool { return k.Set != set })
		if len(records) > 0 || !more {
			return records, more, nil
		}
		after = some[limit-1].id // all were removed meanwhile
	}
}

// behind returns at least the first n subscriptions of a set behind after, if
// there are so many.
func (r *Redis) behind(ctx context.Context, set string, after ID, n int) (some []kept, err error) {
	for shard, shards := after.Shard(), 1; shard < Shards && len(some) < n; {
		shards = min(shards, Shards-shard)
		found, err := r.search(ctx, set, shard, shards)
		if err != nil {
			return nil, err
		}
		some = append(some, slices.DeleteFunc(found, func(k kept) bool { return !k.id.after(after) })...)
		shard, shards = shard+shards, min(2*shards, maxShards)
	}
	return some, nil
}

// search returns the subscriptions of a set that are in n shards, in order.
func (r *Redis) search(ctx context.Context, set string, first, n int) ([]kept, error) {
	match := "?" + literal.Replace(string(setMark(set))) + "*"
	cursors := make(map[int]uint64, n)
	for i := range n {
		cursors[first+i] = 0
	}
	var all []kept
	for len(cursors) > 0 {
		scans := make(map[int]*redis.ScanCmd, len(cursors))
		_, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for shard, cursor := range cursors {
				scans[shard] = p.HScan(ctx, r.recordsKey(shard), cursor, match, scanCount)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for shard, scan := range scans {
			found, next := scan.Val()
			some, err := keptOf(found)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
			if cursors[shard] = next; next == 0 {
				delete(cursors, shard)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b kept) int { return strings.Compare(string(a.id[:]), string(b.id[:])) })
	return slices.CompactFunc(all, func(a, b kept) bool { return a.id == b.id }), nil
}

// literal makes a text mean itself in a pattern of Redis.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)
