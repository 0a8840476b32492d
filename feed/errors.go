package feed

import (
	"fmt"
	"time"
)

// An Error is a failure by which callers decide what to do, at both ends of the
// wire. The hub answers with its Status, and the problem document carries its
// Code. A client turns that answer into the same Error again (FromCode). Every
// other failure of a program is wrapped with what was being done.
type Error struct {
	Code   string // the end of the problem document's type; it never changes
	Status int    // of the HTTP answer (RFC 9110 section 15)
	Retry  int    // the answer's Retry-After in seconds; 0 means that the same request would fail again
	Text   string // what went wrong, for logs
	Detail string // the same for the client, with what to do about it
}

// Error returns Text.
func (e *Error) Error() string { return e.Text }

var (
	// ErrGone means that the memory no longer reaches back to a cursor, a
	// position or a datetime, or that a snapshot of an inventory is not kept any
	// more. The destination should begin anew with a baseline, or read the source's
	// resources anew.
	ErrGone = &Error{Code: "gone", Status: 410, Text: "gone from the change memory",
		Detail: "the change memory does not reach back that far: begin anew with since=baseline, or read the resources of the source anew and then follow from since=start"}

	// ErrNoSet means that there is no set of that name.
	ErrNoSet = &Error{Code: "no-such-set", Status: 404, Text: "no such set",
		Detail: "there is no such set; GET /sets lists them"}

	// ErrNoInventory means that the hub does not keep what a set holds now.
	ErrNoInventory = &Error{Code: "no-inventory", Status: 404, Text: "no inventory of the set",
		Detail: "this hub keeps no inventory of the set: there is no baseline, no list of its resources and no audit"}

	// ErrDamaged means that a part of an inventory is missing, or is not what was
	// written. The error around it names the part.
	ErrDamaged = &Error{Code: "damaged", Status: 503, Retry: 60, Text: "the inventory is damaged",
		Detail: "the inventory of the set is damaged; the hub's log says where"}

	// ErrKeyReused means that an idempotency key came again with other content.
	ErrKeyReused = &Error{Code: "key-reused", Status: 422, Text: "idempotency key was used before with other content",
		Detail: "this Idempotency-Key was used before with other content: use a new key"}

	// ErrFull means that the store has no room. Nothing was written.
	ErrFull = &Error{Code: "full", Status: 507, Text: "the change memory is full",
		Detail: "the change memory has no room, and nothing was written; publish again when its operator has made room"}

	// ErrClock means that two clocks differ by more than they may: the hub's and
	// the store's, or the store's now and the one by which the newest entry of the
	// log got its datetime (see Ahead). Nothing was written.
	ErrClock = &Error{Code: "clock", Status: 503, Retry: 2, Text: "clocks differ too much",
		Detail: "the clocks of the hub and of its change memory differ too much; nothing was written"}

	// ErrUnavailable means that the store cannot be reached now. Nothing was
	// written, and the same call may succeed later.
	ErrUnavailable = &Error{Code: "unavailable", Status: 503, Retry: 2, Text: "the change memory cannot be reached",
		Detail: "the change memory cannot be reached now; nothing was written"}

	// ErrOverloaded means that the hub makes or sends as many answers as it has memory
	// for. The same request may succeed soon.
	ErrOverloaded = &Error{Code: "overloaded", Status: 503, Retry: 2, Text: "too many requests and answers are under way",
		Detail: "the hub has too many large requests and answers under way; ask again soon"}

	// ErrUnknown means that a write was sent to the store, but its answer did
	// not come. The store may have it or not. Sending an append again with the
	// same key is safe.
	ErrUnknown = &Error{Code: "unknown", Status: 503, Retry: 2, Text: "unknown whether the change memory has it",
		Detail: "it is unknown whether the change memory has it: send it again with the same Idempotency-Key"}
)

// Is reports whether target is the same failure: an Error of the same Code. One of
// the two may say more about it than the other.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Ahead returns ErrClock for a set whose newest entry, head, lies further in the
// future than clocks may differ. Only this set is refused.
func Ahead(head Cursor, now time.Time) *Error {
	newest := head.Time().Format(time.RFC3339)
	e := *ErrClock
	e.Retry = 60
	e.Text += fmt.Sprintf(": the newest entry of the set is of %s, and now is %s", newest, now.UTC().Format(time.RFC3339))
	e.Detail = "a clock was wrong when the newest change of this set was published: its datetime is " + newest +
		", in the future. The set takes no more changes until then; nothing was written. To publish to it now, delete the set and make it anew"
	return &e
}

// FromCode returns the Error of this package with the given Code, or nil when
// there is none.
func FromCode(code string) *Error {
	for _, e := range []*Error{ErrGone, ErrNoSet, ErrNoInventory, ErrDamaged, ErrKeyReused, ErrFull, ErrClock, ErrUnavailable, ErrOverloaded, ErrUnknown} {
		if e.Code == code {
			return e
		}
	}
	return nil
}
