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

// TicketKeys are the keys that tickets are encrypted with. There is one key for each
// hour, so a stolen key is soon useless. Hubs that accept each other's tickets share the
// keys.
type TicketKeys interface {
	// TicketKey returns the key of an hour, counted from the year 1970: 32 bytes. It
	// makes the key if there is none. It blocks at most until ctx is done.
	TicketKey(ctx context.Context, hour int64) ([]byte, error)
}

// Tickets makes and reads tickets. A browser cannot send a token with an EventSource or a
// WebSocket. So a caller with a token gives it a ticket: a short-lived text for a URL or
// a cookie. The holder of a ticket may follow one set, as the caller may, and nothing
// else.
//
// A new request needs a ticket that has not expired. A request that has begun goes on
// after that. It ends when the caller's rights end: when the token that made the ticket
// is withdrawn, is replaced or expires.
type Tickets struct {
	callers Authenticator
	keys    TicketKeys

	mu   sync.Mutex
	read map[int64]readKey // the keys that were read, by hour
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

// keyFor is how long a key that was read is used. After a failover of Redis, another key
// may be stored for the hour.
const keyFor = 10 * time.Second

// maxTicket bounds the text of a ticket, in bytes.
const maxTicket = 4096

// NewTickets returns the tickets for the callers of an Authenticator.
func NewTickets(callers Authenticator, keys TicketKeys) *Tickets {
	return &Tickets{callers: callers, keys: keys, read: map[int64]readKey{}}
}

// A ticket is the decrypted content of a ticket's text.
type ticket struct {
	Set     string `json:"s"`
	Name    string `json:"n"`           // of the caller
	Mark    uint64 `json:"m,omitempty"` // Caller.Mark
	Key     string `json:"k,omitempty"` // Caller.Key
	Own     bool   `json:"o,omitempty"` // the caller may follow the set even if it is private
	Expires int64  `json:"e"`           // until when a request may begin, in seconds since 1970
	Ends    int64  `json:"u,omitempty"` // when the rights of the caller's JWT end, in seconds since 1970; 0: the caller has no JWT
}

// New makes a ticket for a caller. The caller must have a name and the right to follow
// the set. New also returns when the ticket expires: after lasts, or earlier if the
// caller's rights end earlier.
func (t *Tickets) New(ctx context.Context, c Caller, set string, lasts time.Duration) (text string, expires time.Time, err error) {
	now := time.Now()
	expires = now.Add(lasts)
	k := ticket{Set: set, Name: c.Name, Mark: c.Mark, Key: c.Key, Own: c.Rights.FollowPrivate(set)}
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

// ticketUse is the additional data that each ticket's encryption authenticates.
var ticketUse = []byte("rshub ticket")

func hourOf(t time.Time) int64 { return t.Unix() / 3600 }

// Caller returns the caller of a ticket. This caller may follow the ticket's set and do
// what callers without a token may do, and nothing else. The error is the problem to
// answer with.
func (t *Tickets) Caller(ctx context.Context, text string) (Caller, error) {
	wrong := Unknown("the ticket is not one of this hub, or has expired; POST to the ticket URL of the set makes one")
	if len(text) > maxTicket {
		return Caller{}, wrong
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(sealed) < 1 {
		return Caller{}, wrong
	}
	// A ticket carries the last eight bits of the hour in which it was made. That hour is
	// at most TicketMost ago, or slightly ahead if the clocks of hubs differ.
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
	c, ok := t.callers.Named(k.Name, k.Key)
	if !ok || c.Mark != k.Mark {
		return Caller{}, Unknown("the token that the ticket was made with is not valid any more")
	}
	c.Rights, c.Ticket = Rights{anyone: c.Rights.anyone, follow: c.Rights.only(k.Set, k.Own)}, true
	if !ends.IsZero() { // only the issuer knows the rights of the next JWT, see Authenticator.Named
		c.Expires = ends
	}
	c.now = func() (Caller, error) { return t.now(k) }
	return c, nil
}

// only returns the set as the only one to follow, if the rights r allow that. own
// means that the caller's own rights must allow it, not only those of anyone.
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
