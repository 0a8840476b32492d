// Package callback delivers changes to destinations that are called: it is a
// WebSub hub (W3C Recommendation of 23 January 2018) for the topics of rshub.
//
// A subscription is a cursor in a set's log and a wake-up. There is no queue per
// subscription: what follows the cursor is what is to be delivered, a retry is
// not moving the cursor, and recovery after a crash is reading the cursor again.
// Subscriptions are divided into shards, and each shard is worked on by one hub
// at a time: the one that has the claim.
package callback

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/rshub/rshub/changelog"
)

// Shards is the number of shards. It is fixed: a subscription's ID says its
// shard.
const Shards = 256

// An ID names a subscription: it is made of what WebSub knows one by (section
// 5.1), the pair of topic and callback. Its first byte is the shard, the next
// four are of the set alone, so that those of a set stand together in a shard.
type ID [16]byte

// NewID returns the ID of a set's subscription by a callback, compared exactly.
func NewID(set, callback string) (id ID) {
	sum := sha256.Sum256([]byte(set + "\n" + callback)) // a set's name has no newline
	copy(id[:], sum[:])
	copy(id[1:], setMark(set))
	return id
}

// setMark is what the IDs of a set have in common, behind the shard. Few sets
// share one.
func setMark(set string) []byte {
	sum := sha256.Sum256([]byte(set))
	return sum[:4]
}

// ParseID reads what String returns.
func ParseID(s string) (id ID, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, changelog.Invalid("%.80q is no id of a subscription: it has 32 hexadecimal digits", s)
	}
	copy(id[:], b)
	return id, nil
}

// String returns the ID in hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText returns what String does, for logs.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// after reports whether the ID follows another.
func (id ID) after(other ID) bool { return bytes.Compare(id[:], other[:]) > 0 }

// Shard returns the shard that the subscription is in, from 0 to Shards-1.
func (id ID) Shard() int { return int(id[0]) }

// A Subscription is what a subscriber asked for and has confirmed. It changes
// only when a request of the subscriber, or of an operator, is carried out.
type Subscription struct {
	Set      string           `json:"set"`
	Callback string           `json:"callback"`         // exactly as it was given
	Secret   string           `json:"secret,omitempty"` // for signatures; never shown
	Filter   changelog.Filter `json:"filter,omitzero"`
	LeaseEnd time.Time        `json:"leaseEnd"`
	Token    string           `json:"token"` // whoever knows it may read the subscription's status
	Made     time.Time        `json:"made"`  // first verified
	Renewed  time.Time        `json:"renewed,omitzero"`
}

// ID returns the subscription's ID.
func (s *Subscription) ID() ID { return NewID(s.Set, s.Callback) }

// A Progress is how far a subscription got. It is saved while deliveries go on,
// so it may lag behind by what a crash repeats.
type Progress struct {
	Cursor   changelog.Cursor `json:"cursor"`            // behind the last change that was delivered, or left out by the filter
	From     changelog.Cursor `json:"from,omitzero"`     // where the next delivery's interval begins, when a filter moved Cursor on since the last one; zero: at Cursor
	Gap      changelog.Cursor `json:"gap,omitzero"`      // the memory overran the subscription: its cursor before that, until the next delivery has said so
	Gaps     int              `json:"gaps,omitempty"`    // how often that happened
	Diverged bool             `json:"diverged,omitzero"` // the log had lost its tail: until the next delivery has said so
	Failed   int              `json:"failed,omitempty"`  // attempts since the last success
	Next     time.Time        `json:"next,omitzero"`     // not before, after a failure
	Last     []Attempt        `json:"last,omitempty"`    // the newest attempts, oldest first, at most maxAttempts
}

// An Attempt is one request to a callback and what came of it.
type Attempt struct {
	At      time.Time     `json:"at"`
	Kind    string        `json:"kind"`              // deliver, subscribe, unsubscribe or denied
	Status  int           `json:"status,omitempty"`  // 0: no answer came
	Took    time.Duration `json:"took"`              // in nanoseconds
	Changes int           `json:"changes,omitempty"` // that were delivered
	Error   string        `json:"error,omitempty"`   // why it failed, without secrets
}

// maxAttempts bounds the attempts that are kept of one subscription.
const maxAttempts = 10

// What callers decide by.
var (
	// ErrRecord means that what is kept of one subscription cannot be read. It says
	// nothing of the others.
	ErrRecord = errors.New("a subscription cannot be read")

	// ErrNoSubscription means that there is no such subscription.
	ErrNoSubscription = errors.New("no such subscription")

	// ErrClaimLost means that a shard is another hub's by now: nothing was written.
	ErrClaimLost = errors.New("the claim is lost")

	// ErrBusy means that too many requests wait in a shard's inbox.
	ErrBusy = errors.New("too many requests wait")

	// ErrClock means that a hub's clock is not to be trusted with leases.
	ErrClock = errors.New("the clock differs too much")
)
