package callback

import (
	"time"

	"github.com/rshub/rshub/callback/subscription"
)

// An Outcome is what came of a request to a callback, or of a request of a subscriber
// that is refused. It has no secret.
type Outcome struct {
	Set      string
	ID       subscription.ID
	Callback string
	By       string // who made the request, as in subscription.Request
	Kind     string // as that of a subscription.Attempt
	Status   int    // of the callback's answer; 0: there was none
	Error    string // empty: it went right
	Final    bool   // it is not tried again: what the subscriber asked for is refused
}

// outcome returns the Outcome of an attempt for a request.
func outcome(r *subscription.Request, a *subscription.Attempt, final bool) Outcome {
	return Outcome{Set: r.Set, ID: r.ID(), Callback: r.Callback, By: r.By, Kind: string(r.Mode), Status: a.Status, Error: a.Error, Final: final}
}

// An attempt is a subscription.Attempt in less space: each subscription keeps up to
// subscription.MaxAttempts.
type attempt struct {
	at      int64 // microseconds since 1970
	took    time.Duration
	err     string
	changes int32
	status  int16
	kind    uint8 // index in kinds
}

// kinds are the kinds of attempts.
var kinds = [...]string{"deliver", string(subscription.Subscribe), string(subscription.Unsubscribe), "denied"}

func pack(a subscription.Attempt) attempt {
	p := attempt{at: a.At.UnixMicro(), took: a.Took, err: a.Error, changes: int32(a.Changes), status: int16(a.Status)}
	for i, k := range kinds {
		if a.Kind == k {
			p.kind = uint8(i)
		}
	}
	return p
}

func (p attempt) unpack() subscription.Attempt {
	return subscription.Attempt{At: time.UnixMicro(p.at).UTC(), Kind: kinds[p.kind], Status: int(p.status), Took: p.took, Changes: int(p.changes), Error: p.err}
}

// attempts are the newest attempts, oldest first.
type attempts []attempt

func packAll(all []subscription.Attempt) attempts {
	if len(all) == 0 {
		return nil
	}
	packed := make(attempts, len(all))
	for i, a := range all {
		packed[i] = pack(a)
	}
	return packed
}

func (a attempts) unpack() []subscription.Attempt {
	if len(a) == 0 {
		return nil
	}
	all := make([]subscription.Attempt, len(a))
	for i, p := range a {
		all[i] = p.unpack()
	}
	return all
}

// standing returns the standing of a callback after these attempts. failed is how often its
// deliveries have failed in a row.
func (a attempts) standing(failed int) standing {
	for i := len(a) - 1; i >= 0; i-- {
		if kinds[a[i].kind] == "deliver" {
			if failed == 0 && a[i].err == "" && a[i].took <= slowAfter {
				return proven
			}
			return doubtful
		}
	}
	if failed > 0 {
		return doubtful
	}
	return untried
}

// add adds an attempt, and drops the oldest when there are too many.
func (a *attempts) add(t subscription.Attempt) {
	if len(*a) == subscription.MaxAttempts {
		copy(*a, (*a)[1:])
		(*a)[subscription.MaxAttempts-1] = pack(t)
		return
	}
	grown := make(attempts, len(*a)+1) // without spare room, since most subscriptions have few attempts
	copy(grown, *a)
	grown[len(*a)] = pack(t)
	*a = grown
}
