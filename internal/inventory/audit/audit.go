// Package audit compares two inventories at the same cursor. If their digests differ, it divides
// the locs into ranges and compares the digests of the ranges, again and again, until every
// difference is named.
//
// Compare is the asking end, and Answer the end that is asked, such as a hub. They exchange a Summary,
// then Questions and Replies, as JSON; docs/audit.md defines them for other implementations. The
// package does not send them: package auditor does.
package audit

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// Limits of an audit.
const (
	MaxRanges = 1_024    // the most ranges of a Question
	MaxListed = 64       // the most resources in a range that is listed; a larger range is split
	MaxSplit  = 64       // the most parts of a range that is split
	MaxReply  = 32 << 20 // about the most bytes of a Reply as JSON

	maxDetails = 4 << 20 // the most bytes of entries in a Reply; a single entry may be larger
)

// A Summary describes a state without its resources. An audit begins with it. If its
// digest by position or by content equals the other end's, both ends are equal.
type Summary struct {
	Set      string
	Cursor   feed.Cursor
	Complete bool // the set knows all resources of its source
	Count    uint64
	Weak     uint64 // resources without a hash: only lastmod or length is known, or nothing
	Position digest.Digest
	Content  digest.Digest
}

// Summarize returns the Summary of a range of a state. The caller adds Set and Complete.
func Summarize(ctx context.Context, s *inventory.State, r inventory.Range) (Summary, error) {
	t, err := s.Tally(ctx, r)
	if err != nil {
		return Summary{}, err
	}
	return Summary{Cursor: s.Cursor(), Count: t.Count, Weak: t.Weak, Position: t.Digest(digest.ByPosition), Content: t.Digest(digest.ByContent)}, nil
}

// Digest returns one of the two digests.
func (l *Summary) Digest(by digest.By) digest.Digest {
	if by == digest.ByContent {
		return l.Content
	}
	return l.Position
}

// A Question asks which of its ranges differ at a cursor.
type Question struct {
	At      feed.Cursor
	By      digest.By
	Ranges  []RangeQuestion // at least one, at most MaxRanges; ascending, disjoint
	Details bool            // answer with whole entries; a part of the URL, not of the JSON
}

// A RangeQuestion is a range, and what the asking end holds in it.
type RangeQuestion struct {
	inventory.Range
	Count  uint64
	Digest digest.Digest // of the whole range
}

// A Reply says which ranges of a Question differ. The answers about one range follow
// each other without a gap from its beginning to its end. An equal range has no
// answer.
type Reply struct {
	Set    string
	Cursor feed.Cursor
	Ranges []RangeAnswer // ascending, disjoint
}

// A RangeAnswer is what the answering end holds in a range that differs, or in a part of
// such a range.
type RangeAnswer struct {
	inventory.Range
	Count     uint64
	Digest    digest.Digest // zero if Listed
	Listed    bool          // whether Resources has all Count resources
	Resources []Resource    // in the order of loc
}

// A Resource is one of a range that is listed.
type Resource struct {
	Loc      string
	Position uint64
	E        digest.Digest // the first 16 bytes of the resource's element
	Entry    *feed.Entry   // its newest change, if the Question asked for details and there was room; else nil
}

// Answer answers a question about a state. The state must be at the cursor of the
// question. The caller adds Set.
//
// A range with at most MaxListed resources is listed; a larger one is split into at most
// MaxSplit parts. So an answer never repeats the asked range. If the answer would be
// larger than MaxReply, Answer returns a *resourcesync.Error with ErrTooLarge. The answer
// about a single range is never that large. Other errors are those of the state.
func Answer(ctx context.Context, s *inventory.State, q Question) (Reply, error) {
	if q.At != s.Cursor() {
		return Reply{}, fmt.Errorf("question is at %v, state is at %v", q.At, s.Cursor())
	}
	a := answer{Reply: Reply{Cursor: s.Cursor()}, state: s, meter: s.Meter(), by: q.By, details: q.Details}
	for i := range q.Ranges {
		if err := a.add(ctx, &q.Ranges[i]); err != nil {
			return Reply{}, err
		}
		if a.bytes > MaxReply {
			return Reply{}, &resourcesync.Error{Err: resourcesync.ErrTooLarge,
				Msg: fmt.Sprintf("the answer to the first %d of %d ranges exceeds %d bytes; ask about fewer ranges", i+1, len(q.Ranges), MaxReply)}
		}
	}
	return a.Reply, nil
}

// An answer is a Reply that is being made.
type answer struct {
	Reply
	state   *inventory.State
	meter   *inventory.Meter
	by      digest.By
	details bool
	bytes   int // of the reply as JSON, about
	entries int // bytes of the entries in it, about
}

// About the size of an answer in JSON, without its locs.
const (
	answeredBytes = 100
	resourceBytes = 90
)

// add adds the answers about one range.
func (a *answer) add(ctx context.Context, asked *RangeQuestion) error {
	t, err := a.meter.Tally(ctx, asked.Range)
	switch {
	case err != nil:
		return err
	case t.Count == asked.Count && t.Digest(a.by) == asked.Digest:
		return nil
	case t.Count <= MaxListed:
		if err := a.list(ctx, asked.Range, int(t.Count)); err != nil {
			return err
		}
	default:
		parts, err := a.state.Split(ctx, asked.Range, MaxSplit)
		if err != nil {
			return err
		}
		for i := range parts {
			p := &parts[i]
			a.bytes += answeredBytes + len(p.From) + len(p.To)
			a.Ranges = append(a.Ranges, RangeAnswer{Range: p.Range, Count: p.Tally.Count, Digest: p.Tally.Digest(a.by)})
		}
	}
	return nil
}

// list adds a range with its resources. It clones what it keeps of them, because the
// strings of an entry keep the page in memory from which it was decoded.
func (a *answer) list(ctx context.Context, r inventory.Range, count int) error {
	listed := RangeAnswer{Range: r, Count: uint64(count), Listed: true, Resources: make([]Resource, 0, count)}
	a.bytes += answeredBytes + len(r.From) + len(r.To)
	for e, err := range a.state.Walk(ctx, r) {
		if err != nil {
			return err
		}
		resource := Resource{Loc: strings.Clone(e.Change.Loc), Position: e.Position, E: mark(e, a.by)}
		a.bytes += resourceBytes + len(resource.Loc)
		if a.details {
			if n := e.Change.Size(); a.entries == 0 || a.entries+n <= maxDetails {
				a.entries += n
				resource.Entry = new(e.Clone())
			}
		}
		listed.Resources = append(listed.Resources, resource)
	}
	a.Ranges = append(a.Ranges, listed)
	return nil
}

// mark returns the first 16 bytes of the element of a resource.
func mark(e *feed.Entry, by digest.By) digest.Digest {
	version := strconv.FormatUint(e.Position, 10)
	if by == digest.ByContent {
		version, _ = digest.Version(&e.Change)
	}
	sum := digest.Element(e.Change.Loc, version)
	return digest.Digest(sum[:16])
}
