// Package cursors keeps how far sets are published to somebody who does not ask for it, such as
// the nodes of an XMPP server, in the store of the change memory. Only the hub that has a claim
// may move a cursor.
package cursors

import (
	"context"
	"fmt"

	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
)

// Cursors keep how far each set is published. Their methods block until the store has answered
// or ctx is done. Their errors are those of the change memory.
type Cursors interface {
	// Get returns what was put for a set. ok is false if nothing was.
	Get(ctx context.Context, set string) (at feed.Cursor, ok bool, err error)

	// Put replaces it. It is durable when Put returns nil. If the claim does not hold any
	// more, Put returns claim.ErrLost and changes nothing.
	Put(ctx context.Context, c claim.Claim, set string, at feed.Cursor) error
}

// A Fence runs writes only while a claim holds. claim.Local is one.
type Fence interface {
	Under(c claim.Claim, do func() error) error
}

// OnDisk returns the Cursors in a Keep, where each set has a key that begins with "cursor/".
func OnDisk(keep claim.Keep, fence Fence) Cursors { return disk{keep, fence} }

type disk struct {
	keep  claim.Keep
	fence Fence
}

func (d disk) Get(ctx context.Context, set string) (feed.Cursor, bool, error) {
	text, err := d.keep.Get(ctx, "cursor/"+set)
	if err != nil || text == nil {
		return feed.Cursor{}, false, err
	}
	return parse(set, string(text))
}

func (d disk) Put(ctx context.Context, c claim.Claim, set string, at feed.Cursor) error {
	return d.fence.Under(c, func() error {
		return d.keep.Apply(ctx, map[string][]byte{"cursor/" + set: at.Append(nil)}, false)
	})
}

// InRedis returns the Cursors in Redis: a hash beside the claim on shard 0 of a kind, with a field
// for each set. Its key is {KIND/0}:cursors, behind the prefix and a colon. The owner of conn
// closes it.
func InRedis(conn *redisconn.Conn, prefix, kind string) Cursors {
	return inRedis{conn, claim.RedisKey(prefix, kind, 0), prefix + ":{" + kind + "/0}:cursors"}
}

type inRedis struct {
	conn       *redisconn.Conn
	claim, key string
}

func (r inRedis) Get(ctx context.Context, set string) (at feed.Cursor, ok bool, err error) {
	text := ""
	err = r.conn.Reading().Do(ctx, func(t *redisconn.Try) error {
		a, err := t.HMGet(r.key, set)
		if err == nil && len(a) == 1 && a[0] != nil {
			text = a.Text(0)
		}
		return err
	})
	if err != nil {
		return feed.Cursor{}, false, fmt.Errorf("read how far set %q is published: %w", set, err)
	}
	if text == "" {
		return feed.Cursor{}, false, nil
	}
	return parse(set, text)
}

func (r inRedis) Put(ctx context.Context, c claim.Claim, set string, at feed.Cursor) error {
	done := false
	err := r.conn.Writing().Do(ctx, func(t *redisconn.Try) error {
		a, err := t.Run(put, []string{r.claim, r.key}, c.Holder, c.Number, set, at.String())
		done = err == nil && a.Number(0) == 1
		return err
	})
	if err == nil && !done {
		err = claim.ErrLost
	}
	if err != nil {
		return fmt.Errorf("keep how far set %q is published: %w", set, err)
	}
	return nil
}

// put sets a field while a claim holds. To run it twice does no harm.
var put = redisconn.NewScript(`
local c = redis.call('HMGET', KEYS[1], 'hub', 'number')
if c[1] ~= ARGV[1] or c[2] ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[2], '') -- removes nothing, but after a command that removes, Redis accepts the write even when it is full
redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
return 1
`, func(a redisconn.Answer) bool { return a.Number(0) == 1 })

func parse(set, text string) (feed.Cursor, bool, error) {
	at, err := feed.ParseCursor(text)
	if err != nil {
		return feed.Cursor{}, false, fmt.Errorf("how far set %q is published: %w", set, err)
	}
	return at, true, nil
}

// Copy copies the cursors of sets. claims are the claims beside to, which nobody else uses.
func Copy(ctx context.Context, sets []string, from, to Cursors, claims claim.Store) error {
	found := map[string]feed.Cursor{}
	for _, set := range sets {
		at, ok, err := from.Get(ctx, set)
		if err != nil {
			return err
		}
		if ok {
			found[set] = at
		}
	}
	if len(found) == 0 {
		return nil
	}
	got, err := claims.Acquire(ctx, []int{0})
	if err != nil {
		return err
	}
	if len(got) == 0 {
		return fmt.Errorf("copy how far sets are published: a hub has the claim there: stop it first")
	}
	for set, at := range found {
		if err := to.Put(ctx, got[0], set, at); err != nil {
			return err
		}
	}
	return claims.Release(ctx, got)
}
