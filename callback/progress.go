package callback

import (
	"slices"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// A progress is a subscription.Progress in the form that the engine works with.
type progress struct {
	point
	gap    feed.Cursor
	gaps   int
	failed int
	next   time.Time
	last   attempts
}

func newProgress(p *subscription.Progress) progress {
	x := progress{
		point: point{cursor: p.Cursor, from: p.From, diverged: p.Diverged},
		gap:   p.Gap, gaps: p.Gaps, failed: p.Failed, next: p.Next,
	}
	for _, a := range p.Last {
		x.last.add(a)
	}
	return x
}

func (p *progress) unpack() subscription.Progress {
	return subscription.Progress{
		Cursor: p.cursor, From: p.from, Diverged: p.diverged,
		Gap: p.gap, Gaps: p.gaps, Failed: p.failed, Next: p.next, Last: p.last.unpack(),
	}
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
var kinds = []string{"deliver", string(subscription.Subscribe), string(subscription.Unsubscribe), "denied"}

func pack(a subscription.Attempt) attempt {
	return attempt{
		at: a.At.UnixMicro(), took: a.Took, err: a.Error, changes: int32(a.Changes), status: int16(a.Status),
		kind: uint8(max(0, slices.Index(kinds, a.Kind))),
	}
}

// attempts are the newest attempts, oldest first.
type attempts []attempt

func (a attempts) unpack() (all []subscription.Attempt) {
	for _, p := range a {
		all = append(all, subscription.Attempt{
			At: time.UnixMicro(p.at).UTC(), Kind: kinds[p.kind], Status: int(p.status), Took: p.took, Changes: int(p.changes), Error: p.err,
		})
	}
	return all
}

// standing returns the standing of a callback after these attempts. failed is how often
// its deliveries have failed in a row.
func (a attempts) standing(failed int) standing {
	for i := len(a) - 1; i >= 0; i-- {
		switch {
		case kinds[a[i].kind] != "deliver":
		case failed == 0 && a[i].err == "":
			return standingAfter(a[i].took)
		default:
			return doubtful
		}
	}
	if failed > 0 {
		return doubtful
	}
	return untried
}

// slowAfter is how long a success may take that proves a callback.
const slowAfter = time.Second

// standingAfter returns the standing of a callback after a success that took so long.
func standingAfter(took time.Duration) standing {
	if took <= slowAfter {
		return proven
	}
	return doubtful
}

// add adds an attempt, and drops the oldest when there are too many.
func (a *attempts) add(t subscription.Attempt) {
	kept := *a
	if len(kept) == subscription.MaxAttempts {
		kept = kept[1:]
	}
	grown := make(attempts, len(kept)+1) // without spare room, since most subscriptions have few attempts
	copy(grown, kept)
	grown[len(kept)] = pack(t)
	*a = grown
}
