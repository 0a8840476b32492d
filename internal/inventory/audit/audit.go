// Package audit compares two inventories at the same cursor. If their digests differ, it divides
// the locs into ranges and compares the digests of the ranges, repeatedly, until it has found every
// difference.
//
// Compare is the asking end, and Answer the answering end, such as a hub. They exchange a Summary,
// then Questions and Replies, as JSON; docs/audit.md defines them for other implementations.
// Package auditor sends them.
package audit

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
)

// Limits of an audit.
const (
	MaxRanges = 1_024    // ranges of a Question
	MaxListed = 64       // resources in a listed range; a larger range is split
	MaxSplit  = 64       // parts of a split range
	MaxReply  = 32 << 20 // approximate bytes of a Reply as JSON

	maxDetails = 4 << 20 // bytes of entries in a Reply; a single entry may be larger
)

// A Summary describes a state without its resources. If its digest by position or by content equals
// the other end's, both ends are equal.
type Summary struct {
	Set      string
	Cursor   feed.Cursor
	Complete bool // whether the set has all resources of its source
	Count    uint64
	Weak     uint64 // number of resources without a hash, see digest.Version
	Position digest.Digest
	Content  digest.Digest
}

// Summarize returns the Summary of a range of a state. The caller adds Set and Complete.
func Summarize(ctx context.Context, s *inventory.State, r inventory.Range) (Summary, error) {
	t, err := s.Tally(ctx, r)
	if err != nil {
		return Summary{}, err
	}
	return Summary{
		Cursor: s.Cursor(), Count: t.Count, Weak: t.Weak,
		Position: t.Digest(digest.ByPosition), Content: t.Digest(digest.ByContent),
	}, nil
}

// Digest returns one of the two digests.
func (s *Summary) Digest(by digest.By) digest.Digest {
	if by == digest.ByContent {
		return s.Content
	}
	return s.Position
}

// A Question asks which of its ranges differ at a cursor.
type Question struct {
	At      feed.Cursor
	By      digest.By
	Ranges  []RangeQuestion // 1 to MaxRanges; ascending, disjoint
	Details bool            // whether to answer with whole entries; part of the URL, not of the JSON
}

// A RangeQuestion describes the resources of the asking end in a range.
type RangeQuestion struct {
	inventory.Range
	Count  uint64
	Digest digest.Digest
}

// A Reply states which ranges of a Question differ. The answers about one range are consecutive
// from its start to its end. An equal range has no answer.
type Reply struct {
	Set    string
	Cursor feed.Cursor
	Ranges []RangeAnswer // ascending, disjoint
}

// A RangeAnswer describes the resources of the answering end in a range that differs, or in a part
// of such a range.
type RangeAnswer struct {
	inventory.Range
	Count     uint64
	Digest    digest.Digest // zero if Listed
	Listed    bool          // whether Resources has all Count resources
	Resources []Resource    // ordered by loc
}

// A Resource is a resource of a listed range.
type Resource struct {
	Loc      string
	Position uint64
	E        digest.Digest // first 16 bytes of the resource's element
	Entry    *feed.Entry   // newest change; nil unless the Question asked for details and they fit
}

// Answer answers a question about a state, which must be at the cursor of the question. The caller
// adds Set.
//
// A range with at most MaxListed resources is listed; a larger one is split into at most MaxSplit
// parts. So an answer never repeats a range of the question. If the answer would be larger than
// MaxReply, Answer returns a *resourcesync.Error with ErrTooLarge. The answer about a single range
// is never that large. Other errors come from the state.
func Answer(ctx context.Context, s *inventory.State, q Question) (Reply, error) {
	if q.At != s.Cursor() {
		return Reply{}, fmt.Errorf("question is at %v, state is at %v", q.At, s.Cursor())
	}
	a := answerer{Reply: Reply{Cursor: s.Cursor()}, state: s, meter: s.Meter(), question: &q}
	for i := range q.Ranges {
		if err := a.addRange(ctx, &q.Ranges[i]); err != nil {
			return Reply{}, err
		}
		if a.bytes > MaxReply {
			return Reply{}, tooLarge("the answer to the first %d of %d ranges exceeds %d bytes; ask about fewer ranges", i+1, len(q.Ranges), MaxReply)
		}
	}
	return a.Reply, nil
}

// An answerer makes a Reply.
type answerer struct {
	Reply
	state      *inventory.State
	meter      *inventory.Meter
	question   *Question
	bytes      int // approximate size of the Reply as JSON, without entries
	entryBytes int // approximate size of its entries
}

// The approximate sizes of JSON objects without their locs.
const (
	rangeBytes    = 100
	resourceBytes = 90
)

// addRange adds the answers about one range.
func (a *answerer) addRange(ctx context.Context, q *RangeQuestion) error {
	t, err := a.meter.Tally(ctx, q.Range)
	if err != nil || t.Count == q.Count && t.Digest(a.question.By) == q.Digest {
		return err
	}
	if t.Count <= MaxListed {
		return a.listRange(ctx, q.Range, t.Count)
	}
	parts, err := a.state.Split(ctx, q.Range, MaxSplit)
	if err != nil {
		return err
	}
	for i := range parts {
		p := &parts[i]
		a.append(RangeAnswer{Range: p.Range, Count: p.Tally.Count, Digest: p.Tally.Digest(a.question.By)})
	}
	return nil
}

func (a *answerer) append(r RangeAnswer) {
	a.bytes += rangeBytes + len(r.From) + len(r.To)
	a.Ranges = append(a.Ranges, r)
}

// listRange adds a range with its resources. It clones the strings that it keeps of an entry,
// because they keep a decoded page in memory.
func (a *answerer) listRange(ctx context.Context, r inventory.Range, count uint64) error {
	listed := make([]Resource, 0, count)
	for e, err := range a.state.Walk(ctx, r) {
		if err != nil {
			return err
		}
		res := Resource{Loc: strings.Clone(e.Change.Loc), Position: e.Position, E: elementPrefix(e, a.question.By)}
		a.bytes += resourceBytes + len(res.Loc)
		if n := e.Change.Size(); a.question.Details && (a.entryBytes == 0 || a.entryBytes+n <= maxDetails) {
			a.entryBytes += n
			res.Entry = new(e.Clone())
		}
		listed = append(listed, res)
	}
	a.append(RangeAnswer{Range: r, Count: count, Listed: true, Resources: listed})
	return nil
}

// elementPrefix returns the first 16 bytes of the element of a resource.
func elementPrefix(e *feed.Entry, by digest.By) digest.Digest {
	version := strconv.FormatUint(e.Position, 10)
	if by == digest.ByContent {
		version, _ = digest.Version(&e.Change)
	}
	sum := digest.Element(e.Change.Loc, version)
	return digest.Digest(sum[:16])
}
