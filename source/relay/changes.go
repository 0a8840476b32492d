package relay

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/source/harvest"
	"github.com/rshub/rshub/source/reconcile"
)

const (
	overlap   = time.Hour // of two looks at Change Lists, because a source may add a change late
	maxRecent = 20_000    // the most changes that a Mark remembers; twice as many if they have one datetime
)

// undated is the datetime of a change without a known datetime: such a change
// is always recent.
var undated = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// A Mark says which changes of a source were already published.
type Mark struct {
	Begin    time.Time            `json:"begin"`            // no earlier change is read: everything was compared as of then, or too many changes came since to remember them
	Datetime time.Time            `json:"datetime"`         // of the newest published change; zero: none
	Until    time.Time            `json:"until,omitzero"`   // every change up to then was read; zero: the lists do not say
	Recent   map[string]time.Time `json:"recent,omitempty"` // the published changes of the overlap, by a hash; if empty, all changes after Datetime are new

	read map[string]int // how often the present reading has had an entry of Recent, word for word
}

// since returns the datetime from which on the source has to be read.
func (m *Mark) since() time.Time {
	if len(m.Recent) == 0 || m.Datetime.IsZero() {
		return m.Datetime
	}
	if from := m.Datetime.Add(-overlap); from.After(m.Begin) {
		return from
	}
	return m.Begin
}

// next returns the Mark of the next reading, which adds what it reads. The changes of the
// overlap are still known if this reading does not have them, but the next one again. An
// undated change is known only as long as each reading has it.
func (m *Mark) next() Mark {
	recent := maps.Clone(m.Recent)
	maps.DeleteFunc(recent, func(_ string, at time.Time) bool { return at.Equal(undated) })
	if recent == nil {
		recent = map[string]time.Time{}
	}
	return Mark{Begin: m.Begin, Datetime: m.Datetime, Recent: recent}
}

// keyOf returns a hash that identifies a change. The datetime alone does not: with whole
// seconds, two changes of a resource may have the same one.
func keyOf(c *resourcesync.Change) string {
	length := int64(-1)
	if c.Length != nil {
		length = *c.Length
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s\n%d\n%s",
		c.Loc, c.Change, c.Datetime.Format(time.RFC3339Nano), c.Hash, length, c.Lastmod.Format(time.RFC3339Nano)))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// changeList looks at a source that has Change Lists.
func (r *Relay) changeList(ctx context.Context, full, lost bool) (Result, error) {
	compares := r.st.Source.ResourceList != ""
	if harvest.Ahead(r.st.Mark.Datetime, r.opts.Now()) {
		r.opts.Note(fmt.Sprintf("the changes that were published end at %s, which is in the future: changes may be missing", r.st.Mark.Datetime.Format(time.RFC3339)))
		full, lost = true, true
	}
	if lost && !compares {
		r.st.Mark, r.st.Seen = Mark{}, harvest.Seen{}
	}
	if full && compares {
		res, err := r.baseline(ctx)
		many, refused := errors.AsType[*reconcile.TooMany](err)
		switch known := !lost && !r.st.Mark.Datetime.IsZero(); {
		case errors.Is(err, errShort):
			r.short(err)
			if lost {
				r.st.Mark, r.st.Seen = Mark{}, harvest.Seen{} // read the Change Lists from their beginning
			}
		case refused && known: // the new changes are still right
			res, _, err := r.increments(ctx)
			return res, errors.Join(many, err)
		default:
			return res, err
		}
	}
	was, until := r.st.Mark.Datetime, r.st.Mark.Until
	res, reach, err := r.increments(ctx)
	if err != nil {
		return res, err
	}
	if !was.IsZero() && reach.From.After(was) && reach.From.After(until) {
		r.opts.Note(fmt.Sprintf("the Change List begins at %s, and what was published ends at %s: changes between are missing", reach.From.Format(time.RFC3339), was.Format(time.RFC3339)))
		if compares {
			return r.mended(ctx, res)
		}
	}
	if full && !compares {
		r.st.Full = r.opts.Now() // there is no list to compare with
	}
	return res, nil
}

// mended compares everything, because changes are missing before the published ones.
func (r *Relay) mended(ctx context.Context, before Result) (Result, error) {
	if err := r.keep(&before); err != nil {
		return before, err
	}
	res, err := r.baseline(ctx)
	if errors.Is(err, errShort) {
		r.short(err)
		return before, nil
	}
	res.add(&before)
	return res, err
}

// errShort means that the Resource List is older than the beginning of the Change Lists.
// Changes between may have been published already, and a comparison would undo them.
var errShort = errors.New("the Change List does not reach back to the Resource List, so nothing is compared until the source has a newer Resource List")

// short notes that nothing was compared.
func (r *Relay) short(err error) {
	r.opts.Note(err.Error())
	r.st.Full, r.st.Short = r.opts.Now(), true
}

