package audit

import (
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// A Proof states that two ends held the same resources of a set at a cursor.
type Proof struct {
	Set    string
	Prefix string // prefix of the loc of all resources
	By     digest.By
	Cursor feed.Cursor
	Count  uint64
	Digest digest.Digest
}

// Question returns the question whose reply has no ranges if the other end held the same.
func (p *Proof) Question() Question {
	return Question{At: p.Cursor, By: p.By, Ranges: []RangeQuestion{{inventory.Prefix(p.Prefix), p.Count, p.Digest}}}
}

// ProofOf converts a question to the Proof that its reply confirms by having no ranges. The caller
// adds Set. An error is a *resourcesync.Error with ErrInvalid: the question is not about all
// resources, or all with a prefix.
func ProofOf(q Question) (Proof, error) {
	if len(q.Ranges) != 1 || q.Ranges[0].Range != inventory.Prefix(q.Ranges[0].From) {
		return Proof{}, resourcesync.Invalidf("a question with a name must have one range: all resources, or those with a prefix")
	}
	r := &q.Ranges[0]
	return Proof{Prefix: r.From, By: q.By, Cursor: q.At, Count: r.Count, Digest: r.Digest}, nil
}
