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

// An Outlet is a way to callbacks. The engine knows nothing more of how a delivery leaves. Each
// method tries once and returns the verdict. It blocks until the callback has answered, and
// gives up when ctx ends.
type Outlet interface {
	// Deliver delivers changes.
	Deliver(ctx context.Context, d *Delivery) Verdict

	// Confirm asks whether the owner of a callback wants a subscription (WebSub section 5.3).
	// It returns Done when the callback confirmed, Again when it gave no answer, and Over when
	// it refused.
	Confirm(ctx context.Context, q *Question) Verdict

	// Deny tells a callback that its subscription to a set ended, and why.
	Deny(ctx context.Context, d *Denial) Verdict
}

// A Delivery is one change notification for one subscription (Change
// Notification section 3). Nobody may change it.
type Delivery struct {
	To       *subscription.Subscription
	Format   *Format     // of the body
	Body     [][]byte    // the notification, in parts
	Changes  int         // number of changes in the notification
	From     feed.Cursor // where the interval of the notification begins: the Cursor of the delivery before
	Cursor   feed.Cursor // where the interval ends, and the next delivery begins
	Attempt  int         // 1 for the first attempt since the last success
	First    bool        // nothing was delivered to the callback yet: it gets less time, since it may be one that hangs
	Number   uint64      // Progress.Delivery of this delivery
	Gap      feed.Cursor // if the memory overran the subscription: the cursor that it had reached before; zero: no changes are missing
	Diverged bool        // the log had lost its tail, so From is not the Cursor of the delivery before
}

// Size returns the length of the body in bytes.
func (d *Delivery) Size() (n int64) {
	for _, part := range d.Body {
		n += int64(len(part))
	}
	return n
}

// A Format is a form of what is delivered: documents in which each change is an entry that
// begins and ends with a text of its own. So a document can be put together from the text of
// batches, each of which is made once for all who get it.
type Format struct {
	Batch      *feed.Format               // the document of a batch
	Head       func(b *feed.Batch) []byte // what stands in it before the first entry; of its entries b needs only the first
	Begin, End []byte                     // of an entry; nothing else in it has them
	Stamp      []byte                     // text in the head after which the attributes of a delivery are inserted; nil if the form has no place for them
	Tail       []byte                     // what stands behind the last entry
	Outlet     Outlet                     // the way to those who get it; nil: that of change notifications
}

// A Question is what the owner of a callback is asked to confirm.
type Question struct {
	Request *subscription.Request
	Keys    Keys          // that sign it
	Token   string        // the secret part of the URL of the subscription's status
	Lease   time.Duration // with Subscribe: the lease that is granted
	Since   feed.Cursor   // with Subscribe: where deliveries go on
	First   bool          // it was not asked before: it gets less time, since it may be one that hangs
	Renewal bool          // with Subscribe: the subscription exists already
}

// A Denial says that a subscription ended, and why.
type Denial struct {
	Set, Form, Callback, Reason string

	VerifyToken string // of the request that is denied; empty if a subscription ended
	Keys        Keys   // that sign it
}

// Keys are the secrets that sign a request to a callback. Both may be empty.
type Keys struct {
	Secret string
	Former string // the one before, while the subscriber changes from one to the other
}

// A Verdict says how an attempt ended, and what to do next.
type Verdict struct {
	Decision Decision
	After    time.Duration    // with Again or Smaller: do not try sooner than this
	Status   int              // status of the HTTP answer; 0 when there was none
	Error    string           // why the decision is not Done; the subscriber sees it, so it has no secrets
	Outcome  outbound.Outcome // for the metrics
	Place    string           // where the callback is, as far as the attempt has found out: see outbound.Peer.Place; empty: nothing new
}

// Unanswered returns the verdict on a request to a peer that got no answer: d, unless it was not
// made because too many are under way.
func Unanswered(err error, d Decision, peer *outbound.Peer) Verdict {
	f := outbound.Explain(err)
	if errors.Is(err, outbound.ErrBusy) {
		d = Limited
	}
	return Verdict{Decision: d, Error: f.Text, Outcome: f.Outcome, Place: peer.AddressKey()}
}

// A Decision is what the engine does after an attempt.
type Decision uint8

const (
	Done    Decision = iota // it succeeded
	Again                   // it failed; try it again
	Smaller                 // it failed; try it again with fewer changes
	Over                    // it failed for good: the subscription of a delivery ends, a request is dropped
	Limited                 // nothing was sent, because too many requests are under way to the address; it is no attempt
)

// Lost says which positions are lost when the memory has overrun a
// subscription: "first-last" for the positions after had up to on. In a set
// that was made again, positions begin anew. Then only the beginning of the gap
// is known, and the text is "first-". The datetime of had is negative if the set was made again.
func Lost(had, on feed.Cursor) string {
	text := strconv.FormatUint(had.Position+1, 10) + "-"
	if on.Position > had.Position && had.Micros >= 0 {
		text += strconv.FormatUint(on.Position, 10)
	}
	return text
}