// baseline compares everything. The Resource List may be a day old, so the later changes
// of the Change Lists are applied to it first. The hub is thus compared with the present
// state of the source, and no outdated state is published. If that state is unknown, the
// error is errShort; but if the hub knows nothing of the set yet, the list is published.
func (r *Relay) baseline(ctx context.Context) (Result, error) {
	begun := r.opts.Now()
	seen, trust := harvest.Seen{}, r.st.Trust.begin()
	next := new(Mark)
	var changes harvest.Seen
	short := false
	held := uint64(0)
	list := func(yield func(*feed.Entry, error) bool) {
		n := uint64(0)
		for e, err := range r.believed(r.lister.Since(ctx, r.st.Source.ResourceList, &seen), trust) {
			if !yield(e, err) || err != nil {
				return
			}
			n = e.Position
		}
		at := seen.At
		if at.IsZero() {
			at = begun.Add(-24 * time.Hour)
		}
		*next = Mark{Begin: at.UTC(), Datetime: at.UTC(), Recent: map[string]time.Time{}}
		var reach harvest.Reach
		for c, err := range r.lister.Changes(ctx, r.st.Source.ChangeList, at, &changes, &reach) {
			if err != nil {
				yield(nil, err)
				return
			}
			next.add(c, at)
			pass(c)
			n++
			if !yield(&feed.Entry{Cursor: feed.Cursor{Position: n}, Change: *c}, nil) {
				return
			}
		}
		next.Until = reach.Until
		if short = reach.From.After(at); short && held > 0 {
			yield(nil, errShort)
		} else if short {
			yield(nil, &reconcile.Gap{Err: fmt.Errorf("the Resource List is of %s, and the Change List begins at %s: what was deleted between them is unknown", at.Format(time.RFC3339), reach.From.Format(time.RFC3339))})
		}
	}
	res, err := r.compare(ctx, list, reconcile.Options{Looked: func(l audit.Look) { held = l.Count }})
	if err != nil {
		return res, err
	}
	next.trim()
	r.st.Trust, r.st.Mark, r.st.Seen, r.st.Short = trust.end(r.opts.Note), *next, changes, short
	return res, nil
}

// increments publishes the new changes of the Change Lists, in their order, while it
// reads them. After an interruption, the same changes get the same keys again.
func (r *Relay) increments(ctx context.Context) (res Result, reach harvest.Reach, err error) {
	res.How = Changes
	was, seen := r.st.Mark, r.st.Seen
	next := was.next()
	p := r.batch(&res)
	for c, err := range r.lister.Changes(ctx, r.st.Source.ChangeList, was.since(), &seen, &reach) {
		if errors.Is(err, harvest.ErrUnchanged) {
			res.How = Unchanged
			return res, reach, nil
		}
		if err != nil {
			return res, reach, err
		}
		if _, had := was.Recent[next.add(c, was.since())]; had {
			continue
		}
		pass(c)
		if err := p.Add(ctx, c); err != nil {
			return res, reach, err
		}
	}
	if err := p.Send(ctx); err != nil {
		return res, reach, err
	}
	next.trim()
	next.Until = reach.Until
	r.st.Mark, r.st.Seen = next, seen
	return res, reach, nil
}

// add adds a change from a reading that began at since, and returns its key.
func (m *Mark) add(c *resourcesync.Change, since time.Time) (key string) {
	key = keyOf(c)
	if c.Datetime.After(m.Datetime) {
		if m.Datetime = c.Datetime; m.Recent == nil {
			m.Begin, m.Recent = m.Datetime, map[string]time.Time{}
		}
	}
	if m.Recent == nil {
		return key
	}
	if m.read == nil {
		m.read = map[string]int{}
	}
	if m.read[key]++; m.read[key] > 1 { // within one datetime, the resource has gone back to what it was
		key = fmt.Sprintf("%s-%d", key, m.read[key])
	}
	at := c.Datetime
	if at.Before(since) {
		at = undated // its datetime is unknown, so it is recent as long as the list has it
	}
	if m.Recent[key] = at; len(m.Recent) > 2*maxRecent {
		m.trim()
	}
	return key
}

// trim forgets changes before the overlap. If there are still too many, it forgets the
// oldest, and if too many have one datetime, all. What it forgets is either not read again, or
// published again with all that follows it. Otherwise, an outdated change would be the last
// that the hub gets of its resource.
func (m *Mark) trim() {
	defer maps.DeleteFunc(m.read, func(key string, _ int) bool {
		_, recent := m.Recent[key]
		return !recent
	})
	for key, at := range m.Recent {
		if at.Before(m.Datetime.Add(-overlap)) {
			delete(m.Recent, key)
		}
	}
	if len(m.Recent) <= maxRecent {
		return
	}
	newest := slices.SortedFunc(maps.Values(m.Recent), func(a, b time.Time) int { return b.Compare(a) })
	least := newest[maxRecent-1]
	if least.After(m.Datetime) { // these are undated
		least = m.Datetime
	}
	if least.After(m.Begin) {
		m.Begin = least
	}
	for key, at := range m.Recent {
		if at.Before(m.Begin) {
			delete(m.Recent, key)
		}
	}
	if len(m.Recent) > 2*maxRecent {
		m.Recent = nil
	}
}

func (r *Relay) batch(res *Result) *reconcile.Batch {
	head, _ := feed.ParseCursor(r.st.Cursor) // the zero cursor, if nothing was published
	return reconcile.NewBatch(r.hub, head, func(head feed.Cursor, changes []resourcesync.Change) error {
		res.Count(head, changes)
		return nil
	})
}
