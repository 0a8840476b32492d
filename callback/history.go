package callback

import (
	"slices"
	"time"

	"github.com/rshub/rshub/callback/subscription"
)

// A history is the latest attempts to call a callback, oldest first, in half of the memory that a
// slice of subscription.Attempt takes. It is never modified.
type history []attempt

type attempt struct {
	at      int64 // microseconds since 1970
	took    time.Duration
	err     string
	status  uint16
	changes uint16
	kind    uint8 // index in attemptKinds
}

// attemptKinds are the values of subscription.Attempt.Kind.
var attemptKinds = []string{kindDelivery, string(subscription.Subscribe), string(subscription.Unsubscribe), "denied"}

const kindDelivery = "deliver"

func newHistory(last []subscription.Attempt) history {
	h := make(history, len(last))
	for i, a := range last {
		h[i] = newAttempt(a)
	}
	return h
}

func newAttempt(a subscription.Attempt) attempt {
	return attempt{
		at: a.At.UnixMicro(), took: a.Took, err: a.Error,
		status: uint16(a.Status), changes: uint16(a.Changes), kind: uint8(max(0, slices.Index(attemptKinds, a.Kind))),
	}
}

// with returns a history with one more attempt.
func (h history) with(a subscription.Attempt) history {
	h = h[max(0, len(h)+1-subscription.MaxAttempts):]
	all := make(history, len(h)+1) // without room for more, since most subs have few attempts
	copy(all, h)
	all[len(h)] = newAttempt(a)
	return all
}

func (h history) attempts() []subscription.Attempt {
	all := make([]subscription.Attempt, len(h))
	for i, a := range h {
		all[i] = subscription.Attempt{
			At: time.UnixMicro(a.at).UTC(), Kind: attemptKinds[a.kind], Status: int(a.status), Took: a.took, Changes: int(a.changes), Error: a.err,
		}
	}
	return all
}
