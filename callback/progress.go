package callback

import (
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// A progress is a subscription.Progress in the form that the engine works with. In a
// sub it is guarded by Engine.mu.
type progress struct {
	point
	gap    feed.Cursor
	gaps   int
	failed int
	next   time.Time
	last   attempts
}

func newProgress(p *subscription.Progress) progress {
	return progress{
		point: point{cursor: p.Cursor, from: p.From, diverged: p.Diverged},
		gap:   p.Gap, gaps: p.Gaps, failed: p.Failed, next: p.Next, last: packAll(p.Last),
	}
}

func (p *progress) unpack() subscription.Progress {
	return subscription.Progress{
		Cursor: p.cursor, From: p.from, Diverged: p.diverged,
		Gap: p.gap, Gaps: p.gaps, Failed: p.failed, Next: p.next, Last: p.last.unpack(),
	}
}
