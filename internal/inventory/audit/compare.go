package audit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// A Kind is the kind of a Difference.
type Kind string

// Kinds of differences.
const (
	Missing Kind = "missing" // only the other end has the resource
	Stale   Kind = "stale"   // the own end has another version
	Extra   Kind = "extra"   // only the own end has the resource
	Unknown Kind = "unknown" // both have the resource, but no comparable information about it
)

// A Difference is a resource that differs between two ends.
type Difference struct {
	Kind   Kind
	Loc    string
	Own    *feed.Entry // own resource; nil if absent
	Theirs *feed.Entry // other end's resource; nil if absent; only Loc and Position are set if it gives no details
}

// An AskFunc asks the other end of a comparison.
type AskFunc func(ctx context.Context, q Question) (Reply, error)

const (
	firstRanges  = 256     // ranges in the first question
	refinedParts = 8       // parts of a range in the next question, while there are few ranges
	detailsAfter = 1_000   // differences after which every question asks for details
	maxAnswer    = 8 << 20 // approximate bytes of an answer if all ranges differ
	maxDepth     = 32      // divisions of a range; each one divides the resources by 30 or more
)

// Compare compares a range of a state with the other end. It yields each difference once, in no
// order. If it ends without an error, everything that it did not yield is equal. An error ends it.
//
// Both ends compare at own's cursor. If own has no cursor because it was made without the log, ask
// sets the cursor of a Summary in each question. By position, every difference is real. By content,
// a difference is only a candidate, unless own is exactly as old as that cursor: see Confirm.
//
// If both ends have a resource, Compare uses the strongest evidence that both have. So two versions
// can be equal although their digests differ, for example if one end knows a hash and the other
// only a length.
//
// Compare asks once if both ends are equal. If a few resources differ, it asks two or three times,
// the last time for their entries. It blocks while ask blocks.
func Compare(ctx context.Context, own *inventory.State, by digest.By, r inventory.Range, ask AskFunc) iter.Seq2[Difference, error] {
	return func(yield func(Difference, error) bool) {
		c := &comparison{own: own, meter: own.Meter(), by: by, ask: ask, yield: yield}
		parts, err := own.Split(ctx, r, firstRanges)
		for _, p := range parts {
			c.pending = append(c.pending, pendingRange{Part: p})
		}
		if err == nil {
			err = c.run(ctx)
		}
		if err != nil && err != errStopped {
			yield(Difference{}, err)
		}
	}
}

// Confirm checks the differences that Compare found by content again. It yields those that are
// unchanged and that the log does not name. own is the current state of the own end. ask asks at a
// later cursor than it did for Compare. named reports whether the log names a loc between the two
// cursors, including the later one.
//
// Both ends change during a comparison, but not at the same moment, so a changed resource seems to
// differ until its change is in the log. If no change in the log explains a difference, it is real.
func Confirm(ctx context.Context, own *inventory.State, candidates []Difference, named func(loc string) bool, ask AskFunc) iter.Seq2[Difference, error] {
	return func(yield func(Difference, error) bool) {
		first := make(map[string]*Difference, len(candidates))
		c := &comparison{own: own, meter: own.Meter(), by: digest.ByContent, ask: ask}
		c.yield = func(d Difference, err error) bool { return !d.equal(first[d.Loc]) || yield(d, err) }
		for i := range candidates {
			d := &candidates[i]
			if first[d.Loc] != nil || named(d.Loc) {
				continue
			}
			first[d.Loc] = d
			r := singleRange(d.Loc)
			t, err := own.Tally(ctx, r)
			if err != nil {
				yield(Difference{}, err)
				return
			}
			c.pendingSingle = append(c.pendingSingle, pendingRange{Part: inventory.Part{Range: r, Tally: t}})
		}
		if err := c.run(ctx); err != nil && err != errStopped {
			yield(Difference{}, err)
		}
	}
}

// equal reports whether d equals an earlier difference of the same resource, which may be nil.
func (d *Difference) equal(earlier *Difference) bool {
	if earlier == nil || d.Kind != earlier.Kind || d.Kind == Missing {
		return earlier != nil && d.Kind == earlier.Kind
	}
	now, _ := digest.Version(&d.Own.Change)
	before, _ := digest.Version(&earlier.Own.Change)
	return now == before
}

// singleRange returns the range of one loc.
func singleRange(loc string) inventory.Range { return inventory.Range{From: loc, To: loc + "\x00"} }

var errStopped = errors.New("the caller stopped the iteration")

