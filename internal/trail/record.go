// Package trail writes the audit log of a hub: who did what, and who was refused.
//
// A request has a Record in its context, in which handlers note what it does. A Log writes Records
// as lines of JSON, in the background. What is an action is defined by the handlers;
// docs/operate.md describes the log.
package trail

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/rshub/rshub/feed"
)

// An Action is what a request does, or what a refused request wanted to do.
type Action string

// The actions that the audit log knows. Reading and following have no actions.
const (
	Publish     Action = "publish"     // changes to a set
	Ping        Action = "ping"        // asks the hub to read the source of a set (hub.mode=publish)
	Describe    Action = "describe"    // a set (PUT)
	Delete      Action = "delete"      // a set
	Subscribe   Action = "subscribe"   // asks that a callback gets the changes of a set
	Unsubscribe Action = "unsubscribe" // asks that it gets none
	Remove      Action = "remove"      // an operator ends a subscription
	Retry       Action = "retry"       // an operator asks for a delivery to a subscription now
	Move        Action = "move"        // an operator moves the cursor of a subscription
	Ticket      Action = "ticket"      // gets a ticket for a set
	Backup      Action = "backup"      // reads a copy of the change memory
	Profile     Action = "profile"     // reads a profile of the process

	Request Action = "request" // anything else that was refused
)

// Outcomes of actions.
const (
	done    = "done"
	refused = "refused" // the caller may not do it: 401, 403, 421 or 429
	failed  = "failed"
)

// A Record is what the audit log says of one request. Only the goroutine of the request uses
// it.
type Record struct {
	RequestID string
	Caller    string // name; empty: a caller without a token
	Client    netip.Addr
	Method    string
	Path      string // as logs may show it
	Action    Action // empty: none yet
	Set       string

	Changes  uint64      // accepted changes
	Cursor   feed.Cursor // cursor of the last change, or the new cursor of a subscription
	Replayed bool        // all of the changes were there already

	Subscription string // id
	Callback     string // host of the callback

	at     time.Time
	status int
	count  uint64 // how many requests this Record stands for; 0: one
}

type contextKey struct{}

// NewContext returns ctx with the Record of a request.
func NewContext(ctx context.Context, r *Record) context.Context {
	return context.WithValue(ctx, contextKey{}, r)
}

// From returns the Record of a request. If it has none, From returns one that nobody reads.
func From(ctx context.Context) *Record {
	if r, ok := ctx.Value(contextKey{}).(*Record); ok {
		return r
	}
	return new(Record)
}

// As notes the name of the caller.
func (r *Record) As(caller string) {
	r.Caller = caller
}

// Begin notes what the request is about to do with a set, which may be empty.
func (r *Record) Begin(action Action, set string) {
	r.Action, r.Set = action, set
}

// Published notes that more changes were accepted.
func (r *Record) Published(changes int, last feed.Cursor, replayed bool) {
	r.Replayed = replayed && (r.Replayed || r.Changes == 0)
	r.Changes += uint64(changes)
	r.Cursor = last
}

// Of notes the subscription of the request, and the host of its callback.
func (r *Record) Of(subscription, host string) {
	r.Subscription, r.Callback = subscription, host
}

// To notes the new cursor of a subscription.
func (r *Record) To(cursor feed.Cursor) {
	r.Cursor = cursor
}

// outcome returns the outcome of the request, by the status of its answer. It is empty if
// the audit log does not record the request. The status 0 means that there was no answer.
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
