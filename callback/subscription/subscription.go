// Package subscription defines the stored form of subscriptions, of their progress and of pending
// requests, and the registries that store them, on disk or in Redis.
//
// Subscriptions are divided into shards. One hub at a time works on a shard: the hub that holds its claim
// (package internal/claim). Every write to a shard is fenced by that claim.
//
// The package delivers nothing and executes no requests; package callback does. Package registrytest is
// the contract of a registry as a test suite. The package carries no compatibility promise.
package subscription

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// Shards is the number of shards. It must never change, because the ID of a subscription contains the
// number of its shard.
const Shards = 256

// An ID identifies a subscription. It is a hash of topic and callback, which identify a subscription in
// WebSub (section 5.1). Its first byte is the shard. The next four bytes depend only on the set, so the
// subscriptions of a set are adjacent in a shard.
type ID [16]byte

// NewID returns the ID of the subscription of a callback to a set in a form: see Subscription.Form.
// Callbacks are compared byte by byte.
func NewID(set, form, callback string) (id ID) {
	topic := set
	if form != "" {
		topic += "/" + form // the name of a set has no slash
	}
	sum := sha256.Sum256([]byte(topic + "\n" + callback)) // neither has a newline
	copy(id[:], sum[:])
	copy(id[1:], setHash(set))
	return id
}

// setHash returns the bytes that follow the shard in all IDs of a set. Two sets rarely have the same.
func setHash(set string) []byte {
	sum := sha256.Sum256([]byte(set))
	return sum[:4]
}

// ParseID parses the result of String. An error is a *resourcesync.Error with ErrInvalid.
func ParseID(s string) (id ID, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, resourcesync.Invalidf("invalid subscription ID %.80q; want 32 hexadecimal digits", s)
	}
	return ID(b), nil
}

// String returns the ID as 32 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText returns the result of String, for logs.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// compare returns -1, 0 or 1 if id is less than, equal to or greater than other.
func (id ID) compare(other ID) int { return bytes.Compare(id[:], other[:]) }

// Shard returns the shard of the subscription, from 0 to Shards-1.
func (id ID) Shard() int { return int(id[0]) }

// A Subscription is the part of a subscription that changes only when a request is executed.
type Subscription struct {
	Set      string `json:"set"`
	Form     string `json:"form,omitempty"` // format of deliveries, as feed.Base.TopicIn names it; empty for change notifications
	Callback string `json:"callback"`       // exactly as the subscriber sent it
	Terms
	Former   string    `json:"former,omitempty"` // previous secret, which also signs until FormerEnd
	LeaseEnd time.Time `json:"leaseEnd"`
	Token    string    `json:"token"`            // secret part of the URL of its status
	By       string    `json:"by,omitempty"`     // its maker, see Request.By; empty if unknown
	Key      string    `json:"key,omitempty"`    // thumbprint of the key that verified the JWT of its maker; empty without a JWT
	Anyone   bool      `json:"anyone,omitempty"` // whether the right to follow that anyone has sufficed to make it
	Made     time.Time `json:"made"`             // time of the first confirmation
	Renewed  time.Time `json:"renewed,omitzero"`

	FormerEnd time.Time `json:"formerEnd,omitzero"`
	Until     time.Time `json:"until,omitzero"` // when the token of its maker expires, which ends the lease; zero if never

	// Ended is when the subscription ended, for the reason Why, or zero if it is active. An ended
	// subscription gets no deliveries, and the next request makes a new one. It is stored until LeaseEnd
	// for operators to see.
	Ended time.Time `json:"ended,omitzero"`
	Why   string    `json:"why,omitempty"`

	// Sealed is the ID of the key that Secret and Former are encrypted with, if this hub does not have
	// that key, or empty if they are in clear text. Old versions ignore it and sign with the encrypted
	// text, so callbacks reject their deliveries.
	Sealed string `json:"sealed,omitempty"`
	Stale  bool   `json:"-"` // whether the stored secrets are not encrypted with the first key; set by registries
}

