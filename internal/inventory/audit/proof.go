package audit

import (
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// A Proof is what one end held of a set at a cursor, when the other end held the same.
type Proof struct {
	Set    string
	Prefix string // only of resources whose loc begins with it
	By     digest.By
	Cursor feed.Cursor
	Count  uint64
	Digest digest.Digest
}

// Question returns the question whose reply shows whether the other end holds the same.
// Then the reply has no ranges.
func (p *Proof) Question() Question {
	return Question{At: p.Cursor, By: p.By, Ranges: []RangeQuestion{{inventory.Prefix(p.Prefix), p.Count, p.Digest}}}
}

// ProofOf returns the Proof that a question is, if its reply has no ranges. The caller adds
// Set. An error is a *resourcesync.Error with ErrInvalid: the question is about something
// else than all resources, or all with a prefix.
func ProofOf(q Question) (Proof, error) {
	if len(q.Ranges) != 1 || q.Ranges[0].Range != inventory.Prefix(q.Ranges[0].From) {
		return Proof{}, resourcesync.Invalidf("a question with a name must have one range: all resources, or those with a prefix")
	}
	r := &q.Ranges[0]
	return Proof{Prefix: r.From, By: q.By, Cursor: q.At, Count: r.Count, Digest: r.Digest}, nil
}
