// Package outlet defines what the delivery engine requires of a way to deliver: send a change
// notification, confirm or deny a subscription, and return a verdict.
//
// It contains interfaces and types only, and knows no HTTP. Package callback calls an outlet;
// packages callback/websub and internal/dialect/indexnow implement one. Read callback/deliver.go
// next. The package carries no compatibility promise.
package outlet

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/outbound"
)

// An Outlet is a way to reach callbacks. Each method makes one attempt and returns the verdict. It blocks until
// the callback has responded or ctx is done.
type Outlet interface {
	// Deliver delivers changes.
	Deliver(ctx context.Context, d *Delivery) Verdict

	// Confirm asks whether the owner of a callback wants a subscription (WebSub section 5.3). It returns Done if
	// the callback confirmed, Over if it refused, and Again if it did not respond.
	Confirm(ctx context.Context, q *Question) Verdict

	// Deny notifies a callback that its subscription to a set ended, and why.
	Deny(ctx context.Context, d *Denial) Verdict
}

// A Delivery is one change notification for one subscription (Change Notification section 3). It must not be
// modified.
type Delivery struct {
	To       *subscription.Subscription
	Format   *Format     // format of the body
	Body     [][]byte    // notification, in parts
	Changes  int         // number of changes in the notification
	From     feed.Cursor // start of the notification's interval: the Cursor of the previous delivery
	Cursor   feed.Cursor // end of the interval, where the next delivery starts
	Attempt  int         // 1 for the first attempt since the last success
	First    bool        // whether the callback is new: it gets less time, since it may be one that hangs
	Number   uint64      // Progress.Delivery of this delivery
	Gap      feed.Cursor // last cursor before the memory overran the subscription; zero if no changes are missing
	Diverged bool        // whether the log lost its tail, so that From is not the Cursor of the previous delivery
}

// Size returns the length of the body in bytes.
func (d *Delivery) Size() (n int64) {
	for _, part := range d.Body {
		n += int64(len(part))
	}
	return n
}

// A Format is a format of deliveries: documents in which each change is an entry between two fixed texts. So a
// document can be assembled from the text of batches, which is made once for all subscriptions.
type Format struct {
	Batch      *feed.Format               // document of a batch
	Head       func(b *feed.Batch) []byte // text before the first entry; of b's entries it needs only the first
	Begin, End []byte                     // texts around an entry, which occur nowhere else in it
	Stamp      []byte                     // text in the head before the attributes of a delivery; nil if it has no place for them
	Tail       []byte                     // text after the last entry
	Outlet     Outlet                     // nil means the outlet of change notifications
}

// A Question is a verification: what the owner of a callback is asked to confirm.
type Question struct {
	Request *subscription.Request
	Keys    Keys          // keys that sign it
	Token   string        // secret part of the URL of the subscription's status
	Lease   time.Duration // with Subscribe: granted lease
	Since   feed.Cursor   // with Subscribe: start of deliveries
	First   bool          // whether the callback is new: it gets less time, since it may be one that hangs
	Renewal bool          // with Subscribe: whether the subscription already exists
}

// A Denial notifies a callback that a subscription ended, or that a request was refused.
type Denial struct {
	Set, Form, Callback, Reason string

	VerifyToken string // verify token of the refused request; empty if a subscription ended
	Keys        Keys   // keys that sign it
}

// Keys are the secrets that sign a request to a callback. Both may be empty.
type Keys struct {
	Secret string
	Former string // previous secret, while the subscriber changes to a new one
}

// A Verdict is the result of an attempt, and what to do next.
type Verdict struct {
	Decision Decision
	After    time.Duration    // with Again or Smaller: minimum wait before the next attempt
	Status   int              // status of the HTTP response; 0 if there was none
	Error    string           // why the decision is not Done, without secrets: the subscriber sees it
	Outcome  outbound.Outcome // label for metrics
	Place    string           // see outbound.Peer.AddressKey; empty if the attempt made no connection
}

// Failed returns the verdict on an unsuccessful request to a peer.
func Failed(d Decision, f *outbound.Failure, peer *outbound.Peer) Verdict {
	return Verdict{Decision: d, Status: f.Status, Error: f.Text, Outcome: f.Outcome, Place: peer.AddressKey()}
}

// Unanswered returns the verdict on a request to a peer without a response. Its decision is d, or Limited if
// err is outbound.ErrBusy.
func Unanswered(err error, d Decision, peer *outbound.Peer) Verdict {
	if errors.Is(err, outbound.ErrBusy) {
		d = Limited
	}
	return Failed(d, outbound.Explain(err), peer)
}

// A Decision is what the engine does after an attempt.
type Decision uint8

const (
	Done    Decision = iota // success
	Again                   // failure; try again
	Smaller                 // failure; try again with fewer changes
	Over                    // permanent failure: the subscription of a delivery ends, a request is dropped
	Limited                 // not an attempt: too many requests to the address are in progress
)

// Lost returns the positions that were lost when the memory overran a subscription: "first-last" for those after
// had, up to from. In a set that was deleted and made again, positions restart, so only the start of the gap is
// known, and the text is "first-". A negative datetime of had means that the set was made again.
func Lost(had, from feed.Cursor) string {
	text := strconv.FormatUint(had.Position+1, 10) + "-"
	if from.Position > had.Position && had.Micros >= 0 {
		text += strconv.FormatUint(from.Position, 10)
	}
	return text
}
