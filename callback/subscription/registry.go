package subscription

import (
	"context"
	"fmt"
	"iter"

	"github.com/rshub/rshub/internal/claim"
)

// A Registry stores the subscriptions of all hubs that share a change memory. Any hub may send requests.
// Only the hub with the claim on a shard may commit changes to it; a hub that resumes after its claim was
// lost cannot change anything (fencing). Methods may be called concurrently, except Commit for one shard.
// They block until the store has responded or ctx is done.
//
// A Registry does not retry failed calls. After feed.ErrUnknown the call may have taken effect, after
// feed.ErrUnavailable it has not. Every call may be repeated.
type Registry interface {
	// Send adds a request to the inbox of its shard. It is durable when Send returns nil. A repeated call
	// adds the request again, so to execute a request twice must do no harm. The error is feed.ErrFull if
	// the store is full, and ErrBusy if the inbox is full.
	Send(ctx context.Context, r Request) error

	// Load yields all records of a shard, in any order. An error ends the sequence, except ErrRecord,
	// which concerns one record.
	Load(ctx context.Context, shard int) iter.Seq2[Record, error]

	// Newest returns for each shard the number of the newest request in its inbox, or 0 if the inbox is
	// empty. If it returns an error, the numbers of shards that could not be read are 0, too.
	Newest(ctx context.Context, shards []int) ([]uint64, error)

	// Inbox returns the oldest requests of a shard with a number greater than after, at most limit, in
	// order. No request with a lower number than a returned one is added later. A request that cannot be
	// decoded has no Mode.
	Inbox(ctx context.Context, shard int, after uint64, limit int) ([]Request, error)

	// Commit makes changes to a shard in one atomic step, which is durable when Commit returns nil. The
	// error is claim.ErrLost if the claim is not held, and feed.ErrFull if the store is full and the
	// changes put records. If Commit returns an error, the changes never take effect after a later
	// Commit.
	Commit(ctx context.Context, c claim.Claim, changes Changes) error

	// Find returns a record as the last Commit left it, or ErrNoSubscription.
	Find(ctx context.Context, id ID) (Record, error)

	// List returns the records of a set with an ID greater than after, at most limit, in the order of
	// their IDs. more reports whether there are others.
	List(ctx context.Context, set string, after ID, limit int) (records []Record, more bool, err error)
}

// InboxMax is the default limit on requests of subscribers that are in the inbox of a shard.
const InboxMax = 10_000

// A Record is a subscription with its progress.
type Record struct {
	Subscription
	Progress
}

// Changes are the changes of one Commit, in the order in which they are made. Times are stored in
// microseconds.
type Changes struct {
	Put      []Record        // records to be added or replaced
	Progress map[ID]Progress // progress of subscriptions that exist
	Delete   []ID            // subscriptions to be removed with their progress
	Done     []uint64        // numbers of requests to be removed from the inbox
}

// check returns an error if changes contain a subscription that is not in a shard.
func (c *Changes) check(shard int) error {
	check := func(id ID) error {
		if id.Shard() == shard {
			return nil
		}
		return fmt.Errorf("subscription %v is in shard %d", id, id.Shard())
	}
	for i := range c.Put {
		if err := check(c.Put[i].ID()); err != nil {
			return err
		}
	}
	for id := range c.Progress {
		if err := check(id); err != nil {
			return err
		}
	}
	for _, id := range c.Delete {
		if err := check(id); err != nil {
			return err
		}
	}
	return nil
}

// A Count has the numbers of subscriptions at all hubs that a limit on a new subscription concerns.
type Count struct {
	Host  int // with callbacks at one host, unconfirmed ones included
	Set   int // to one set, unconfirmed ones included
	Fresh int // unconfirmed, with callbacks at the host
	Own   int // part of Fresh that the same subscriber requested

	OwnHost, OwnSet, OwnAll int // confirmed ones of the same subscriber: at the host, to the set, all
}
