package access

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rshub/rshub/internal/problem"
)

// TicketKeys provides the keys that encrypt tickets. There is one key per hour, so a stolen key is
// soon useless. Hubs that accept the tickets of each other share the keys.
type TicketKeys interface {
	// TicketKey returns the 32-byte key of an hour, counted since 1970. It creates the key if
	// necessary. It blocks at most until ctx is done.
	TicketKey(ctx context.Context, hour int64) ([]byte, error)
}

// Tickets issues and verifies tickets. A browser cannot send a token with an EventSource or a
// WebSocket, so a caller with a token gives it a ticket: a short-lived text for a URL or a cookie.
// The holder of a ticket may follow one set, or all sets, with the rights of the caller, and nothing
// else.
//
// A new request needs a ticket that has not expired. A request in progress may continue after that.
// It ends when the rights of the caller end: when the token that requested the ticket is withdrawn,
// is replaced or expires.
type Tickets struct {
	callers Authenticator
	keys    TicketKeys

	mu    sync.Mutex
	cache map[int64]cachedKey // recently read keys by hour
}

// A cachedKey is a key and the time when it was read.
type cachedKey struct {
	aead cipher.AEAD
	at   time.Time
}

// Lifetimes of tickets.
const (
	DefaultTicketLifetime = 5 * time.Minute
	MaxTicketLifetime     = time.Hour
)

// keyCacheTime is how long a key is cached. It is short because after a failover of Redis, another
// key may be stored for the hour.
const keyCacheTime = 10 * time.Second

// maxTicket is the maximum size of the text of a ticket in bytes.
const maxTicket = 4096

// NewTickets returns Tickets for the callers of an Authenticator.
func NewTickets(callers Authenticator, keys TicketKeys) *Tickets {
	return &Tickets{callers: callers, keys: keys, cache: map[int64]cachedKey{}}
}

// A ticket is the decrypted content of the text of a ticket.
type ticket struct {
	Set     string   `json:"s"`           // empty if the ticket is for all sets
	Name    string   `json:"n"`           // name of the caller
	Mark    uint64   `json:"m,omitempty"` // Caller.TokenID
	Key     string   `json:"k,omitempty"` // Caller.Key
	Own     bool     `json:"o,omitempty"` // whether the caller itself may follow the set, even if it is private
	Expires int64    `json:"e"`           // end of validity for new requests, in seconds since 1970
	Follow  []string `json:"f,omitempty"` // if Set is empty, the caller's own patterns of sets to follow
	Ends    int64    `json:"u,omitempty"` // expiry of the JWT of the caller, in seconds since 1970; 0 if the caller has no JWT
}

// New issues a ticket for a caller, which must have a name and the right to follow the set, or for all
// sets that the caller may follow if set is empty. It also returns when the ticket expires: after the
// given lifetime, or earlier if the rights of the caller end earlier. The error is a problem if the
// caller has too many rights for a ticket.
func (t *Tickets) New(ctx context.Context, c Caller, set string, lifetime time.Duration) (text string, expires time.Time, err error) {
	now := time.Now()
	expires = now.Add(lifetime)
	k := ticket{Set: set, Name: c.Name, Mark: c.TokenID, Key: c.Key}
	if set == "" {
		k.Follow = c.Rights.follow
	} else {
		k.Own = c.Rights.FollowPrivate(set)
	}
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
		return "", time.Time{}, fmt.Errorf("issue ticket: %w", err)
	}
	hour := hourOf(now)
	aead, err := t.cipher(ctx, hour)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("issue ticket: %w", err)
	}
	text = base64.RawURLEncoding.EncodeToString(aead.Seal([]byte{byte(hour)}, nil, plain, ticketUse))
	if len(text) > maxTicket {
		return "", time.Time{}, problem.New(http.StatusRequestEntityTooLarge, "too-large", fmt.Sprintf("your token names %d sets to follow, too many for one ticket; request a ticket for each set", len(k.Follow)))
	}
	return text, expires, nil
}

// ticketUse is the additional data that the encryption of each ticket authenticates.
var ticketUse = []byte("rshub ticket")

func hourOf(t time.Time) int64 { return t.Unix() / 3600 }

// Caller returns the caller of a ticket. This caller may follow the sets of the ticket, and has the
// rights of callers without a token, and nothing else. The error is the problem for the response.
func (t *Tickets) Caller(ctx context.Context, text string) (Caller, error) {
	invalid := InvalidToken("the ticket is invalid or has expired; get a new one by POST to the ticket URL of the set")
	if len(text) > maxTicket {
		return Caller{}, invalid
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(sealed) < 1 {
		return Caller{}, invalid
	}
	// A ticket contains the low eight bits of the hour in which it was issued. That hour is
	// at most MaxTicketLifetime ago, or slightly ahead if the clocks of hubs differ.
	now := time.Now()
	hour := hourOf(now) + 1
	for byte(hour) != sealed[0] {
		if hour--; hour < hourOf(now.Add(-MaxTicketLifetime)) {
			return Caller{}, invalid
		}
	}
	aead, err := t.cipher(ctx, hour)
	if err != nil {
		return Caller{}, fmt.Errorf("verify ticket: %w", err)
	}
	plain, err := aead.Open(nil, nil, sealed[1:], ticketUse)
	if err != nil {
		return Caller{}, invalid
	}
	var k ticket
	if err := json.Unmarshal(plain, &k); err != nil || now.Unix() >= k.Expires {
		return Caller{}, invalid
	}
	return t.callerOf(k)
}

// callerOf returns the caller of a ticket with its current rights.
func (t *Tickets) callerOf(k ticket) (Caller, error) {
	ends := time.Time{}
	if k.Ends != 0 {
		if ends = time.Unix(k.Ends, 0).UTC(); !time.Now().Before(ends) {
			return Caller{}, ExpiredToken()
		}
	}
	c, ok := t.callers.CallerByName(k.Name, k.Key)
	if !ok || c.TokenID != k.Mark {
		return Caller{}, InvalidToken("the token that requested the ticket is no longer valid")
	}
	c.Rights, c.Ticket = Rights{anyone: c.Rights.anyone, follow: c.Rights.followOnly(k)}, true
	if !ends.IsZero() { // only the issuer knows the rights of the next JWT, see Authenticator.CallerByName
		c.Expires = ends
	}
	c.refresh = func() (Caller, error) { return t.callerOf(k) }
	return c, nil
}

// followOnly returns the patterns of a ticket that the rights still allow to follow. The rights of
// anyone do not count.
func (r Rights) followOnly(k ticket) (follow []string) {
	patterns := k.Follow
	if k.Own {
		patterns = []string{k.Set}
	}
	for _, p := range patterns {
		if matchesAny(r.follow, p) { // also reports whether a pattern covers a pattern
			follow = append(follow, p)
		}
	}
	return follow
}

// cipher returns the cipher with the key of an hour.
func (t *Tickets) cipher(ctx context.Context, hour int64) (cipher.AEAD, error) {
	now := time.Now()
	t.mu.Lock()
	k, ok := t.cache[hour]
	t.mu.Unlock()
	if ok && now.Sub(k.at) < keyCacheTime {
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
	for old := range t.cache {
		if old < hour-2 {
			delete(t.cache, old)
		}
	}
	t.cache[hour] = cachedKey{aead, now}
	return aead, nil
}
