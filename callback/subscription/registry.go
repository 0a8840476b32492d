package subscription

import (
	"cmp"
	"context"
	"crypto/rand"
	"iter"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/claim"
)

// A Registry keeps the subscriptions of all hubs that share one change memory.
// Any hub may send a request. Only the hub that has the claim on a shard
// changes the records in it. Each change names the claim, so a hub that was
// stopped for a while and comes back cannot change anything (fencing). Methods
// may be called concurrently. They block until the store has answered or ctx is
// done.
//
// A Registry does not repeat a call that failed. After feed.ErrUnknown the call
// may have been carried out; after feed.ErrUnavailable it was not. Every call
// may be made again: making it twice does no harm.
type Registry interface {
	// Send adds a request to the end of its shard's inbox, where it is durable
	// when Send returns nil. A request that is sent twice is there twice, so
	// carrying it out a second time must do no harm. The error is feed.ErrFull
	// when the store has no room, and ErrBusy when the inbox has none. Some
	// room in the inbox is only for requests of operators.
	Send(ctx context.Context, r Request) error

	// Load yields all records of a shard, in any order. An error ends the
	// sequence, except ErrRecord, which is about one record only.
	Load(ctx context.Context, shard int) iter.Seq2[Record, error]

	// Newest returns, for each of the shards in order, the number of the newest request
	// in its inbox, or 0 when the inbox is empty. When there is an error, the
	// numbers are those of the shards that could be looked at, and 0 for the
	// others: a part of the store that is away does not delay the rest.
	Newest(ctx context.Context, shards []int) ([]uint64, error)

	// Inbox returns, in order, the oldest requests in a shard's inbox whose
	// number is greater than after, at most limit. No request comes later with
	// a lower number than one that was returned. A request that cannot be read
	// has no Mode.
	Inbox(ctx context.Context, shard int, after uint64, limit int) ([]Request, error)

	// Commit makes changes to a shard in one atomic step, which is durable when
	// Commit returns nil. The error is claim.ErrLost when the claim does not
	// count any more. It is feed.ErrFull when the changes put records and the store has
	// no room; the same changes without them can still succeed.
	Commit(ctx context.Context, c claim.Claim, changes Changes) error

	// Find returns one record as its last Commit left it, or ErrNoSubscription.
	Find(ctx context.Context, id ID) (Record, error)

	// List returns records of one set in the order of their IDs, at most limit,
	// beginning after the ID after (the zero ID: from the first). more is false
	// when there are no others after them.
	List(ctx context.Context, set string, after ID, limit int) (records []Record, more bool, err error)
}

// InboxMax is how many requests may wait in a shard's inbox, unless a
// registry's options say otherwise.
const InboxMax = 10_000

// A Record is a subscription with its progress.
type Record struct {
	Subscription
	Progress
}

// Changes are what one Commit does to a shard, in the order of the fields.
// Times are kept to the microsecond.
type Changes struct {
	Put      []Record        // records that are kept as a whole; they replace older ones
	Progress map[ID]Progress // progress of subscriptions; it is ignored for a subscription that is not there
	Delete   []ID            // subscriptions that are removed, with their progress
	Done     []uint64        // numbers of the requests that leave the inbox
}

// A Request is what a subscriber or an operator wants. It waits in an inbox
// until the hub that has the shard has carried it out.
type Request struct {
	Number   uint64        `json:"-"` // its place in the inbox; the registry gives it, and it rises
	Mode     Mode          `json:"mode"`
	Set      string        `json:"set"`
	Form     string        `json:"form,omitempty"` // see Subscription.Form
	Callback string        `json:"callback"`
	Terms                  // with Subscribe
	Sealed   string        `json:"sealed,omitempty"`   // see Subscription.Sealed; of Secret and VerifyToken
	Lease    time.Duration `json:"lease,omitempty"`    // with Subscribe: the lease that is granted
	Start    feed.Cursor   `json:"start,omitzero"`     // with Subscribe and Move: the cursor from which deliveries go on
	Move     bool          `json:"move,omitempty"`     // with Subscribe: Start counts for a renewal too
	Diverged bool          `json:"diverged,omitempty"` // with Start: the log had lost its tail since the cursor that was asked for
	By       string        `json:"by,omitempty"`       // by a subscriber: who asks, from ByToken or ByAddress; empty: unknown
	Token    string        `json:"token,omitempty"`    // by a subscriber: the token that the request shows, as whoever made the subscription knows it
	// VerifyToken is the hub.verify_token of PubSubHubbub 0.3 section 6.1: each verification and
	// denial of the request sends it back to the callback. It may be a secret. Empty means none.
	VerifyToken string `json:"verifyToken,omitempty"`

	Key    string    `json:"key,omitempty"`    // by a subscriber: see Subscription.Key
	Anyone bool      `json:"anyone,omitempty"` // by a subscriber: see Subscription.Anyone
	Until  time.Time `json:"until,omitzero"`   // by a subscriber: when its token expires; zero: it does not
	At     time.Time `json:"at"`               // when it was accepted
}

