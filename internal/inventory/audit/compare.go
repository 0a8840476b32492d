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

// A Kind says how a resource differs.
type Kind string

// The kinds of differences.
const (
	Missing Kind = "missing" // the other end has the resource, the own end does not
	Stale   Kind = "stale"   // the own end has another version
	Extra   Kind = "extra"   // the own end has the resource, the other end does not
	Unknown Kind = "unknown" // both have the resource, but nothing about it can be compared
)

// A Difference is one resource by which two ends differ.
type Difference struct {
	Kind   Kind
	Loc    string
	Own    *feed.Entry // what the own end has; nil if it has nothing
	Theirs *feed.Entry // what the other end has; nil if it has nothing. If that end gives no details, it has only Loc and Position
}

// An AskFunc asks the other end of a comparison.
type AskFunc func(ctx context.Context, q Question) (Reply, error)

// How Compare asks.
const (
	opening    = 256     // ranges in the first question
	refined    = 8       // parts that a range is cut into before the next question, while there are few ranges
	wholesale  = 1_000   // after so many differences, Compare asks for whole entries at once
	askedBytes = 8 << 20 // about the most bytes of one answer, if all ranges differ
	maxDepth   = 32      // how often a range may be divided. Each time divides the resources by 30 or more
)

// Compare compares a range of a state with the other end, and yields every difference
// once, in no order. When it ends without an error, all that was not yielded is equal.
// An error ends it.
//
// Both ends look at one cursor, that of own. If own has no cursor because it was made
// without the log, ask puts the cursor of a Summary into each question. By position, every
// difference is real. By content, a difference is only a candidate, unless own is
// exactly as old as that cursor: see Confirm.
//
// If both ends have a resource, Compare uses the strongest evidence that both have. So
// two versions may be the same although their digests differ, for instance if one end
// knows a hash and the other only a length.
//
// Compare asks once if both ends are equal. If a few resources differ, it asks two or
// three times, the last time for their entries. It blocks while ask blocks.
func Compare(ctx context.Context, own *inventory.State, by digest.By, r inventory.Range, ask AskFunc) iter.Seq2[Difference, error] {
	return func(yield func(Difference, error) bool) {
		c := &comparison{own: own, meter: own.Meter(), by: by, ask: ask, yield: yield}
		parts, err := own.Split(ctx, r, opening)
		if err == nil {
			for _, p := range parts {
				c.open = append(c.open, open{Part: p})
			}
			err = c.run(ctx)
		}
		if err != nil && err != errEnough {
			yield(Difference{}, err)
		}
	}
}

// Confirm takes a second look at the differences that Compare found by content, and
// yields those that are unchanged and that the log does not name. own is the present
// state of the own end. ask asks at a later cursor than Compare did. named reports
// whether the log names a loc between the two cursors, the later one included.
//
// Both ends change during a comparison, but not at the same moment. So a changed
// resource seems to differ until its change is in the log. If a resource differs and no
// change in the log explains it, the difference is real.
func Confirm(ctx context.Context, own *inventory.State, candidates []Difference, named func(loc string) bool, ask AskFunc) iter.Seq2[Difference, error] {
	return func(yield func(Difference, error) bool) {
		first := make(map[string]*Difference, len(candidates))
		c := &comparison{own: own, meter: own.Meter(), by: digest.ByContent, ask: ask}
		c.yield = func(d Difference, err error) bool { return !d.like(first[d.Loc]) || yield(d, err) }
		for i := range candidates {
			d := &candidates[i]
			if first[d.Loc] != nil || named(d.Loc) {
				continue
			}
			first[d.Loc] = d
			t, err := own.Tally(ctx, one(d.Loc))
			if err != nil {
				yield(Difference{}, err)
				return
			}
			c.single = append(c.single, open{Part: inventory.Part{Range: one(d.Loc), Tally: t}})
		}
		if err := c.run(ctx); err != nil && err != errEnough {
			yield(Difference{}, err)
		}
	}
}