// A comparison is one call of Compare or Confirm.
type comparison struct {
	own   *inventory.State
	meter *inventory.Meter // of own
	by    digest.By
	ask   AskFunc
	yield func(Difference, error) bool
	at    *feed.Cursor // cursor of all replies; nil before the first reply

	pending       []pendingRange // ranges to ask about
	pendingSingle []pendingRange // ranges of one differing resource each, whose entry is needed
	singles       int            // number of ranges ever added to pendingSingle
	askAgain      bool           // whether to ask again for entries that the current reply lacks
}

// A pendingRange is a range that was not compared yet.
type pendingRange struct {
	inventory.Part     // range and tally of the own end
	depth          int // number of divisions so far
}

// run asks until no range is pending.
func (c *comparison) run(ctx context.Context) error {
	for len(c.pending)+len(c.pendingSingle) > 0 {
		var asked []pendingRange
		single := len(c.pending) == 0 || len(c.pendingSingle) >= MaxRanges
		if single {
			asked = popRanges(&c.pendingSingle)
		} else {
			var err error
			if asked, err = c.refine(ctx, popRanges(&c.pending)); err != nil {
				return err
			}
		}
		reply, err := c.askAbout(ctx, asked, single || c.singles > detailsAfter)
		if err != nil {
			return err
		}
		// A reply with an entry settles at least that resource, so asking again ends.
		c.askAgain = !single || slices.ContainsFunc(reply.Ranges, func(a RangeAnswer) bool {
			return slices.ContainsFunc(a.Resources, func(r Resource) bool { return r.Entry != nil })
		})
		if err := c.evaluateReply(ctx, asked, reply.Ranges); err != nil {
			return err
		}
	}
	return nil
}

// popRanges removes the ranges for the next question from pending, and returns them in order. It
// takes the newest ranges, so that few are pending at any time.
func popRanges(pending *[]pendingRange) []pendingRange {
	all := *pending
	i, bytes := len(all), 0
	for i > 0 && len(all)-i < MaxRanges && bytes < maxAnswer {
		i--
		bytes += MaxListed * (rangeBytes + len(all[i].From) + len(all[i].To))
	}
	popped := slices.Clone(all[i:])
	*pending = all[:i]
	slices.SortFunc(popped, func(a, b pendingRange) int { return strings.Compare(a.From, b.From) })
	return popped
}

// refine divides ranges if there are few. That costs little, and the answer then lists fewer equal
// resources.
func (c *comparison) refine(ctx context.Context, ranges []pendingRange) ([]pendingRange, error) {
	if ranges[0].depth == 0 || len(ranges)*refinedParts > firstRanges {
		return ranges, nil
	}
	var refined []pendingRange
	for _, r := range ranges {
		parts, err := []inventory.Part{r.Part}, error(nil)
		if r.Tally.Count > 1 {
			if parts, err = c.own.Split(ctx, r.Range, refinedParts); err != nil {
				return nil, err
			}
		}
		for _, p := range parts {
			refined = append(refined, pendingRange{p, r.depth})
		}
	}
	return refined, nil
}

// askAbout asks about ranges, and checks the cursor of the reply.
func (c *comparison) askAbout(ctx context.Context, ranges []pendingRange, details bool) (Reply, error) {
	q := Question{At: c.own.Cursor(), By: c.by, Details: details, Ranges: make([]RangeQuestion, len(ranges))}
	for i := range ranges {
		r := &ranges[i]
		q.Ranges[i] = RangeQuestion{r.Range, r.Tally.Count, r.Tally.Digest(c.by)}
	}
	reply, err := c.ask(ctx, q)
	if err != nil {
		return reply, fmt.Errorf("ask about %d ranges: %w", len(ranges), err)
	}
	if c.at == nil {
		c.at = &reply.Cursor
	}
	if reply.Cursor != *c.at || !q.At.IsZero() && reply.Cursor != q.At {
		return reply, resourcesync.Invalidf("cursor of the answer: got %v, want %v", reply.Cursor, q.At)
	}
	return reply, nil
}

// evaluateReply assigns the answers to the ranges of the question. A range without answers is equal.
func (c *comparison) evaluateReply(ctx context.Context, asked []pendingRange, answers []RangeAnswer) error {
	for i := range asked {
		r := &asked[i]
		n := 0
		for n < len(answers) && (r.To == "" || answers[n].From < r.To) {
			n++
		}
		if err := checkAnswers(r, answers[:n]); err != nil {
			return err
		}
		for k := range answers[:n] {
			if err := c.evaluateAnswer(ctx, r, &answers[k]); err != nil {
				return err
			}
		}
		answers = answers[n:]
	}
	if len(answers) > 0 {
		return resourcesync.Invalidf("the answer has an unexpected range from %q", resourcesync.Shorten(answers[0].From))
	}
	return nil
}

