package access

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

// TicketKeys are the keys that tickets are encrypted with. There is one for each hour, so
// a copy of a key is of no use for long. All hubs that take each other's tickets have the
// same.
type TicketKeys interface {
	// TicketKey returns the key of an hour, counted from the year 1970: 32 bytes. It makes
	// the key if there is none. It blocks until ctx is done at most.
	TicketKey(ctx context.Context, hour int64) ([]byte, error)
}

// Tickets are what callers with a token give to a browser, which can send no token with an
// EventSource or a WebSocket: a short-lived text for a URL or a cookie. With it somebody
// may follow one set, as the caller may, and do nothing else.
//
// A ticket is good for requests until it expires. What a request has begun goes on as
// long as the rights of the caller do: it ends when the token that the ticket was made with
// is withdrawn, replaced or expires.
type Tickets struct {
	callers Authenticator
	keys    TicketKeys

	mu   sync.Mutex
	read map[int64]readKey // by hour
}

// A readKey is a key, and when it was read.
type readKey struct {
	aead cipher.AEAD
	at   time.Time
}

// How long a ticket lasts.
const (
	TicketLasts = 5 * time.Minute
	TicketMost  = time.Hour
)

// keyFor is how long a key that was read is used. After a failover of Redis another key may
// be there.
const keyFor = 10 * time.Second

// maxTicket bounds the text of a ticket, in bytes.
const maxTicket = 4096

// NewTickets returns the tickets for the callers of an Authenticator.
func NewTickets(callers Authenticator, keys TicketKeys) *Tickets {
	return &Tickets{callers: callers, keys: keys, read: map[int64]readKey{}}
}

// A ticket is what the text of a ticket says.
type ticket struct {
	Set     string `json:"s"`
	Name    string `json:"n"`           // of the caller
	Mark    uint64 `json:"m,omitempty"` // Caller.Mark
	Own     bool   `json:"o,omitempty"` // the caller may follow the set, though it were private
	Expires int64  `json:"e"`           // when no request may begin any more, in seconds since 1970
	Ends    int64  `json:"u,omitempty"` // of a JWT: when the rights of the caller end, as Expires; 0: the caller has another token
}

// New returns a ticket of a caller, who has a name and may follow the set, and when it
// expires. It lasts at most as long as the rights of the caller.
func (t *Tickets) New(ctx context.Context, c Caller, set string, lasts time.Duration) (text string, expires time.Time, err error) {
	now := time.Now()
	expires = now.Add(lasts)
	k := ticket{Set: set, Name: c.Name, Mark: c.Mark, Own: c.Rights.FollowPrivate(set)}
	if !c.Expires.IsZero() && c.Expires.Before(expires) {
		expires = c.Expires
	}
	if strings.HasPrefix(c.Name, JWTPrefix) {
		k.Ends = c.Expires.Unix()
	}
	expires = expires.UTC().Truncate(time.Second)
	k.Expires = expires.Unix()
	plain, err := json.Marshal(k)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("make a ticket: %w", err)
	}
	hour := hourOf(now)
	aead, err := t.key(ctx, hour)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("make a ticket: %w", err)
	}
	sealed := aead.Seal([]byte{byte(hour)}, nil, plain, ticketUse)
	return base64.RawURLEncoding.EncodeToString(sealed), expires, nil
}

// ticketUse is authenticated with each ticket.
var ticketUse = []byte("rshub ticket")

func hourOf(t time.Time) int64 { return t.Unix() / 3600 }

// Caller returns the caller that a ticket stands for. It may follow the set of the ticket
// and do what anyone may. The error is the problem to answer with.
func (t *Tickets) Caller(ctx context.Context, text string) (Caller, error) {
	wrong := Unknown("the ticket is not from this hub, or has expired; send a POST to the ticket URL of the set to get one")
	if len(text) > maxTicket {
		return Caller{}, wrong
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(sealed) < 1 {
		return Caller{}, wrong
	}
	// A ticket says the last eight bits of the hour it was made in. It was not longer ago
	// than TicketMost, or ahead by a little where the clocks of hubs differ.
	now := time.Now()
	hour := hourOf(now) + 1
	for byte(hour) != sealed[0] {
		if hour--; hour < hourOf(now.Add(-TicketMost)) {
			return Caller{}, wrong
		}
	}
	aead, err := t.key(ctx, hour)
	if err != nil {
		return Caller{}, fmt.Errorf("read a ticket: %w", err)
	}
	plain, err := aead.Open(nil, nil, sealed[1:], ticketUse)
	if err != nil {
		return Caller{}, wrong
	}
	var k ticket
	if err := json.Unmarshal(plain, &k); err != nil || now.Unix() >= k.Expires {
		return Caller{}, wrong
	}
	return t.now(k)
}

// now returns the caller of a ticket with the rights that it has at this moment.
func (t *Tickets) now(k ticket) (Caller, error) {
	ends := time.Time{}
	if k.Ends != 0 {
		if ends = time.Unix(k.Ends, 0).UTC(); !time.Now().Before(ends) {
			return Caller{}, Expired()
		}
	}
	c, ok := t.callers.Named(k.Name)
	if !ok || c.Mark != k.Mark {
		return Caller{}, Unknown("the token that the ticket was made with is not valid any more")
	}
	c.Rights = Rights{anyone: c.Rights.anyone, follow: c.Rights.only(k.Set, k.Own)}
	if !ends.IsZero() { // of the next JWT nothing is known here, see Authenticator.Named
		c.Expires = ends
	}
	c.now = func() (Caller, error) { return t.now(k) }
	return c, nil
}

// only returns the one right to follow a set, if it is among the rights of its own.
func (r Rights) only(set string, own bool) []string {
	if own && r.FollowPrivate(set) {
		return []string{set}
	}
	return nil
}

// key returns the key of an hour.
func (t *Tickets) key(ctx context.Context, hour int64) (cipher.AEAD, error) {
	now := time.Now()
	t.mu.Lock()
	k, ok := t.read[hour]
	t.mu.Unlock()
	if ok && now.Sub(k.at) < keyFor {
		return k.aead, nil
	}
	key, err := t.keys.TicketKey(ctx, hour)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for old := range t.read {
		if old < hour-2 {
			delete(t.read, old)
		}
	}
	t.read[hour] = readKey{aead, now}
	return aead, nil
}
