// Package trail writes the audit log of a hub: who did what, and who was refused.
//
// A request has a Record in its context, in which handlers record its action. A Log writes Records
// as lines of JSON in the background. Which requests are actions is defined by the handlers;
// docs/operate.md describes the log.
package trail

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/rshub/rshub/feed"
)

// An Action is what a request does, or what a refused request would have done.
type Action string

// Actions in the audit log. Reading and following a single set are not actions.
const (
	Publish     Action = "publish"     // publishes changes to a set
	Ping        Action = "ping"        // asks the hub to poll the source of a set (hub.mode=publish)
	Describe    Action = "describe"    // describes a set (PUT)
	Delete      Action = "delete"      // deletes a set
	Subscribe   Action = "subscribe"   // subscribes a callback to a set
	Unsubscribe Action = "unsubscribe" // unsubscribes a callback
	Remove      Action = "remove"      // an operator removes a subscription
	Retry       Action = "retry"       // an operator requests an immediate delivery to a subscription
	Move        Action = "move"        // an operator moves the cursor of a subscription
	Ticket      Action = "ticket"      // issues a ticket for a set, or for all sets
	Follow      Action = "follow"      // follows many sets on one connection; recorded when it ends
	Backup      Action = "backup"      // reads a copy of the change memory
	Profile     Action = "profile"     // reads a profile of the process

	Request Action = "request" // any other request that was refused
)

// Outcomes of actions.
const (
	done    = "done"
	refused = "refused" // the caller is not permitted: 401, 403, 421 or 429
	failed  = "failed"
)

// A Record is the audit record of one request. It must be accessed only by the goroutine of the
// request.
type Record struct {
	RequestID string
	Caller    string // name; empty for a caller without a token
	Client    netip.Addr
	Method    string
	Path      string // redacted for logs
	Action    Action // empty if none yet
	Set       string

	Changes  uint64      // number of accepted changes
	Cursor   feed.Cursor // cursor of the last change, or new cursor of a subscription
	Replayed bool        // whether all changes had been accepted before

	Sets int // highest number of sets that a connection followed at a time

	Subscription string // ID
	Callback     string // host of the callback

	at     time.Time
	status int
	count  uint64 // number of requests that the Record represents; zero means one
}

type contextKey struct{}

// NewContext returns ctx with the Record of a request.
func NewContext(ctx context.Context, r *Record) context.Context {
	return context.WithValue(ctx, contextKey{}, r)
}

// FromContext returns the Record of a request, or an unused Record if it has none.
func FromContext(ctx context.Context) *Record {
	if r, ok := ctx.Value(contextKey{}).(*Record); ok {
		return r
	}
	return new(Record)
}

// SetCaller sets the name of the caller.
func (r *Record) SetCaller(caller string) {
	r.Caller = caller
}

// SetAction sets the action of the request and its set, which may be empty.
func (r *Record) SetAction(action Action, set string) {
	r.Action, r.Set = action, set
}

// AddChanges adds accepted changes.
func (r *Record) AddChanges(changes int, last feed.Cursor, replayed bool) {
	r.Replayed = replayed && (r.Replayed || r.Changes == 0)
	r.Changes += uint64(changes)
	r.Cursor = last
}

// SetSubscription sets the subscription of the request and the host of its callback.
func (r *Record) SetSubscription(subscription, host string) {
	r.Subscription, r.Callback = subscription, host
}

// SetCursor sets the new cursor of a subscription.
func (r *Record) SetCursor(cursor feed.Cursor) {
	r.Cursor = cursor
}

// outcome returns the outcome of the request by the status of its response. It is empty if the
// audit log does not record the request. The status is zero if there was no response.
func (r *Record) outcome() string {
	switch r.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMisdirectedRequest, http.StatusTooManyRequests:
		return refused
	}
	switch {
	case r.Action == "":
		return ""
	case r.status == 0 || r.status >= http.StatusBadRequest:
		return failed
	}
	return done
}
