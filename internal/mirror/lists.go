package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/mirror/ledger"
	"github.com/rshub/rshub/internal/mirror/pack"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/resourcesync"
)

const listBatch = 1_000 // the most entries that are applied at once

// looks is what a mirror stores about a source's lists.
type looks struct {
	Listed  bool          `json:"listed"` // the Resource List was applied
	Pushed  bool          `json:"pushed"` // changes from a hub were applied, and the list is older
	Bare    bool          `json:"bare"`   // the list has resources of which it says only the URL
	Seen    *harvest.Seen `json:"seen"`
	Dump    string        `json:"dump,omitempty"`    // the print of the Resource Dump that was applied
	Reading dumped        `json:"reading,omitzero"`  // of the Resource Dump that is being read
	After   string        `json:"after,omitempty"`   // the hub's cursor before the Resource List was read; the deletions after it still have to be applied
	Again   bool          `json:"again,omitempty"`   // a baseline from a hub has begun since the list was read: unless it is complete, the list has to be read again
	Changed time.Time     `json:"changed"`           // of the newest change that is applied
	Begin   time.Time     `json:"begin,omitzero"`    // no earlier change is read: everything was applied as of then; zero: no change before Changed is read
	Lists   *harvest.Seen `json:"lists"`             // the Change Lists that were read; nil: none
	Package string        `json:"package,omitempty"` // the print of the package of the Change Dump that was last applied
	Until   time.Time     `json:"until,omitzero"`    // every change up to then was in what was read; zero: the source does not say
	Hole    time.Time     `json:"hole,omitzero"`     // changes before it may be missing, until there is a later Resource List; zero: none is missing
}

// from makes the next look at the changes begin at a time; zero: with the oldest change.
func (st *looks) from(at time.Time) {
	st.Changed, st.Begin, st.Lists, st.Package, st.Until = at, at, nil, "", time.Time{}
}

const overlap = time.Hour // of two looks at Change Lists, because a source may add a change late

// since returns the datetime from which on Change Lists have to be read.
func (st *looks) since() time.Time {
	if st.Begin.IsZero() {
		return st.Changed
	}
	if from := st.Changed.Add(-overlap); from.After(st.Begin) {
		return from
	}
	return st.Begin
}

// lost reports whether changes may be missing between the last look and from, the
// beginning of the source's changes. A time in the future does not count: a look cannot
// have seen all changes up to it.
func (st *looks) lost(from time.Time) bool {
	return !st.Changed.IsZero() && (from.After(st.Changed) && from.After(st.Until) || harvest.Ahead(st.Changed, time.Now()))
}

// resources returns the URL of the listing of all resources; empty: there is none.
func (m *Mirror) resources() string {
	if m.source.ResourceList != "" {
		return m.source.ResourceList
	}
	return m.source.Sitemap
}

// listed reports whether the source names all its resources, in a list or in a dump.
func (m *Mirror) listed() bool { return m.resources() != "" || m.source.ResourceDump != "" }

// changing reports whether the source names its changes, in a list or in a dump.
func (m *Mirror) changing() bool { return m.source.ChangeList != "" || m.source.ChangeDump != "" }

