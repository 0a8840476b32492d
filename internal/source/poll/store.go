package poll

import (
	"context"
	"fmt"

	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/redisconn"
)

// namesOf returns the names of all that is stored of a set.
func namesOf(set string) []string { return []string{set, stateOf(set), pingOf(set)} }

// Copy copies what is stored of a set.
func Copy(ctx context.Context, from, to Outcomes, set string) error {
	for _, name := range namesOf(set) {
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

// OnDisk returns the Outcomes in a Keep. Each set has a key.
func OnDisk(keep claim.Keep) Outcomes { return disk{keep} }

type disk struct{ keep claim.Keep }

func (d disk) Get(ctx context.Context, set string) ([]byte, error) { return d.keep.Get(ctx, set) }

func (d disk) Put(ctx context.Context, set string, text []byte) error {
	return d.keep.Apply(ctx, map[string][]byte{set: text}, text != nil)
}

// InRedis returns the Outcomes in Redis: a hash, behind the prefix and a colon, named
// sources, with a field for each set. The owner of conn closes it.
func InRedis(conn *redisconn.Conn, prefix string) Outcomes {
	return inRedis{conn, prefix + ":sources"}
}

type inRedis struct {
	conn *redisconn.Conn
	key  string
}

func (r inRedis) Get(ctx context.Context, set string) (text []byte, err error) {
	err = r.conn.Reading().Do(ctx, func(t *redisconn.Try) error {
		a, err := t.HMGet(r.key, set)
		if err == nil && len(a) == 1 && a[0] != nil {
			text = []byte(a.Text(0))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the outcome of the last poll of the source of set %q: %w", set, err)
	}
	return text, nil
}

func (r inRedis) Put(ctx context.Context, set string, text []byte) error {
	err := r.conn.Writing().Do(ctx, func(t *redisconn.Try) error {
		_, err := t.Run(put, []string{r.key}, set, string(text))
		return err
	})
	if err != nil {
		return fmt.Errorf("store the outcome of the last poll of the source of set %q: %w", set, err)
	}
	return nil
}

// put sets or removes a field. Running it twice does no harm.
var put = redisconn.NewScript(`
if ARGV[2] == '' then
	return redis.call('HDEL', KEYS[1], ARGV[1])
end
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
`, func(redisconn.Answer) bool { return true })

// PingsInRedis returns the Pings in Redis: a hash, behind the prefix and a colon, named
// sources:pings, with a field for each set. The owner of conn closes it.
func PingsInRedis(conn *redisconn.Conn, prefix string) Pings {
	return pings{conn, prefix + ":sources:pings"}
}

type pings struct {
	conn *redisconn.Conn
	key  string
}

func (p pings) Add(ctx context.Context, set string) error {
	return p.put(ctx, "1", set)
}

func (p pings) put(ctx context.Context, text, set string) error {
	err := p.conn.Writing().Do(ctx, func(t *redisconn.Try) error {
		_, err := t.Run(put, []string{p.key}, set, text)
		return err
	})
	if err != nil {
		return fmt.Errorf("store a ping for set %q: %w", set, err)
	}
	return nil
}

// Take removes a ping before the look at the source, so that a ping during the look
// begins another look.
func (p pings) Take(ctx context.Context, mine func(set string) bool) (taken []string, err error) {
	var sets []string
	err = p.conn.Reading().Do(ctx, func(t *redisconn.Try) error {
		sets, err = t.HKeys(p.key)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the pings: %w", err)
	}
	for _, set := range sets {
		if !mine(set) {
			continue
		}
		if err := p.put(ctx, "", set); err != nil {
			return taken, err
		}
		taken = append(taken, set)
	}
	return taken, nil
}