// Terms are what a subscriber chooses. Only the subscriber may change them.
type Terms struct {
	Secret string        `json:"secret,omitempty"` // signs deliveries; in a Request to unsubscribe it only authenticates
	Filter feed.Filter   `json:"filter,omitzero"`
	Every  time.Duration `json:"every,omitempty"` // minimum time from the end of a burst of deliveries to the next; zero means none
}

// equal reports whether terms are equal. Neither may have an encrypted secret.
func (t *Terms) equal(other *Terms) bool {
	return subtle.ConstantTimeCompare([]byte(t.Secret), []byte(other.Secret)) == 1 &&
		t.Filter.Key() == other.Filter.Key() && t.Every == other.Every
}

// FormerFor is how long the previous secret signs after a renewal with another one.
const FormerFor = 24 * time.Hour

// Secrets returns the secret, and the previous one if it still signs now. Both are empty if this hub does
// not have the key to them.
func (s *Subscription) Secrets(now time.Time) (secret, former string) {
	if s.Sealed != "" {
		return "", ""
	}
	if now.Before(s.FormerEnd) {
		former = s.Former
	}
	return s.Secret, former
}

// ID returns the ID of the subscription.
func (s *Subscription) ID() ID { return NewID(s.Set, s.Form, s.Callback) }

// A Progress is how far the deliveries to a subscription have come. The stored one may be older: after a
// crash, the deliveries since then are repeated.
type Progress struct {
	Cursor   feed.Cursor `json:"cursor"`            // of the last change that was delivered or that the filter did not match
	From     feed.Cursor `json:"from,omitzero"`     // start of the interval of the next delivery, if the filter moved Cursor since the last one; otherwise zero
	Gap      feed.Cursor `json:"gap,omitzero"`      // cursor before the memory overran the subscription; zero once a delivery reported it
	Gaps     int         `json:"gaps,omitempty"`    // how often the memory overran it
	Diverged bool        `json:"diverged,omitzero"` // whether the log lost its tail and no delivery has reported it
	Delivery uint64      `json:"delivery,omitzero"` // number of the latest delivery; zero if there was none
	Failed   int         `json:"failed,omitempty"`  // attempts since the last success
	Next     time.Time   `json:"next,omitzero"`     // after a failure, the time of the next attempt
	Last     []Attempt   `json:"last,omitempty"`    // latest attempts, oldest first, at most MaxAttempts
}

// An Attempt is a call to a callback and its result.
type Attempt struct {
	At      time.Time     `json:"at"`
	Kind    string        `json:"kind"`              // deliver, subscribe, unsubscribe or denied
	Status  int           `json:"status,omitempty"`  // status of the response, or zero if there was none
	Took    time.Duration `json:"took"`              // in nanoseconds
	Changes int           `json:"changes,omitempty"` // number of changes in the delivery
	Error   string        `json:"error,omitempty"`   // without secrets; empty if the call succeeded
}

// MaxAttempts is the most attempts that are stored with a subscription.
const MaxAttempts = 10

var (
	// ErrRecord means that one subscription could not be decoded. Others are not affected.
	ErrRecord = errors.New("invalid subscription record")

	// ErrNoSubscription means that a subscription does not exist.
	ErrNoSubscription = &feed.Error{Code: "no-such-subscription", Status: 404, Text: "no such subscription",
		Detail: "this callback has no subscription to this topic"}

	// ErrBusy means that the inbox of a shard is full.
	ErrBusy = &feed.Error{Code: "busy", Status: 503, RetryAfter: 60, Text: "too many pending requests",
		Detail: "too many requests about subscriptions are pending; try again in a minute"}

	// ErrNotYours means that a request would change a subscription of another subscriber, as far as the
	// hub can tell.
	ErrNotYours = &feed.Error{Code: "not-yours", Status: 403, Text: "the subscription belongs to another subscriber",
		Detail: "this callback has a subscription to this topic that belongs to another subscriber; to change its hub.secret, filter or cursor, or to end one that was made with a token, " +
			"send the current hub.secret, or rs.status with the URL from the verification; without them a renewal can only prolong the lease"}
)