// like reports whether two looks saw the same difference of a resource.
func (d *Difference) like(first *Difference) bool {
	if first == nil || d.Kind != first.Kind {
		return false
	}
	if d.Own == nil {
		return first.Own == nil
	}
	now, _ := digest.Version(&d.Own.Change)
	before, _ := digest.Version(&first.Own.Change)
	return now == before
}

// one returns the range of one loc.
func one(loc string) inventory.Range { return inventory.Range{From: loc, To: loc + "\x00"} }

// errEnough means that the caller wants no more differences.
var errEnough = errors.New("enough")

type comparison struct {
	own   *inventory.State
	meter *inventory.Meter // of own
	by    digest.By
	ask   AskFunc
	yield func(Difference, error) bool
	at    *feed.Cursor // of all replies

	open   []open // ranges to ask about
	single []open // ranges of one differing resource each, whose entries have to be asked for
	asked  int    // how many of single there were so far
	again  bool   // ask again for entries that are missing in an answer, because the other end does send entries
}

// An open is a range that is not compared yet.
type open struct {
	inventory.Part     // the range, with the tally of the own end
	depth          int // how often the range has been divided
}

// run asks until nothing is open.
func (c *comparison) run(ctx context.Context) error {
	for len(c.open)+len(c.single) > 0 {
		var asked []open
		var err error
		single := len(c.open) == 0 || len(c.single) >= MaxRanges
		if single {
			asked = take(&c.single)
		} else if asked, err = c.refine(ctx, take(&c.open)); err != nil {
			return err
		}
		q := Question{At: c.own.Cursor(), By: c.by, Details: single || c.asked > wholesale, Ranges: make([]RangeQuestion, len(asked))}
		for i := range asked {
			q.Ranges[i] = RangeQuestion{asked[i].Range, asked[i].Tally.Count, asked[i].Tally.Digest(c.by)}
		}
		reply, err := c.ask(ctx, q)
		if err != nil {
			return fmt.Errorf("ask about %d ranges: %w", len(asked), err)
		}
		if c.at == nil {
			c.at = &reply.Cursor
		}
		if reply.Cursor != *c.at || !c.own.Cursor().IsZero() && reply.Cursor != c.own.Cursor() {
			return resourcesync.Invalidf("cursor of the answer: got %v, want %v", reply.Cursor, q.At)
		}
		c.again = !single || slices.ContainsFunc(reply.Ranges, func(a RangeAnswer) bool {
			return slices.ContainsFunc(a.Resources, func(r Resource) bool { return r.Entry != nil })
		})
		if err := c.take(ctx, asked, reply.Ranges); err != nil {
			return err
		}
	}
	return nil
}

// take removes the ranges of the next question from those that are open, and returns
// them in order. It takes the newest ranges first, so that few are open at any time.
func take(from *[]open) []open {
	all := *from
	i, bytes := len(all), 0
	for i > 0 && len(all)-i < MaxRanges && bytes < askedBytes {
		i--
		bytes += MaxListed * (100 + len(all[i].From) + len(all[i].To))
	}
	asked := slices.Clone(all[i:])
	*from = all[:i]
	slices.SortFunc(asked, func(a, b open) int { return strings.Compare(a.From, b.From) })
	return asked
}

// refine cuts ranges into smaller ones, if there are few. That costs little, and the
// answer then lists fewer equal resources.
func (c *comparison) refine(ctx context.Context, asked []open) ([]open, error) {
	if asked[0].depth == 0 || len(asked)*refined > opening {
		return asked, nil
	}
	var smaller []open
	for _, o := range asked {
		parts := []inventory.Part{o.Part}
		if o.Tally.Count > 1 {
			var err error
			if parts, err = c.own.Split(ctx, o.Range, refined); err != nil {
				return nil, err
			}
		}
		for _, p := range parts {
			smaller = append(smaller, open{p, o.depth})
		}
	}
	return smaller, nil
}

