package client

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Refused is an answer that the same request would get again, because the token, the
// set, an entry, or the place to follow from is wrong. errors.Is finds the feed.Error
// that the hub's answer names, such as feed.ErrGone.
type Refused struct {
	*feed.Problem

	Location string // where the answer redirects to; the Client did not follow it

	// Doubt says that the hub may still have the changes of a refused publish: it may
	// have accepted them from an earlier try.
	Doubt bool
}

// Error returns the status, and the reason that the hub gives.
func (r *Refused) Error() string {
	s := fmt.Sprintf("the hub refused it: %d %s", r.Status, r.Title)
	if r.Detail != "" {
		s += ": " + r.Detail
	}
	return s
}

// Unwrap returns the Problem.
func (r *Refused) Unwrap() error { return r.Problem }

// Is reports whether target is resourcesync.ErrTooLarge and the hub answered 413.
func (r *Refused) Is(target error) bool {
	return target == resourcesync.ErrTooLarge && r.Status == http.StatusRequestEntityTooLarge
}

// An Unavailable says that the hub could not be reached, or was not ready: it answered
// 5xx, 429 or 408. Unless it is Unsent, the hub may still have the changes of the
// publish. It is safe to publish them again later with the same key.
type Unavailable struct {
	Err     error         // why the last try failed; if the hub answered, errors.AsType finds the *feed.Problem in it
	Tries   int           // how many requests were sent
	Lasting bool          // trying again does not help: the certificate is bad, or the server speaks https and not http
	Unsent  bool          // no try got as far as a connection, so the hub surely has none of the changes
	After   time.Duration // not 0: the Client gave up early, because the hub asked it to wait this long, which is more than Patience

	slow  bool          // the time was over while the answer came
	after time.Duration // how long the hub asks to wait; unlike After, also set if Patience allows it
}

// Error returns why the last try failed, and why there was no other try.
func (u *Unavailable) Error() string {
	switch {
	case u.After > 0:
		return fmt.Sprintf("%v; it asks to come again in %v, and patience does not reach that far", u.Err, u.After)
	case u.Tries > 1:
		return fmt.Sprintf("%v; gave up after %d tries", u.Err, u.Tries)
	}
	return u.Err.Error()
}

// Unwrap returns Err.
func (u *Unavailable) Unwrap() error { return u.Err }

// ErrNoHub means that the answer does not come from a hub, or answers another
// request. Most likely the URL is wrong.
var ErrNoHub = errors.New("not as a hub does; is the URL right?")

// A strange is an ErrNoHub with another text.
type strange string

func (s strange) Error() string        { return string(s) }
func (s strange) Is(target error) bool { return target == ErrNoHub }

// An answer is the error for an answer of the hub after which the Client may try again.
type answer struct {
	hub feed.Base
	*feed.Problem
}

func (a *answer) Error() string {
	s := fmt.Sprintf("%s answers %d %s", a.hub, a.Status, http.StatusText(a.Status))
	if a.Detail != "" {
		s += " (" + a.Detail + ")"
	}
	return s
}

func (a *answer) Unwrap() error { return a.Problem }
