package callback

import (
	"bytes"
	"context"
	"errors"
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
		return nil, r.missed(ctx, err, "read the inbox of shard %d", shard)
	}
	requests := make([]Request, len(messages))
	for i, m := range messages {
		n, err := number(m.ID)
		if err != nil {
			return nil, fmt.Errorf("read the inbox of shard %d: %w", shard, err)
		}
		text, _ := m.Values["r"].(string)
		requests[i] = decodeRequest(n, []byte(text))
	}
	return requests, nil
}

// Find returns one record.
func (r *Redis) Find(ctx context.Context, id ID) (Record, error) {
	parts, err := r.find.Run(ctx, r.client, []string{r.recordsKey(id.Shard()), r.progressKey(id.Shard())}, id[:]).Slice()
	if err != nil {
		return Record{}, r.missed(ctx, err, "find subscription %v", id)
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

// A kept is a record as it was read.
type kept struct {
	id                     ID
	subscription, progress string
}

func (k *kept) decode() (Record, error) {
	r, err := decodeRecord([]byte(k.subscription), []byte(k.progress))
	if err != nil {
		return r, fmt.Errorf("%w, %v: %w", ErrRecord, k.id, err)
	}
	return r, nil
}

// scan reads records of some shards whose IDs fit a pattern, from a cursor of
// each on until the last. It calls do with what it found, which may meet one
// twice, until do returns false.
func (r *Redis) scan(ctx context.Context, first, n int, pattern string, do func([]kept) bool) error {
	type place struct {
		shard  int
		cursor string
	}
	places := make([]place, n)
	for i := range places {
		places[i] = place{first + i, "0"}
	}
	for len(places) > 0 {
		var some []kept
		var bad error
		at := places
		places = nil
		err := r.runAll(ctx, r.scans, len(at), func(i int) ([]string, []any) {
			return []string{r.recordsKey(at[i].shard), r.progressKey(at[i].shard)}, []any{at[i].cursor, pattern, scanCount}
		}, func(i int, answer *redis.Cmd) {
			parts, err := answer.StringSlice()
			for k := 1; err == nil && k+2 < len(parts); k += 3 {
				if len(parts[k]) != len(ID{}) {
					err = fmt.Errorf("%w: a subscription with the ID %q", changelog.ErrCorrupt, parts[k])
					break
				}
				some = append(some, kept{ID([]byte(parts[k])), parts[k+1], parts[k+2]})
			}
			if err != nil {
				bad = err
			} else if parts[0] != "0" {
				places = append(places, place{at[i].shard, parts[0]})
			}
		})
		if err := errors.Join(err, bad); err != nil {
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
				if more = yield(some[i].decode()); !more {
					return false
				}
			}
			return true
		})
		if err != nil && more {
			yield(Record{}, r.missed(ctx, err, "load shard %d", shard))
		}
	}
}

// maxShards bounds how many shards List looks through at once.
const maxShards = 32

// List returns records of one set in the order of their IDs. It looks through
// more shards at once as long as it finds little.
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
			if record, err = some[i].decode(); record.Set != set { // few sets share a mark
				continue
			}
			if more = len(records) == limit; !more {
				records = append(records, record)
			}
		}
		if err != nil {
			return nil, false, r.missed(ctx, err, "list the subscriptions of set %q", set)
		}
		shard, shards = shard+shards, min(2*shards, maxShards)
	}
	return records, more, nil
}

// literal makes a text mean itself in a pattern of Redis.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)