// lists looks at the source's lists, again and again unless once.
func (m *Mirror) lists(ctx context.Context, once bool) error {
	if !m.listed() && !m.changing() {
		return &SourceError{ErrNoLists}
	}
	for {
		err := m.look(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && (once || !passing(err)) {
			return err
		}
		if once {
			return nil
		}
		if err != nil {
			m.opts.Note("%v; looking again in %v", err, m.opts.Every)
		}
		if backoff.Sleep(ctx, m.opts.Every) != nil {
			return ctx.Err()
		}
	}
}

// passing reports whether an error may be gone at the next look.
func passing(err error) bool {
	_, ok := errors.AsType[*SourceError](err)
	return ok
}

// look applies what is new in the lists.
func (m *Mirror) look(ctx context.Context) error {
	m.working.Lock()
	defer m.working.Unlock()
	var st looks
	if _, err := m.home.Ledger.Meta("looks", &st); err != nil {
		return err
	}
	// A Change Dump has the contents of its time, so it must be known from when on to
	// apply them.
	unknown := m.source.ChangeList == "" && st.Changed.IsZero() && st.Package == ""
	var incomplete error // entries of the list were skipped
	if m.listed() && (!st.Listed || !m.changing() || unknown || !st.Hole.IsZero()) {
		err := m.takeAll(ctx, &st)
		if _, skipped := errors.AsType[*harvest.Skipped](err); skipped {
			incomplete = err
		} else if err != nil {
			return err
		}
	}
	if !m.changing() {
		return incomplete
	}
	gap, err := m.takeChanges(ctx, &st)
	if err != nil || !gap {
		return cmp.Or(err, incomplete)
	}
	before, changes := st.Changed, "Change List"
	if m.source.ChangeList == "" {
		changes = "Change Dump"
	}
	if !m.listed() {
		m.opts.Note("the %s does not reach back to the last look: changes between are lost", changes)
	} else {
		m.opts.Note("the %s does not reach back to the last look: reading the list of all resources", changes)
		if err := m.takeAll(ctx, &st); err != nil {
			return err
		}
	}
	if !st.Changed.Equal(before) {
		if gap, err = m.takeChanges(ctx, &st); err != nil || !gap {
			return err
		}
	}
	// It is unknown where to continue: apply all changes that there are.
	st.from(time.Time{})
	if _, err := m.takeChanges(ctx, &st); err != nil || !m.listed() {
		return err
	}
	m.opts.Note("the %s does not reach back to the list of all resources: changes between may be missing until there is a newer list", changes)
	st.Hole = st.Changed
	return m.keep(&st)
}

// takeAll applies all resources of the source, from its list, or else from its
// dump.
func (m *Mirror) takeAll(ctx context.Context, st *looks) error {
	if m.resources() == "" {
		return m.takeDump(ctx, st)
	}
	return m.takeList(ctx, st)
}

// takeList applies the listing of all resources: new and different resources, and at
// the end deletions.
func (m *Mirror) takeList(ctx context.Context, st *looks) error {
	at, err := m.listedAt(ctx)
	if err != nil {
		return err
	}
	t := &taking{Mirror: m, at: at, look: rand.Uint64()}
	seen := st.Seen
	if seen == nil || !st.Listed || st.Bare {
		seen = new(harvest.Seen) // read all
	}
	var skipped skips
	for e, err := range m.lister.Since(ctx, m.resources(), seen) {
		if errors.Is(err, harvest.ErrUnchanged) {
			t.begin(st)
			return nil
		}
		if s, ok := errors.AsType[*harvest.Skipped](err); ok {
			skipped.note(m, s)
			continue
		}
		if err != nil {
			return cmp.Or(t.apply(ctx), error(&SourceError{err})) // an error of the disk is worse
		}
		if !t.wants(&e.Change) {
			continue
		}
		if err := t.add(ctx, e.Change); err != nil {
			return err
		}
	}
	if err := t.apply(ctx); err != nil {
		return err
	}
	if skipped.count > 0 {
		return &SourceError{fmt.Errorf("%d of the entries of the list cannot be read, so nothing is deleted; the first is %w", skipped.count, skipped.first)}
	}
	st.Seen = seen
	return t.end(ctx, st)
}

// maxNotes is how many skipped entries of a document are noted one by one.
const maxNotes = 20

// skips counts the entries of a listing that cannot be read.
type skips struct {
	count int
	first *harvest.Skipped
}

func (s *skips) note(m *Mirror, skipped *harvest.Skipped) {
	if s.first == nil {
		s.first = skipped
	}
	if s.count++; s.count <= maxNotes {
		m.opts.Note("%v", skipped)
	}
}

// end removes resources that were not seen, and records that everything was
// applied.
func (t *taking) end(ctx context.Context, st *looks) error {
	if err := t.leftovers(ctx, st.After != ""); err != nil {
		return err
	}
	st.Listed, st.Bare, st.Reading = true, t.bare, dumped{}
	t.begin(st)
	return t.keep(st)
}

// begin makes the next look at the changes begin at the time of the listing, if that is
// later.
func (t *taking) begin(st *looks) {
	switch {
	case t.changing() && (st.Changed.IsZero() || t.at.After(st.Changed)):
		st.from(t.at)
	case t.at.IsZero(): // the list may have any change that was applied, or a later one
		st.Begin = st.Changed
	case t.at.After(st.Begin):
		st.Begin = t.at
	}
	if t.at.IsZero() || !t.at.Before(st.Hole) {
		st.Hole = time.Time{}
	}
}

// keep stores what was read of the source's lists; the zero looks: nothing, so that all of it
// is read again.
func (m *Mirror) keep(st *looks) error {
	var b ledger.Batch
	b.Meta("looks", *st)
	return m.home.Ledger.Commit(&b)
}

// listedAt returns the time that a Resource List names as its own; zero: it names
// none.
func (m *Mirror) listedAt(ctx context.Context) (time.Time, error) {
	if m.source.ResourceList == "" || !m.changing() {
		return time.Time{}, nil
	}
	a, err := m.lister.Getter.Get(ctx, "the Resource List", m.source.ResourceList, harvest.Version{})
	if err != nil {
		return time.Time{}, &SourceError{err}
	}
	defer a.Close()
	var h resourcesync.Header
	in, err := harvest.DecodeXML(a.Body)
	if err == nil {
		r := resourcesync.NewXMLReader(in, m.lister.Limits)
		r.Tolerate(func(*resourcesync.Error) {}) // the reading of the whole list notes them
		h, err = r.Header()
	}
	if err != nil {
		return time.Time{}, &SourceError{fmt.Errorf("the Resource List %s: %w", harvest.Plain(a.URL), err)}
	}
	if harvest.Ahead(h.At, time.Now()) {
		return time.Time{}, nil
	}
	return h.At, nil
}

// A taking is one look at the listing of all resources.
type taking struct {
	*Mirror
	at   time.Time
	look uint64 // a random number: what has another one, this look has not seen, not even until it broke off

	bare    bool
	changed []feed.Entry             // entries to apply
	packed  map[string]*pack.Member  // by loc: the member with the content, if it is in a package
	seen    map[string]ledger.Listed // by loc: records to store after that
}

// add adds one resource.
func (t *taking) add(ctx context.Context, c resourcesync.Change) error {
	e := feed.Entry{Change: c}
	before, known := t.seen[c.Loc] // a list may name it several times
	if !known {
		var err error
		if before, known, err = t.home.Ledger.Seen(c.Loc); err != nil {
			return err
		}
	}
	bare := c.Hash == "" && c.Lastmod.IsZero() && c.Length == nil
	t.bare = t.bare || bare
	switch {
	case known && t.newer(&before):
		e = before.Entry
	case known && !bare && sameVersion(&before.Entry.Change, &c):
		e.Cursor = before.Entry.Cursor
	default:
		t.changed = append(t.changed, e)
	}
	if t.seen == nil {
		t.seen = map[string]ledger.Listed{}
	}
	t.seen[c.Loc] = ledger.Listed{Entry: e, Look: t.look}
	if max(len(t.seen), len(t.changed)) < listBatch {
		return nil
	}
	return t.apply(ctx)
}

// newer reports whether a change was applied that is newer than the listing.
func (t *taking) newer(l *ledger.Listed) bool {
	return !t.at.IsZero() && micros(&l.Entry) > t.at.UnixMicro()
}

// micros returns when an entry was changed; 0 if that time is in the future.
func micros(e *feed.Entry) int64 {
	if harvest.Ahead(time.UnixMicro(e.Micros), time.Now()) {
		return 0
	}
	return e.Micros
}

func sameVersion(a, b *resourcesync.Change) bool {
	same, known := audit.SameContent(a, b)
	return same && known
}

// apply applies the added entries, and then records that.
func (t *taking) apply(ctx context.Context) error {
	if err := t.applyPacked(ctx, t.changed, t.packed); err != nil {
		return err
	}
	clear(t.packed)
	var b ledger.Batch
	for _, l := range t.seen {
		b.Listed(l)
	}
	t.changed = nil
	clear(t.seen)
	return t.home.Ledger.Commit(&b)
}

// applyPacked passes entries on to the sink. packed has, by loc, the members of a package
// with the contents.
func (m *Mirror) applyPacked(ctx context.Context, entries []feed.Entry, packed map[string]*pack.Member) error {
	if d, ok := m.sink.(*Directory); ok {
		return d.applyPacked(ctx, entries, packed)
	}
	return m.sink.Apply(ctx, entries)
}

// leftovers removes resources that the listing does not name any more. If hub is true, a
// hub is followed after the listing, and resources that came from the hub stay.
func (t *taking) leftovers(ctx context.Context, hub bool) error {
	var gone []feed.Entry
	empty := true // the listing, and what has changed since
	for l, err := range t.home.Ledger.Listed(ctx) {
		if err != nil {
			return err
		}
		if l.Look != t.look && !t.newer(&l) {
			gone = append(gone, deleted(l.Entry.Change.Loc, feed.Cursor{}))
		} else {
			empty = false
		}
	}
	unlisted := func(loc string) (bool, error) {
		if _, listed, err := t.home.Ledger.Seen(loc); err != nil || listed {
			return false, err
		}
		f, _, err := t.home.Ledger.File(loc)
		return !hub || f.Entry.Position == 0, err
	}
	at := feed.Cursor{Micros: math.MaxInt64}
	if !t.at.IsZero() {
		at.Micros = t.at.UnixMicro()
	}
	orphans, err := t.orphans(ctx, at, unlisted)
	if err != nil {
		return err
	}
	if d, ok := t.sink.(*Directory); ok && empty && !hub {
		if err := d.mayEmpty(); err != nil {
			return err
		}
	}
	return t.pass(ctx, append(gone, orphans...)) // all at once: they are bounded together
}

// takeChanges applies the changes of the Change Lists since the last look, while it reads
// them. If the source has no Change List, it uses the Change Dump. gap means that they do
// not reach back to the last look; then nothing was applied.
func (m *Mirror) takeChanges(ctx context.Context, st *looks) (gap bool, err error) {
	if st.lost(time.Time{}) {
		return true, nil
	}
	if m.source.ChangeList == "" {
		return m.takeChangeDump(ctx, st)
	}
	var seen harvest.Seen
	if st.Lists != nil {
		seen = *st.Lists
	}
	var reach harvest.Reach
	newest, hole, batch := st.Changed, st.Hole, make([]resourcesync.Change, 0, listBatch)
	var skipped skips
	for c, err := range m.lister.Changes(ctx, m.source.ChangeList, st.since(), &seen, &reach) {
		s, isSkipped := errors.AsType[*harvest.Skipped](err)
		switch {
		case errors.Is(err, harvest.ErrUnchanged):
			return false, nil
		case isSkipped && st.lost(reach.From):
			return true, nil
		case isSkipped: // only a later Resource List shows which resource it was
			skipped.note(m, s)
			newest = latest(newest, s.Change.Datetime)
			hole = latest(hole, newest)
			continue
		case err != nil:
			return false, &SourceError{err}
		case st.lost(reach.From):
			return true, nil
		case !m.names(c.Loc):
			continue
		case c.Change == "":
			return false, &SourceError{resourcesync.Invalidf("a change of the Change List does not say what happened to %s", resourcesync.Shorten(c.Loc))}
		}
		if c.Datetime.After(newest) {
			newest = c.Datetime
		}
		if batch = append(batch, *c); len(batch) == listBatch {
			if err := m.applyChanges(ctx, batch, nil, st); err != nil {
				return false, err
			}
			batch = batch[:0]
		}
	}
	if st.lost(reach.From) {
		return true, nil
	}
	if err := m.applyChanges(ctx, batch, nil, st); err != nil {
		return false, err
	}
	if st.Changed, st.Until, st.Lists = newest, reach.Until, &seen; st.Begin.IsZero() {
		st.Begin = newest
	}
	if m.listed() {
		st.Hole = hole
	}
	return false, m.keep(st)
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// applyChanges applies those changes that were not applied yet. packed is as in
// applyPacked.
func (m *Mirror) applyChanges(ctx context.Context, changes []resourcesync.Change, packed map[string]*pack.Member, st *looks) error {
	var entries []feed.Entry
	var b ledger.Batch
	added := map[string]bool{} // the locs of entries
	last := map[string]int{}   // by loc
	for i := range changes {
		last[changes[i].Loc] = i
	}
	for i, c := range changes {
		before, known, err := m.home.Ledger.Seen(c.Loc)
		if err != nil {
			return err
		}
		if !m.wants(&c) {
			if !known && !added[c.Loc] {
				continue // the mirror does not have it
			}
			c = resourcesync.Change{Loc: c.Loc, Change: resourcesync.Deleted, Datetime: c.Datetime} // it has left the collection
		}
		if !known && !added[c.Loc] && c.Datetime.Before(st.Changed) && changes[last[c.Loc]].Change == resourcesync.Deleted {
			continue // the overlap with the last look has it again
		}
		e := feed.Entry{Cursor: feed.Cursor{Micros: c.Datetime.UnixMicro()}, Change: c}
		if had := micros(&before.Entry); known && had >= e.Micros {
			again := had > e.Micros || before.Entry.Change.Change == c.Change && sameVersion(&before.Entry.Change, &c)
			if again || last[c.Loc] > i && changes[last[c.Loc]].Datetime.Equal(c.Datetime) {
				continue // applied already; a resource may change several times within the precision of the times
			}
		}
		// If the time of the listing is unknown, only lastmod shows that the listing has
		// a later version.
		if known && before.Entry.Micros == 0 && st.Changed.IsZero() && !c.Lastmod.IsZero() && c.Lastmod.Before(before.Entry.Change.Lastmod) {
			continue
		}
		entries, added[c.Loc] = append(entries, e), true
		if c.Change == resourcesync.Deleted {
			b.Unlisted(c.Loc)
		} else {
			b.Listed(ledger.Listed{Entry: e})
		}
	}
	if len(entries) == 0 {
		return nil
	}
	if err := m.applyPacked(ctx, entries, packed); err != nil {
		return err
	}
	return m.home.Ledger.Commit(&b)
}
