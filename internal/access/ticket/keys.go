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

// OwnKeys are access.TicketKeys of one hub alone.
type OwnKeys [32]byte

// NewOwnKeys returns keys that no other hub has. A hub makes new ones at each start, so its
// older tickets are then no longer valid.
func NewOwnKeys() *OwnKeys {
	k := &OwnKeys{}
	_, _ = rand.Read(k[:]) // it never fails
	return k
}

// TicketKey returns a key that is derived from the one of this process.
func (k *OwnKeys) TicketKey(_ context.Context, hour int64) ([]byte, error) {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(k[:], uint64(hour)))
	return sum[:], nil
}

// SharedKeys are access.TicketKeys of all hubs that share a Redis. Each key is a string in
// Redis, PREFIX:ticket-key:HOUR, which expires when no ticket needs it any more.
type SharedKeys struct {
	Conn   *redisconn.Conn
	Prefix string
}

// keyScript returns the key of an hour, and makes it if there is none. It does not wait for
// replicas: if a key is lost, its tickets are no longer valid, and clients get new ones.
var keyScript = redisconn.NewScript(`
local key = redis.call('GET', KEYS[1])
if not key then
  key = ARGV[1]
  redis.call('SET', KEYS[1], key, 'EX', ARGV[2])
end
return key`, func(redisconn.Answer) bool { return false })

// TicketKey returns the key that is in Redis.
func (k *SharedKeys) TicketKey(ctx context.Context, hour int64) (key []byte, err error) {
	fresh := NewOwnKeys()
	err = k.Conn.ReadCall().Do(ctx, func(t *redisconn.Try) error {
		answer, err := t.Run(keyScript, []string{k.Prefix + ":ticket-key:" + strconv.FormatInt(hour, 10)}, string(fresh[:]), int64(2*(access.TicketMost+time.Hour)/time.Second))
		if key = []byte(answer.Word()); err == nil && len(key) != len(fresh) {
			err = fmt.Errorf("the key of tickets in Redis has %d bytes", len(key))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("get the key of tickets: %w", err)
	}
	return key, nil
}
