package ticket

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/redisconn"
)

// LocalKeys are the access.TicketKeys of a single hub.
type LocalKeys [32]byte

// NewLocalKeys returns random keys. Since a hub creates new ones at each start, its older tickets
// are then invalid.
func NewLocalKeys() *LocalKeys {
	k := &LocalKeys{}
	_, _ = rand.Read(k[:]) // never fails
	return k
}

// TicketKey returns a key derived from the key of the process.
func (k *LocalKeys) TicketKey(_ context.Context, hour int64) ([]byte, error) {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(k[:], uint64(hour)))
	return sum[:], nil
}

// SharedKeys are the access.TicketKeys of all hubs that share a Redis. Each key is a string in
// Redis, PREFIX:ticket-key:HOUR, which expires when no ticket needs it any longer.
type SharedKeys struct {
	Conn   *redisconn.Conn
	Prefix string
}

// keyScript returns the key of an hour, and creates it if necessary. It does not wait for replicas:
// if a key is lost, its tickets are invalid, and clients get new ones.
var keyScript = redisconn.NewScript(`
local key = redis.call('GET', KEYS[1])
if not key then
  key = ARGV[1]
  redis.call('SET', KEYS[1], key, 'EX', ARGV[2])
end
return key`, func(redisconn.Answer) bool { return false })

// TicketKey returns the key in Redis.
func (k *SharedKeys) TicketKey(ctx context.Context, hour int64) (key []byte, err error) {
	fresh := NewLocalKeys()
	err = k.Conn.ReadCall().Do(ctx, func(t *redisconn.Try) error {
		answer, err := t.Run(keyScript, []string{k.Prefix + ":ticket-key:" + strconv.FormatInt(hour, 10)}, string(fresh[:]), int64(2*(access.MaxTicketLifetime+time.Hour)/time.Second))
		if key = []byte(answer.Word()); err == nil && len(key) != len(fresh) {
			err = fmt.Errorf("got %d bytes, want 32", len(key))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("get ticket key from Redis: %w", err)
	}
	return key, nil
}