// take takes the answers about the ranges that were asked.
func (c *comparison) take(ctx context.Context, asked []open, answers []RangeAnswer) error {
	for i := range asked {
		o := &asked[i]
		n := 0
		for n < len(answers) && (o.To == "" || answers[n].From < o.To) {
			n++
		}
		if err := c.takeOne(ctx, o, answers[:n]); err != nil {
			return err
		}
		answers = answers[n:]
	}
	if len(answers) > 0 {
		return resourcesync.Invalidf("the answer has an unexpected range from %q", resourcesync.Shorten(answers[0].From))
	}
	return nil
}

// takeOne takes the answers about one range. No answer means that the range is
// equal.
func (c *comparison) takeOne(ctx context.Context, o *open, answers []RangeAnswer) error {
	if len(answers) == 0 {
		return nil
	}
	if len(answers) == 1 && !answers[0].Listed || o.depth == maxDepth {
		return resourcesync.Invalidf("the answer to the range from %q does not split it", resourcesync.Shorten(o.From))
	}
	at := o.From
	for i := range answers {
		a := &answers[i]
		last := i == len(answers)-1
		if a.From != at || last != (a.To == o.To) || !last && (a.To <= a.From || o.To != "" && a.To > o.To) {
			return resourcesync.Invalidf("the answer to the range from %q has a gap or disorder at %q", resourcesync.Shorten(o.From), resourcesync.Shorten(a.From))
		}
		at = a.To
		if err := c.takeAnswer(ctx, o, a); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) takeAnswer(ctx context.Context, o *open, a *RangeAnswer) error {
	if a.Listed || a.Count == 0 {
		return c.compare(ctx, a)
	}
	t, err := c.meter.Tally(ctx, a.Range)
	if err != nil {
		return err
	}
	if t.Count != a.Count || t.Digest(c.by) != a.Digest {
		c.open = append(c.open, open{inventory.Part{Range: a.Range, Tally: t}, o.depth + 1})
	}
	return nil
}

// compare compares the own resources in a range with all those of the other end.
func (c *comparison) compare(ctx context.Context, a *RangeAnswer) error {
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
		for len(theirs) > 0 && theirs[0].Loc < own.Change.Loc {
			if err := c.differ(nil, &theirs[0]); err != nil {
				return err
			}
			theirs = theirs[1:]
		}
		var same *Resource
		if len(theirs) > 0 && theirs[0].Loc == own.Change.Loc {
			same, theirs = &theirs[0], theirs[1:]
			if mark(own, c.by) == same.E {
				continue
			}
		}
		if err := c.differ(own, same); err != nil {
			return err
		}
	}
	for i := range theirs {
		if err := c.differ(nil, &theirs[i]); err != nil {
			return err
		}
	}
	return nil
}

// differ compares what the two ends say about a resource, and yields the difference,
// if there is one. If the other end's entry is missing, it asks for the entry first.
func (c *comparison) differ(own *feed.Entry, theirs *Resource) error {
	if theirs != nil && theirs.Entry == nil && c.again {
		p := inventory.Part{Range: one(theirs.Loc)}
		if own != nil {
			p.Tally = digest.TallyOf(own)
		}
		c.single = append(c.single, open{Part: p})
		c.asked++
		return nil
	}
	var d Difference
	if own != nil {
		d.Own, d.Kind = new(own.Clone()), Extra
		d.Loc = d.Own.Change.Loc
	}
	if theirs != nil {
		d.Theirs, d.Kind = &feed.Entry{Cursor: feed.Cursor{Position: theirs.Position}, Change: resourcesync.Change{Loc: theirs.Loc}}, Missing
		if theirs.Entry != nil {
			d.Theirs = theirs.Entry
		}
		d.Theirs = new(d.Theirs.Clone())
		d.Loc = d.Theirs.Change.Loc
	}
	if d.Own != nil && d.Theirs != nil {
		d.Kind = Stale
		if c.by == digest.ByContent {
			same, known := SameContent(&d.Own.Change, &d.Theirs.Change)
			switch {
			case same:
				return nil
			case !known:
				d.Kind = Unknown
			}
		}
	}
	if !c.yield(d, nil) {
		return errEnough
	}
	return nil
}
