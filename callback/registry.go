package callback

import (
	"context"
	"iter"
	"time"

	"github.com/rshub/rshub/changelog"
)

// A Registry keeps the subscriptions of all hubs of one change memory. Any hub
// may send a request; only the hub that has the claim on a shard changes what is
// in it, and each change names the claim, so a hub that was stopped and comes
// back changes nothing (fencing). Methods may be called concurrently. They block
// until the store answered or ctx is done.
//
// Nothing is tried again by the registry itself. What failed with ErrUnknown
// (changelog) may have been done; each call may be made again, and is harmless
// when it is done twice. With ErrUnavailable nothing was done.
type Registry interface {
	// Name is this hub's name, which no other hub of the registry has or had.
	Name() string

	// ClaimFor is how long a claim lasts after Acquire or Renew was called.
	ClaimFor() time.Duration

	// Send adds a request to the end of its shard's inbox. It is durable when nil
	// is returned. Sent twice it is there twice, so carrying one out must be
	// harmless the second time. ErrFull (changelog) when the store has no room,
	// ErrBusy when the inbox has none; it keeps some for operators.
	Send(ctx context.Context, r Request) error

	// Join says that this hub lives, and returns the names of all that do, its own
	// among them, sorted. Who has not joined for some seconds is not alive. To be
	// called each second, or more often. With ErrClock it is not alive from then on.
	Join(ctx context.Context) (live []string, err error)

	// Acquire claims those of the shards that no other hub has a claim on, and
	// returns the claims. A shard that this hub has already gets a new number,
	// which ends the old claim. With an error it may have claimed more than it
	// returns.
	Acquire(ctx context.Context, shards []int) ([]Claim, error)

	// Renew prolongs claims, and returns those that this hub still has, each with
	// the number of the newest request in the shard's inbox, 0 when it is empty.
	// Claims that are not returned are lost; with an error that is unknown, and
	// they end in their time.
	Renew(ctx context.Context, claims []Claim) ([]Renewed, error)

	// Release gives claims up. Those that are lost are left alone.
	Release(ctx context.Context, claims []Claim) error

	// Leave says that this hub lives no more, until it joins again.
	Leave(ctx context.Context) error

	// Load yields all records of a shard, in no order. An error ends it, but for
	// ErrRecord, which is about one record.
	Load(ctx context.Context, shard int) iter.Seq2[Record, error]

	// Inbox returns the oldest requests of a shard's inbox that have a number
	// greater than after, in order, at most limit. None comes later with a lower
	// number than one that was returned. One that cannot be read has no Mode.
	Inbox(ctx context.Context, shard int, after uint64, limit int) ([]Request, error)

	// Commit makes changes to a shard in one atomic step, durable when nil is
	// returned. ErrClaimLost; ErrFull (changelog) when it puts records and there
	// is no room, which is no reason to refuse the rest.
	Commit(ctx context.Context, c Claim, changes Changes) error

	// Find returns one record, as of its last Commit. ErrNoSubscription.
	Find(ctx context.Context, id ID) (Record, error)

	// List returns records of one set in the order of their IDs, from the one
	// behind after on (the zero ID: from the first), at most limit. more is false
	// when the last one is among them.
	List(ctx context.Context, set string, after ID, limit int) (records []Record, more bool, err error)
}

// What a registry does when it is not told otherwise.
const (
	claimFor = 5 * time.Second // how long a claim lasts: a hub that died is soon replaced
	liveFor  = 3 * time.Second // how long a hub is alive after it joined
	inboxMax = 10_000          // requests that wait in a shard's inbox
)

// A Claim is one hub's right to work on a shard. Number rises with each claim on
// the shard, also when a failover lost the last ones.
type Claim struct {
	Shard  int
	Number uint64
}

// A Renewed is a Claim that holds on, and the newest request for its shard.
type Renewed struct {
	Claim
	Newest uint64
}

// A Record is a subscription with its progress.
type Record struct {
	Subscription
	Progress
}

// Changes are what one Commit does to a shard, in this order. Times are kept to
// the microsecond.
type Changes struct {
	Put      []Record        // kept in whole; they replace what was there
	Progress map[ID]Progress // kept for subscriptions that are there; those that are not are left out
	Delete   []ID            // removed with their progress
	Done     []uint64        // requests that leave the inbox, by number
}

// A Request is what somebody wants of a subscription. It waits in an inbox until
// the hub that has the shard has carried it out.
type Request struct {
	Number   uint64           `json:"-"` // in the inbox; the registry gives it, it rises
	Mode     Mode             `json:"mode"`
	Set      string           `json:"set"`
	Callback string           `json:"callback"`
	Secret   string           `json:"secret,omitempty"`   // subscribe
	Lease    time.Duration    `json:"lease,omitempty"`    // subscribe: what is granted
	Filter   changelog.Filter `json:"filter,omitzero"`    // subscribe
	Start    changelog.Cursor `json:"start,omitzero"`     // subscribe, move: where to go on
	Move     bool             `json:"move,omitempty"`     // subscribe: Start holds for a renewal too
	Diverged bool             `json:"diverged,omitempty"` // with Start: the log had lost its tail since what was asked for
	At       time.Time        `json:"at"`                 // when it was accepted
}

// A Mode is what a Request wants.
type Mode string

const (
	Subscribe   Mode = "subscribe"   // by the subscriber: verify, then make or renew it
	Unsubscribe Mode = "unsubscribe" // by the subscriber: verify, then remove it
	Remove      Mode = "remove"      // by an operator: remove it, and tell the callback (denied)
	Retry       Mode = "retry"       // by an operator: deliver now
	Move        Mode = "move"        // by an operator: go on behind Start
)

// inboxRoom returns how many requests may wait where this one is to go, when it is
// most for a subscriber's: an operator's must get there though others filled it.
func (r *Request) inboxRoom(most int) int {
	if r.Mode == Subscribe || r.Mode == Unsubscribe {
		return most
	}
	return most + most/10 + 1
}

// ID returns the ID of the subscription that the request is about.
func (r *Request) ID() ID { return NewID(r.Set, r.Callback) }
