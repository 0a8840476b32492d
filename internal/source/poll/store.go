package poll

import (
	"context"
	"fmt"

	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/redisconn"
)

// storedNames returns all names under which something is stored for a set.
func storedNames(set string) []string { return []string{set, stateName(set), pingName(set)} }

// Copy copies everything stored for a set.
func Copy(ctx context.Context, from, to Outcomes, set string) error {
	for _, name := range storedNames(set) {
		text, err := from.Get(ctx, name)
		if err == nil && text != nil {
			err = to.Put(ctx, name, text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// DiskOutcomes returns the Outcomes in a Keep, which has a key for each set.
func DiskOutcomes(keep claim.Map) Outcomes { return diskOutcomes{keep} }

type diskOutcomes struct{ keep claim.Map }

func (d diskOutcomes) Get(ctx context.Context, set string) ([]byte, error) {
	return d.keep.Get(ctx, set)
}

func (d diskOutcomes) Put(ctx context.Context, set string, text []byte) error {
	return d.keep.Apply(ctx, map[string][]byte{set: text}, text != nil)
}

// RedisOutcomes returns the Outcomes in Redis: the hash {prefix}:sources, with a field for each
// set. The caller keeps ownership of conn and closes it.
func RedisOutcomes(conn *redisconn.Conn, prefix string) Outcomes {
	return redisOutcomes{conn, prefix + ":sources"}
}

type redisOutcomes struct {
	conn *redisconn.Conn
	key  string
}

func (r redisOutcomes) Get(ctx context.Context, set string) (text []byte, err error) {
	err = r.conn.ReadCall().Do(ctx, func(t *redisconn.Try) error {
		a, err := t.HMGet(r.key, set)
		if err == nil && len(a) == 1 && a[0] != nil {
			text = []byte(a.Text(0))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the outcome of the last poll of set %q: %w", set, err)
	}
	return text, nil
}

func (r redisOutcomes) Put(ctx context.Context, set string, text []byte) error {
	err := r.conn.WriteCall().Do(ctx, func(t *redisconn.Try) error {
		_, err := t.Run(putScript, []string{r.key}, set, string(text))
		return err
	})
	if err != nil {
		return fmt.Errorf("store the outcome of the last poll of set %q: %w", set, err)
	}
	return nil
}

// putScript sets or removes a field. It is idempotent.
var putScript = redisconn.NewScript(`
if ARGV[2] == '' then
	return redis.call('HDEL', KEYS[1], ARGV[1])
end
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
`, func(redisconn.Answer) bool { return true })

// RedisPings returns the Pings in Redis: the hash {prefix}:sources:pings, with a field for each
// set. The caller keeps ownership of conn and closes it.
func RedisPings(conn *redisconn.Conn, prefix string) Pings {
	return redisPings{conn, prefix + ":sources:pings"}
}

type redisPings struct {
	conn *redisconn.Conn
	key  string
}

func (p redisPings) Add(ctx context.Context, set string) error {
	return p.putPing(ctx, "1", set)
}

func (p redisPings) putPing(ctx context.Context, text, set string) error {
	err := p.conn.WriteCall().Do(ctx, func(t *redisconn.Try) error {
		_, err := t.Run(putScript, []string{p.key}, set, text)
		return err
	})
	if err != nil {
		return fmt.Errorf("store a ping for set %q: %w", set, err)
	}
	return nil
}

// TakeOwned removes a ping before the poll of the source, so that a ping during the poll starts
// another poll.
func (p redisPings) TakeOwned(ctx context.Context, owned func(set string) bool) (taken []string, err error) {
	var sets []string
	err = p.conn.ReadCall().Do(ctx, func(t *redisconn.Try) error {
		sets, err = t.HKeys(p.key)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read pings: %w", err)
	}
	for _, set := range sets {
		if !owned(set) {
			continue
		}
		if err := p.putPing(ctx, "", set); err != nil {
			return taken, err
		}
		taken = append(taken, set)
	}
	return taken, nil
}
