package client

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A RefusedError reports a request that the hub would refuse again, because the token, the set, an
// entry, or the cursor is invalid. errors.Is finds the feed.Error that the response names, such as
// feed.ErrGone.
type RefusedError struct {
	*feed.Problem

	Location string // target of a redirect that the Client did not follow, or empty

	// Uncertain reports whether the hub may have the changes of the refused publish anyway, because
	// it may have accepted an earlier attempt.
	Uncertain bool
}

// Error returns the status and the reason that the hub gave.
func (r *RefusedError) Error() string {
	s := fmt.Sprintf("hub refused the request: %d %s", r.Status, r.Title)
	if r.Detail != "" {
		s += ": " + r.Detail
	}
	return s
}

// Unwrap returns r.Problem.
func (r *RefusedError) Unwrap() error { return r.Problem }

// Is reports whether target is resourcesync.ErrTooLarge and the status is 413.
func (r *RefusedError) Is(target error) bool {
	return target == resourcesync.ErrTooLarge && r.Status == http.StatusRequestEntityTooLarge
}

// An UnavailableError reports that the hub was unreachable or not ready: it responded with 5xx, 429
// or 408. Unless it is Unsent, the hub may have the changes of the publish anyway. It is safe to
// publish them again later with the same key.
type UnavailableError struct {
	Err   error // cause of the last failure; if the hub responded, it wraps the *feed.Problem
	Tries int   // number of requests sent

	// Permanent reports whether retrying is useless, because the certificate is invalid or because
	// the server speaks HTTP and the URL has https.
	Permanent bool

	// Unsent reports whether no attempt got as far as a connection, so that the hub has none of the
	// changes.
	Unsent bool

	// RetryAfter is not zero if the Client gave up early, since the hub asked for this delay, which
	// exceeds the rest of RetryTimeout.
	RetryAfter time.Duration

	slow       bool          // whether the time limit expired while the response was read
	retryAfter time.Duration // delay that the hub asked for; unlike RetryAfter, also set if RetryTimeout permits it
}

// Error returns the cause of the last failure, and why the Client gave up.
func (u *UnavailableError) Error() string {
	switch {
	case u.RetryAfter > 0:
		return fmt.Sprintf("%v; the hub asks to retry in %v, which exceeds the retry timeout", u.Err, u.RetryAfter)
	case u.Tries > 1:
		return fmt.Sprintf("%v; gave up after %d tries", u.Err, u.Tries)
	}
	return u.Err.Error()
}

// Unwrap returns u.Err.
func (u *UnavailableError) Unwrap() error { return u.Err }

// ErrNotHub means that a response does not come from a hub, or is the response to another request.
// Most likely the URL is wrong. Test for it with errors.Is.
var ErrNotHub = errors.New("response is not from a hub; check the URL")

// A notHubError is an ErrNotHub with another text.
type notHubError string

func (s notHubError) Error() string        { return string(s) }
func (s notHubError) Is(target error) bool { return target == ErrNotHub }

// A statusError reports a response of the hub after which the Client may retry.
type statusError struct {
	hub feed.Base
	*feed.Problem
}

func (a *statusError) Error() string {
	s := fmt.Sprintf("%s: %d %s", a.hub, a.Status, http.StatusText(a.Status))
	if a.Detail != "" {
		s += " (" + a.Detail + ")"
	}
	return s
}

func (a *statusError) Unwrap() error { return a.Problem }
