package redisconn

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Try is one try of a step of a Call: its methods send commands to Redis. It must not be used
// after the step returns. Its errors are raw: the step returns them, and Do translates them. The
// methods only read unless their comments state otherwise.
type Try struct {
	conn     *Conn
	node     redis.UniversalClient // where commands are sent: all of Redis, or one server
	ctx      context.Context       // for commands that only read
	writeCtx context.Context       // for commands that may write: the Call records lost replies
}

// EachMaster calls do for each master, with a Try that sends to that server alone. In a Cluster the
// calls run concurrently. It returns the first error.
func (t *Try) EachMaster(do func(*Try) error) error {
	if t.conn.cluster == nil {
		return do(t)
	}
	return t.conn.cluster.ForEachMaster(t.ctx, func(_ context.Context, node *redis.Client) error {
		on := *t
		on.node = node
		return do(&on)
	})
}

// Info returns the output of INFO. In a Cluster it must be called within EachMaster.
func (t *Try) Info() (string, error) { return t.node.Info(t.ctx).Result() }

// Slots returns the number of slots of a Cluster that a server serves.
func (t *Try) Slots() (int, error) {
	text, err := t.node.ClusterNodes(t.ctx).Result()
	if err != nil {
		return 0, err
	}
	slots := 0
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 8 || !slices.Contains(strings.Split(fields[2], ","), "myself") {
			continue
		}
		for _, field := range fields[8:] {
			if strings.HasPrefix(field, "[") { // a slot that is being migrated
				continue
			}
			first, last, isRange := strings.Cut(field, "-")
			if !isRange {
				last = first
			}
			from, err := strconv.Atoi(first)
			to, err2 := strconv.Atoi(last)
			if err := errors.Join(err, err2); err != nil {
				return 0, err
			}
			slots += to - from + 1
		}
	}
	return slots, nil
}

// MemoryUsage returns the approximate memory usage of keys together, in one round trip. A missing
// key uses none. All keys must be in one slot.
func (t *Try) MemoryUsage(keys []string) (bytes int64, err error) {
	replies := make([]*redis.IntCmd, len(keys))
	_, err = t.node.Pipelined(t.ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			replies[i] = p.MemoryUsage(t.ctx, key)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, err
	}
	for _, r := range replies {
		n, err := r.Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return 0, err
		}
		bytes += n
	}
	return bytes, nil
}

// HKeys returns the names of the fields of a hash, in no particular order.
func (t *Try) HKeys(key string) ([]string, error) { return t.node.HKeys(t.ctx, key).Result() }

// HMGet returns fields of a hash, nil for a missing field.
func (t *Try) HMGet(key string, fields ...string) (Answer, error) {
	return t.node.HMGet(t.ctx, key, fields...).Result()
}

// HMGetAll is HMGet for many hashes, in one round trip. The answer is nil for a hash that could not
// be read, and the error is from the first of them.
func (t *Try) HMGetAll(keys []string, fields ...string) ([]Answer, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	replies := make([]*redis.SliceCmd, len(keys))
	_, err := t.node.Pipelined(t.ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			replies[i] = p.HMGet(t.ctx, key, fields...)
		}
		return nil
	})
	answers := make([]Answer, len(keys))
	for i, reply := range replies {
		if reply.Err() == nil {
			answers[i] = reply.Val()
		}
	}
	return answers, err
}

// HMGetEach is HMGet for many hashes of one slot, each with its own fields, in one round trip.
// Redis reads them in order.
func (t *Try) HMGetEach(keys []string, fields [][]string) ([]Answer, error) {
	replies := make([]*redis.SliceCmd, len(keys))
	if _, err := t.node.Pipelined(t.ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			replies[i] = p.HMGet(t.ctx, key, fields[i]...)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	answers := make([]Answer, len(keys))
	for i, reply := range replies {
		answers[i] = reply.Val()
	}
	return answers, nil
}

// ZRem removes a member of a sorted set. It writes, without waiting for replicas.
func (t *Try) ZRem(key, member string) error { return t.node.ZRem(t.writeCtx, key, member).Err() }

// A Message is an entry of a stream.
type Message struct {
	ID    string
	Value string // value of the requested field; "" if the entry does not have it
}

// XRange returns the oldest messages of a stream after an ID, at most limit, with one field of
// each.
func (t *Try) XRange(key, after, field string, limit int) ([]Message, error) {
	found, err := t.node.XRangeN(t.ctx, key, "("+after, "+", int64(limit)).Result()
	if err != nil {
		return nil, err
	}
	messages := make([]Message, len(found))
	for i, m := range found {
		value, _ := m.Values[field].(string)
		messages[i] = Message{m.ID, value}
	}
	return messages, nil
}

// XNewest returns the ID of the newest message of each stream, "" for an empty one, in one round
// trip. If some nodes fail, it returns the IDs of the other nodes and the error.
func (t *Try) XNewest(keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	replies := make([]*redis.XMessageSliceCmd, len(keys))
	_, err := t.node.Pipelined(t.ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			replies[i] = p.XRevRangeN(t.ctx, key, "+", "-", 1)
		}
		return nil
	})
	ids := make([]string, len(keys))
	for i, reply := range replies {
		if found := reply.Val(); len(found) > 0 {
			ids[i] = found[0].ID
		}
	}
	return ids, err
}
