// Package subscription defines the stored form of subscriptions, of their progress, and of the
// requests that wait to be carried out. It also defines the registries that store them, on disk or
// in Redis.
//
// Subscriptions are divided into shards. One hub at a time works on a shard: the hub that holds its
// claim (package internal/claim). Every write to a shard is fenced by that claim.
//
// The package delivers nothing and decides nothing about requests; package callback does. The
// contract of a registry is the test suite in package registrytest. The package carries no
// compatibility promise.
package subscription

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// Shards is the number of shards. It must never change, because the ID of a
// subscription names its shard.
const Shards = 256

// An ID names a subscription. It is made from the pair of topic and callback,
// by which WebSub identifies a subscription (section 5.1). Its first byte is
// the shard. The next four bytes depend only on the set, so that the
// subscriptions of a set are next to each other in a shard.
type ID [16]byte

// NewID returns the ID of a subscription to a set's changes in a form, with a callback: see
// Subscription.Form. Callbacks are compared byte by byte.
func NewID(set, form, callback string) (id ID) {
	topic := set
	if form != "" {
		topic += "/" + form // a set's name has no slash
	}
	sum := sha256.Sum256([]byte(topic + "\n" + callback)) // neither has a newline
	copy(id[:], sum[:])
	copy(id[1:], setMark(set))
	return id
}

// setMark returns the bytes that the IDs of a set have in common, after the
// shard. Two sets seldom have the same.
func setMark(set string) []byte {
	sum := sha256.Sum256([]byte(set))
	return sum[:4]
}

// ParseID reads the text that String returns. An error is a *resourcesync.Error
// with ErrInvalid.
func ParseID(s string) (id ID, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, resourcesync.Invalidf("invalid subscription ID %.80q; want 32 hexadecimal digits", s)
	}
	copy(id[:], b)
	return id, nil
}

// String returns the ID as 32 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText returns what String does, for logs.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// after reports whether id comes after other in the order of IDs.
func (id ID) after(other ID) bool { return bytes.Compare(id[:], other[:]) > 0 }

// Shard returns the shard of the subscription, from 0 to Shards-1.
func (id ID) Shard() int { return int(id[0]) }

// A Subscription is what a subscriber asked for and has confirmed. It changes
// only when a request of the subscriber or of an operator is carried out.
type Subscription struct {
	Set      string `json:"set"`
	Form     string `json:"form,omitempty"` // of what is delivered, as feed.Base.TopicIn names it; empty: change notifications
	Callback string `json:"callback"`       // exactly as the subscriber gave it
	Terms
	Former   string    `json:"former,omitempty"` // the secret before, which signs too until FormerEnd
	LeaseEnd time.Time `json:"leaseEnd"`
	Token    string    `json:"token"`            // whoever knows it may read the subscription's status
	By       string    `json:"by,omitempty"`     // who made it, see Request.By; empty: unknown, or made before this was kept
	Key      string    `json:"key,omitempty"`    // the thumbprint of the key that verified the JWT with which it was made; empty: it was no JWT
	Anyone   bool      `json:"anyone,omitempty"` // it was made with nothing but the right to follow that anyone has, also if By is of a token
	Made     time.Time `json:"made"`             // when it was first verified
	Renewed  time.Time `json:"renewed,omitzero"`

	FormerEnd time.Time `json:"formerEnd,omitzero"`
	Until     time.Time `json:"until,omitzero"` // when the token expires with which it was made; the lease ends then at the latest; zero: it does not

	// Ended is when the subscription ended because of Why. Nothing is delivered, and the next
	// request makes a new one. It is kept until LeaseEnd so that operators see it. Zero: it
	// has not ended.
	Ended time.Time `json:"ended,omitzero"`
	Why   string    `json:"why,omitempty"`

	// Sealed is the ID of the key that Secret and Former are encrypted with, if this hub does
	// not have that key. Then they are of no use here. Empty: they are in clear.
	//
	// A hub of a version that does not know this member signs with what is encrypted, so no
	// callback takes its deliveries for genuine ones.
	Sealed string `json:"sealed,omitempty"`
	Stale  bool   `json:"-"` // read from a registry: the secrets are to be encrypted anew, with the first key
}

// FormerFor is how long the secret before a renewal with another one goes on to sign, too.
const FormerFor = 24 * time.Hour

// Secrets returns the secret that signs, and the former one that signs too at this moment.
// Both are empty when there are none, or this hub has no key to them.
func (s *Subscription) Secrets(now time.Time) (secret, former string) {
	if s.Sealed != "" {
		return "", ""
	}
	if now.Before(s.FormerEnd) {
		former = s.Former
	}
	return s.Secret, former
}

// ID returns the subscription's ID.
func (s *Subscription) ID() ID { return NewID(s.Set, s.Form, s.Callback) }

// A Progress says how far deliveries to a subscription got. It is saved while
// deliveries go on, so it may be behind them. After a crash, the deliveries
// since the last save are repeated.
type Progress struct {
	Cursor   feed.Cursor `json:"cursor"`            // of the last change that was delivered, or left out by the filter
	From     feed.Cursor `json:"from,omitzero"`     // where the next delivery's interval begins, if a filter has moved Cursor on since the last delivery; zero: at Cursor
	Gap      feed.Cursor `json:"gap,omitzero"`      // if the memory overran the subscription: the cursor that it had reached before; kept until a delivery has said so
	Gaps     int         `json:"gaps,omitempty"`    // how often the memory overran it
	Diverged bool        `json:"diverged,omitzero"` // the log had lost its tail; kept until a delivery has said so
	Delivery uint64      `json:"delivery,omitzero"` // number of the newest delivery; zero if there was none
	Failed   int         `json:"failed,omitempty"`  // number of attempts since the last success
	Next     time.Time   `json:"next,omitzero"`     // after a failure, the earliest time of the next attempt
	Last     []Attempt   `json:"last,omitempty"`    // the newest attempts, oldest first, at most MaxAttempts
}

// An Attempt is one request to a callback, and its outcome.
type Attempt struct {
	At      time.Time     `json:"at"`
	Kind    string        `json:"kind"`              // deliver, subscribe, unsubscribe or denied
	Status  int           `json:"status,omitempty"`  // status of the HTTP answer; 0 when there was none
	Took    time.Duration `json:"took"`              // in nanoseconds
	Changes int           `json:"changes,omitempty"` // number of changes that were delivered
	Error   string        `json:"error,omitempty"`   // why it failed, without secrets
}

// MaxAttempts bounds how many attempts are kept of one subscription.
const MaxAttempts = 10

// Errors by which callers decide.
var (
	// ErrRecord means that one subscription cannot be read. It says nothing
	// about the others.
	ErrRecord = errors.New("invalid subscription record")

	// ErrNoSubscription means that there is no such subscription.
	ErrNoSubscription = &feed.Error{Code: "no-such-subscription", Status: 404, Text: "no such subscription",
		Detail: "this callback has no subscription to this topic"}

	// ErrBusy means that too many requests wait in a shard's inbox.
	ErrBusy = &feed.Error{Code: "busy", Status: 503, RetryAfter: 60, Text: "too many pending requests",
		Detail: "too many requests about subscriptions are pending; try again in a minute"}
)