// A Mode says what a Request wants.
type Mode string

const (
	Subscribe   Mode = "subscribe"   // by the subscriber: verify it, then make or renew it
	Unsubscribe Mode = "unsubscribe" // by the subscriber: verify it, then remove it
	Remove      Mode = "remove"      // by an operator: remove it, and tell the callback (hub.mode=denied)
	Retry       Mode = "retry"       // by an operator: deliver now
	Move        Mode = "move"        // by an operator: go on after Start
)

// inboxRoom returns how many requests may wait in the inbox before this one is
// refused. most is the limit for requests of subscribers. Requests of operators
// have some more room, so that subscribers cannot keep them out.
func (r *Request) inboxRoom(most int) int {
	if r.Mode == Subscribe || r.Mode == Unsubscribe {
		return most
	}
	return most + most/10 + 1
}

// ID returns the ID of the subscription that the request is about.
func (r *Request) ID() ID { return NewID(r.Set, r.Form, r.Callback) }

// Makes returns the subscription that the request makes of was. If was is zero, or has
// ended, the subscription is new and gets a token. A subscription keeps who made it,
// and the end of its lease if that is later, unless the request shows that it
// comes from whoever made it. The lease ends when the token of who made it expires, at the
// latest. The secret before goes on to sign for FormerFor.
func (r *Request) Makes(was *Subscription, now time.Time) Subscription {
	now = now.UTC().Round(0)
	wanted := Subscription{
		Set: r.Set, Form: r.Form, Callback: r.Callback, Terms: r.Terms,
		LeaseEnd: now.Add(r.Lease), Token: was.Token, By: was.By, Made: was.Made,
	}
	if was.Token == "" || !was.Ended.IsZero() {
		wanted.Token, wanted.By, wanted.Made, wanted.Until, wanted.Key, wanted.Anyone = rand.Text(), r.By, now, r.Until, r.Key, r.Anyone
		wanted.LeaseEnd = earlier(wanted.LeaseEnd, wanted.Until)
		return wanted
	}
	wanted.Renewed, wanted.Until, wanted.Key, wanted.Anyone = now, was.Until, was.Key, was.Anyone
	if r.Shows(was) {
		wanted.By, wanted.Until, wanted.Key, wanted.Anyone = cmp.Or(r.By, was.By), r.Until, r.Key, r.Anyone
	} else if was.LeaseEnd.After(wanted.LeaseEnd) {
		wanted.LeaseEnd = was.LeaseEnd
	}
	wanted.LeaseEnd = earlier(wanted.LeaseEnd, wanted.Until)
	switch secret, former := was.Secrets(now); {
	case r.Secret == "":
	case r.Secret == secret:
		wanted.Former = former
	case secret != "":
		wanted.Former = secret
	}
	switch {
	case wanted.Former == "":
	case wanted.Former == was.Former:
		wanted.FormerEnd = was.FormerEnd
	default:
		wanted.FormerEnd = now.Add(FormerFor)
	}
	return wanted
}

// earlier returns the earlier of two times; a zero one does not count.
func earlier(t, limit time.Time) time.Time {
	if !limit.IsZero() && limit.Before(t) {
		return limit.UTC().Round(0)
	}
	return t
}

// A Count has numbers of subscriptions at all hubs, including those that are still
// to be confirmed.
type Count struct {
	Host  int // with callbacks at one host
	Set   int // to one set
	Fresh int // with callbacks at that host, and still to be confirmed
	Own   int // of those, asked for by the same caller

	OwnHost, OwnSet, OwnAll int // made by the same caller and confirmed: with callbacks at that host, to that set, all
}
