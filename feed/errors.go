package feed

import (
	"fmt"
	"time"
)

// An Error is a failure that callers on both sides of the wire handle by its Code. The hub responds
// with its Status and puts its Code into the problem document. The client converts that response
// back into the same Error with ErrorFromCode. Other failures are ordinary errors that wrap their
// cause.
type Error struct {
	Code       string // last part of the problem document's type; never changes
	Status     int    // HTTP status of the response (RFC 9110 section 15)
	RetryAfter int    // Retry-After of the response in seconds; zero means that the same request would fail again
	Text       string // description for logs
	Detail     string // description for the client, with advice
}

// Error returns Text.
func (e *Error) Error() string { return e.Text }

var (
	// ErrGone means that the change memory no longer reaches back to a cursor, position or
	// datetime, or that a snapshot of an inventory is no longer retained. The destination should
	// restart from a baseline, or read the source's resources again.
	ErrGone = &Error{Code: "gone", Status: 410, Text: "gone from the change memory",
		Detail: "the change memory no longer reaches back that far; restart with since=baseline, or read the resources of the source again and then follow with since=start"}

	// ErrNoSet means that no set of that name exists.
	ErrNoSet = &Error{Code: "no-such-set", Status: 404, Text: "no such set",
		Detail: "no such set; GET /sets lists all sets"}

	// ErrNoInventory means that the hub has no inventory of the set.
	ErrNoInventory = &Error{Code: "no-inventory", Status: 404, Text: "no inventory of the set",
		Detail: "this hub has no inventory of the set, so it offers no baseline, no list of its resources and no audit"}

	// ErrDamaged means that a part of an inventory is missing or corrupt. The error that wraps it
	// names the part.
	ErrDamaged = &Error{Code: "damaged", Status: 503, RetryAfter: 60, Text: "the inventory is damaged",
		Detail: "the inventory of the set is damaged; see the hub's log for the damaged part"}

	// ErrKeyReused means that an idempotency key was sent again with different content.
	ErrKeyReused = &Error{Code: "key-reused", Status: 422, Text: "idempotency key was already used with different content",
		Detail: "this Idempotency-Key was already used with different content; use a new key"}

	// ErrFull means that the store is full. Nothing was written.
	ErrFull = &Error{Code: "full", Status: 507, Text: "the change memory is full",
		Detail: "the change memory is full, and nothing was written; publish again when its operator has made room"}

	// ErrClock means that two clocks differ by more than the permitted skew: the hub's clock and
	// the store's, or the store's clock and the one that set the datetime of the log's newest entry
	// (see NewClockError). Nothing was written.
	ErrClock = &Error{Code: "clock", Status: 503, RetryAfter: 2, Text: "clocks differ too much",
		Detail: "the clocks of the hub and of its change memory differ too much; nothing was written"}

	// ErrUnavailable means that the store is unreachable. Nothing was written, and the same call
	// may succeed later.
	ErrUnavailable = &Error{Code: "unavailable", Status: 503, RetryAfter: 2, Text: "the change memory is unreachable",
		Detail: "the change memory is unreachable; nothing was written"}

	// ErrOverloaded means that the requests and responses in progress use all memory that the hub
	// reserves for them. The same request may succeed soon.
	ErrOverloaded = &Error{Code: "overloaded", Status: 503, RetryAfter: 2, Text: "too many requests and responses in progress",
		Detail: "the hub has too many large requests and responses in progress; retry soon"}

	// ErrUnknown means that a write was sent to the store, but no reply arrived. The store may or
	// may not have applied it. It is safe to repeat an append with the same key.
	ErrUnknown = &Error{Code: "unknown", Status: 503, RetryAfter: 2, Text: "unknown whether the change memory has applied the write",
		Detail: "it is unknown whether the change memory has applied the write; send it again with the same Idempotency-Key"}
)

// Is reports whether target is an Error with the same Code, even if their other fields differ.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// NewClockError returns a copy of ErrClock for a set whose newest entry, head, is ahead of now by
// more than the permitted skew. Other sets are not affected.
func NewClockError(head Cursor, now time.Time) *Error {
	newest := head.Time().Format(time.RFC3339)
	e := *ErrClock
	e.RetryAfter = 60
	e.Text += fmt.Sprintf(": the newest entry of the set has the datetime %s, but it is %s", newest, now.UTC().Format(time.RFC3339))
	e.Detail = "a clock was wrong when the newest change of this set was published: its datetime is " + newest +
		", in the future. The set accepts no changes until then; nothing was written. To publish earlier, delete the set and create it again"
	return &e
}

// ErrorFromCode returns the Error of this package with the given Code, or nil if there is none.
func ErrorFromCode(code string) *Error {
	for _, e := range []*Error{ErrGone, ErrNoSet, ErrNoInventory, ErrDamaged, ErrKeyReused, ErrFull, ErrClock, ErrUnavailable, ErrOverloaded, ErrUnknown} {
		if e.Code == code {
			return e
		}
	}
	return nil
}
