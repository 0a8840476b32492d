package callback

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/resourcesync"
)

const (
	fetchBatch = 1000                  // changes that are published at once
	fetchRaces = 10                    // times that another hub was faster
	raceWait   = 10 * time.Millisecond // doubling: what was faster may not be readable yet
	knownPage  = 1000                  // entries
	knownMax   = 50_000                // the same: a log that has nothing of the source in them is new to it
	maxAhead   = time.Hour             // of a source's clock: a datetime that is far off would hide all that is earlier
)

// A known is what a set's log has of its source: everything up to a datetime of
// the source's, and of that datetime what is counted. A source's list is in the
// order of its datetimes (core section 12), so what is later is new.
type known struct {
	datetime time.Time        // zero: the log has nothing of the source
	counts   map[fact]int     // entries of that datetime
	cursor   changelog.Cursor // of the newest of them; where there is none, where the search ended
}

// A fact is what happened at some datetime.
type fact struct {
	loc    string
	change resourcesync.ChangeType
}

// readKnown looks from the head of a set's log back for the newest datetime of
// the source. It does not stop at the first: entries that others published
// between may have older ones, or none.
func readKnown(ctx context.Context, log changelog.Log, set string) (known, error) {
	k := known{counts: map[fact]int{}}
	state, err := log.State(ctx, set)
	if err != nil {
		return k, err
	}
	least := state.Floor.Position
	if state.Head.Position > knownMax {
		least = max(least, state.Head.Position-knownMax)
	}
	end := state.Head
	for end.Position > least {
		begin := least
		if end.Position > knownPage {
			begin = max(begin, end.Position-knownPage)
		}
		after, err := log.At(ctx, set, begin)
		if errors.Is(err, changelog.ErrGone) {
			break // removed just now
		}
		if err != nil {
			return k, err
		}
		dated, newest, err := k.read(ctx, log, set, after, end)
		if err != nil {
			return k, err
		}
		end = after
		if dated && !newest {
			break
		}
	}
	if k.datetime.IsZero() {
		k.cursor = end
	}
	return k, nil
}

// read takes in the entries behind a cursor up to another. It reports whether any
// has a datetime of the source's, and whether one of those is the newest by now.
func (k *known) read(ctx context.Context, log changelog.Log, set string, after, end changelog.Cursor) (dated, newest bool, err error) {
	horizon := time.Now().Add(maxAhead)
	for after.Position < end.Position {
		b, err := log.Since(ctx, set, after, int(end.Position-after.Position))
		if err != nil {
			return dated, newest, err
		}
		if b.Diverged || len(b.Entries) == 0 {
			return dated, newest, errors.New("the log lost its tail meanwhile")
		}
		for i := range b.Entries {
			at := b.Entries[i].Change.Datetime
			if at.IsZero() || at.After(horizon) {
				continue
			}
			dated = true
			if !at.Before(k.datetime) {
				newest = true
				k.add(&b.Entries[i].Change, b.Entries[i].Cursor)
			}
		}
		after = b.Cursor
	}
	return dated, newest, nil
}

// add takes in a change that is not older than those before.
func (k *known) add(c *resourcesync.Change, at changelog.Cursor) {
	if c.Datetime.After(k.datetime) {
		k.datetime, k.cursor = c.Datetime, changelog.Cursor{}
		clear(k.counts)
	}
	k.counts[fact{c.Loc, c.Change}]++
	if at.Position > k.cursor.Position {
		k.cursor = at
	}
}

// reaches reports whether a list that ends at a time may have something new.
func (k *known) reaches(until time.Time) bool { return until.IsZero() || !until.Before(k.datetime) }

// news returns what is new in a list, in the order of its datetimes, validated. A
// list is taken whole or not at all.
func (k *known) news(doc *resourcesync.Document) ([]resourcesync.Change, error) {
	var news []resourcesync.Change
	seen := maps.Clone(k.counts)
	horizon := time.Now().Add(maxAhead)
	for i := range doc.Items {
		c := &doc.Items[i].Change
		rule := ""
		switch {
		case c.Datetime.IsZero():
			rule = "datetime is missing: without it nobody can tell whether a change is new"
		case c.Datetime.After(horizon):
			rule = "datetime lies in the future"
		}
		if rule != "" {
			return nil, &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: i + 1, Loc: fmt.Sprintf("%.80s", c.Loc), Rule: rule}
		}
		if c.Datetime.Before(k.datetime) {
			continue
		}
		if f := (fact{c.Loc, c.Change}); c.Datetime.Equal(k.datetime) && seen[f] > 0 {
			seen[f]--
			continue
		}
		if err := c.Validate(); err != nil {
			if e, ok := errors.AsType[*resourcesync.Error](err); ok {
				e.Entry = i + 1
			}
			return nil, err
		}
		news = append(news, *c)
	}
	slices.SortStableFunc(news, func(a, b resourcesync.Change) int { return a.Datetime.Compare(b.Datetime) })
	return news, nil
}

// take publishes what is new in a list. Where the list begins later than what
// the log has of the source, nothing else can be done than to say so.
//
// The key of each batch names what the log had of the source before it. So when
// two hubs fetch at once, one of them adds its batch, and the other is told that
// the same is there already, or, where it had read an older or a newer list, that
// something else is: then it looks again what is known by now.
func (r *round) take(ctx context.Context, doc *resourcesync.Document) error {
	if !r.upto.IsZero() && doc.From.After(r.upto) {
		r.engine.opts.Logger.Warn("fetch: the source's Change List does not reach back to what the memory has; changes between may be missing",
			"set", r.set, "host", r.host, "has", r.upto, "from", doc.From)
	}
	r.upto = doc.Until
	for try := range fetchRaces {
		news, err := r.known.news(doc)
		if err != nil {
			return err
		}
		err = r.add(ctx, news)
		if !errors.Is(err, changelog.ErrKeyReused) {
			return err
		}
		if !pause(ctx, raceWait<<try) {
			return ctx.Err()
		}
		if r.known, err = readKnown(ctx, r.log, r.set); err != nil {
			return fmt.Errorf("read what the memory has: %w", err)
		}
	}
	return errors.New("other hubs fetch it all the time")
}

// add publishes changes in batches.
func (r *round) add(ctx context.Context, changes []resourcesync.Change) error {
	for batch := range slices.Chunk(changes, fetchBatch) {
		a, err := r.publish(ctx, r.set, changelog.Publish{Changes: batch, Key: "fetch " + r.known.cursor.String(), Hash: hashOf(batch)})
		if err != nil {
			return fmt.Errorf("publish what was fetched: %w", err)
		}
		if !a.Replayed {
			r.added += a.Count
		}
		for i := range batch {
			r.known.add(&batch[i], a.Cursor)
		}
	}
	return nil
}

// hashOf returns a digest of changes.
func hashOf(changes []resourcesync.Change) (sum [32]byte) {
	h := sha256.New()
	var line []byte
	for i := range changes {
		line = append(resourcesync.AppendJSONMembers(line[:0], &changes[i]), '\n')
		_, _ = h.Write(line) // never fails
	}
	h.Sum(sum[:0])
	return sum
}