// checkAnswers checks that the answers about a range cover it without gaps, and make progress: the
// answering end could otherwise hide differences, or be asked forever.
func checkAnswers(r *pendingRange, answers []RangeAnswer) error {
	if len(answers) == 1 && !answers[0].Listed || len(answers) > 0 && r.depth == maxDepth {
		return resourcesync.Invalidf("the answer to the range from %q does not split it", resourcesync.Shorten(r.From))
	}
	start := r.From
	for i := range answers {
		a := &answers[i]
		last := i == len(answers)-1
		if a.From != start || last != (a.To == r.To) || !last && (a.To <= a.From || r.To != "" && a.To > r.To) {
			return resourcesync.Invalidf("the answer to the range from %q has a gap or disorder at %q", resourcesync.Shorten(r.From), resourcesync.Shorten(a.From))
		}
		start = a.To
	}
	return nil
}

// evaluateAnswer compares the resources of a listed range, and makes a part that differs pending.
func (c *comparison) evaluateAnswer(ctx context.Context, asked *pendingRange, a *RangeAnswer) error {
	if a.Listed || a.Count == 0 {
		return c.compareListed(ctx, a)
	}
	t, err := c.meter.Tally(ctx, a.Range)
	if err == nil && (t.Count != a.Count || t.Digest(c.by) != a.Digest) {
		c.pending = append(c.pending, pendingRange{inventory.Part{Range: a.Range, Tally: t}, asked.depth + 1})
	}
	return err
}

// compareListed merges the own resources in a range with all resources of the other end.
func (c *comparison) compareListed(ctx context.Context, a *RangeAnswer) error {
	if uint64(len(a.Resources)) != a.Count {
		return resourcesync.Invalidf("the answer lists %d resources, count is %d", len(a.Resources), a.Count)
	}
	for i := range a.Resources {
		if loc := a.Resources[i].Loc; !a.Has(loc) || loc == "" || i > 0 && loc <= a.Resources[i-1].Loc {
			return resourcesync.Invalidf("the answer lists %q out of order or out of range", resourcesync.Shorten(loc))
		}
	}
	theirs := a.Resources
	for own, err := range c.own.Walk(ctx, a.Range) {
		if err != nil {
			return err
		}
		n, found := slices.BinarySearchFunc(theirs, own.Change.Loc, func(r Resource, loc string) int { return strings.Compare(r.Loc, loc) })
		if err := c.addMissing(theirs[:n]); err != nil {
			return err
		}
		var same *Resource
		if theirs = theirs[n:]; found {
			same, theirs = &theirs[0], theirs[1:]
		}
		if found && elementPrefix(own, c.by) == same.E {
			continue
		}
		if err := c.addDifference(own, same); err != nil {
			return err
		}
	}
	return c.addMissing(theirs)
}

func (c *comparison) addMissing(theirs []Resource) error {
	for i := range theirs {
		if err := c.addDifference(nil, &theirs[i]); err != nil {
			return err
		}
	}
	return nil
}

// addDifference yields the difference of a resource, unless both ends have the same content. One of
// own and theirs may be nil. If the other end's entry is needed, it makes the resource pending.
func (c *comparison) addDifference(own *feed.Entry, theirs *Resource) error {
	if theirs != nil && theirs.Entry == nil && c.askAgain {
		p := inventory.Part{Range: singleRange(theirs.Loc)}
		if own != nil {
			p.Tally = digest.TallyOf(own)
		}
		c.pendingSingle = append(c.pendingSingle, pendingRange{Part: p})
		c.singles++
		return nil
	}
	d := Difference{Kind: Stale}
	if theirs == nil {
		d.Kind = Extra
	} else {
		d.Theirs = &feed.Entry{Cursor: feed.Cursor{Position: theirs.Position}, Change: resourcesync.Change{Loc: theirs.Loc}}
		if theirs.Entry != nil {
			d.Theirs = theirs.Entry
		}
		d.Theirs = new(d.Theirs.Clone())
		d.Loc = d.Theirs.Change.Loc
	}
	if own == nil {
		d.Kind = Missing
	} else {
		d.Own = new(own.Clone())
		d.Loc = d.Own.Change.Loc
	}
	if d.Kind == Stale && c.by == digest.ByContent {
		same, known := SameContent(&d.Own.Change, &d.Theirs.Change)
		if same {
			return nil
		}
		if !known {
			d.Kind = Unknown
		}
	}
	if !c.yield(d, nil) {
		return errStopped
	}
	return nil
}
