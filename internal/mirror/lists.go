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

const listBatch = 1_000 // maximum number of entries per Apply

// A listState records how far a mirror has read the source's lists. The ledger stores it.
type listState struct {
	Listed  bool          `json:"listed"` // whether the Resource List was applied
	Pushed  bool          `json:"pushed"` // whether changes from a hub were applied, which are newer than the list
	Bare    bool          `json:"bare"`   // whether the list has resources with nothing but a URL
	Seen    *harvest.Seen `json:"seen"`
	Dump    string        `json:"dump,omitempty"`    // fingerprint of the applied Resource Dump
	Reading dumpProgress  `json:"reading,omitzero"`  // progress in the Resource Dump being read
	After   string        `json:"after,omitempty"`   // the hub's cursor before the Resource List was read; the deletions after it are still to be applied
	Again   bool          `json:"again,omitempty"`   // whether a baseline from a hub has started since the list was read: unless it is complete, the list must be read again
	Changed time.Time     `json:"changed"`           // time of the newest applied change
	Begin   time.Time     `json:"begin,omitzero"`    // everything before it was applied, so no earlier change is read; zero means that no change before Changed is read
	Lists   *harvest.Seen `json:"lists"`             // Change Lists that were read; nil if none
	Package string        `json:"package,omitempty"` // fingerprint of the package of the Change Dump that was applied last
	Until   time.Time     `json:"until,omitzero"`    // every earlier change was in what was read; zero if the source does not say
	Hole    time.Time     `json:"hole,omitzero"`     // earlier changes may be missing until there is a later Resource List; zero if none is missing
}

// startAt makes the next poll of the changes start at a time. Zero means with the oldest change.
func (st *listState) startAt(at time.Time) {
	st.Changed, st.Begin, st.Lists, st.Package, st.Until = at, at, nil, "", time.Time{}
}

const overlap = time.Hour // of two polls of Change Lists, because a source may add a change late

// changesSince returns the datetime from which Change Lists must be read.
func (st *listState) changesSince() time.Time {
	if st.Begin.IsZero() {
		return st.Changed
	}
	if from := st.Changed.Add(-overlap); from.After(st.Begin) {
		return from
	}
	return st.Begin
}

// hasGap reports whether changes may be missing between the last poll and from, the start of the
// source's changes. If Changed is in the future, they may: no poll can have seen all changes up
// to then.
func (st *listState) hasGap(from time.Time) bool {
	return !st.Changed.IsZero() && (from.After(st.Changed) && from.After(st.Until) || harvest.Ahead(st.Changed, time.Now()))
}

// listURL returns the URL of the listing of all resources, or "" if there is none.
func (m *Mirror) listURL() string {
	if m.source.ResourceList != "" {
		return m.source.ResourceList
	}
	return m.source.Sitemap
}

// hasListing reports whether the source names all its resources, in a list or in a dump.
func (m *Mirror) hasListing() bool { return m.listURL() != "" || m.source.ResourceDump != "" }

// hasChanges reports whether the source names its changes, in a list or in a dump.
func (m *Mirror) hasChanges() bool { return m.source.ChangeList != "" || m.source.ChangeDump != "" }

// followLists polls the source's lists, repeatedly unless once.
func (m *Mirror) followLists(ctx context.Context, once bool) error {
	if !m.hasListing() && !m.hasChanges() {
		return &SourceError{ErrNoLists}
	}
	for {
		err := m.poll(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && (once || !isSourceError(err)) {
			return err
		}
		if once {
			return nil
		}
		if err != nil {
			m.opts.Logf("%v; retrying in %v", err, m.opts.PollInterval)
		}
		if backoff.Sleep(ctx, m.opts.PollInterval) != nil {
			return ctx.Err()
		}
	}
}

// isSourceError reports whether err is a SourceError, which the next poll may not have.
func isSourceError(err error) bool {
	_, ok := errors.AsType[*SourceError](err)
	return ok
}

// poll applies what is new in the lists.
func (m *Mirror) poll(ctx context.Context) error {
	m.applyMu.Lock()
	defer m.applyMu.Unlock()
	var st listState
	if _, err := m.home.Ledger.Meta("looks", &st); err != nil {
		return err
	}
	// A Change Dump has the contents of its time, so the time from which to apply them
	// must be known.
	unknown := m.source.ChangeList == "" && st.Changed.IsZero() && st.Package == ""
	var incomplete error // set if entries of the list were skipped
	if m.hasListing() && (!st.Listed || !m.hasChanges() || unknown || !st.Hole.IsZero()) {
		err := m.applyListing(ctx, &st)
		if _, skipped := errors.AsType[*harvest.Skipped](err); skipped {
			incomplete = err
		} else if err != nil {
			return err
		}
	}
	if !m.hasChanges() {
		return incomplete
	}
	gap, err := m.applyChangeList(ctx, &st)
	if err != nil || !gap {
		return cmp.Or(err, incomplete)
	}
	before, changes := st.Changed, "Change List"
	if m.source.ChangeList == "" {
		changes = "Change Dump"
	}
	if !m.hasListing() {
		m.opts.Logf("the %s starts after the last poll; the changes in between are lost", changes)
	} else {
		m.opts.Logf("the %s starts after the last poll; reading the list of all resources", changes)
		if err := m.applyListing(ctx, &st); err != nil {
			return err
		}
	}
	if !st.Changed.Equal(before) {
		if gap, err = m.applyChangeList(ctx, &st); err != nil || !gap {
			return err
		}
	}
	// It is unknown where to resume: apply all changes.
	st.startAt(time.Time{})
	if _, err := m.applyChangeList(ctx, &st); err != nil || !m.hasListing() {
		return err
	}
	m.opts.Logf("the %s starts after the list of all resources; changes in between may be missing until there is a newer list", changes)
	st.Hole = st.Changed
	return m.saveListState(&st)
}

// applyListing applies all resources of the source, from its list or, without one, its dump.
func (m *Mirror) applyListing(ctx context.Context, st *listState) error {
	if m.listURL() == "" {
		return m.applyDump(ctx, st)
	}
	return m.applyResourceList(ctx, st)
}

// applyResourceList applies the listing of all resources: new and changed resources first,
// deletions last.
func (m *Mirror) applyResourceList(ctx context.Context, st *listState) error {
	at, err := m.listingTime(ctx)
	if err != nil {
		return err
	}
	t := &traversal{Mirror: m, at: at, id: rand.Uint64()}
	seen := st.Seen
	if seen == nil || !st.Listed || st.Bare {
		seen = new(harvest.Seen) // read everything
	}
	var skipped skippedEntries
	for e, err := range m.lister.Since(ctx, m.listURL(), seen) {
		if errors.Is(err, harvest.ErrUnchanged) {
			t.setStart(st)
			return nil
		}
		if s, ok := errors.AsType[*harvest.Skipped](err); ok {
			skipped.add(m, s)
			continue
		}
		if err != nil {
			return cmp.Or(t.flush(ctx), error(&SourceError{err})) // an error of the disk takes precedence
		}
		if !t.matches(&e.Change) {
			continue
		}
		if err := t.add(ctx, e.Change); err != nil {
			return err
		}
	}
	if err := t.flush(ctx); err != nil {
		return err
	}
	if skipped.count > 0 {
		return &SourceError{fmt.Errorf("read list: %d entries are invalid, so nothing is deleted; first: %w", skipped.count, skipped.first)}
	}
	st.Seen = seen
	return t.finish(ctx, st)
}

// maxNotes is the maximum number of skipped entries of a document that are logged one by one.
const maxNotes = 20

// skippedEntries counts the entries of a listing that cannot be read.
type skippedEntries struct {
	count int
	first *harvest.Skipped
}

func (s *skippedEntries) add(m *Mirror, skipped *harvest.Skipped) {
	if s.first == nil {
		s.first = skipped
	}
	if s.count++; s.count <= maxNotes {
		m.opts.Logf("%v", skipped)
	}
}

// finish removes the resources that the traversal did not see, and records that the listing was
// applied.
func (t *traversal) finish(ctx context.Context, st *listState) error {
	if err := t.removeUnlisted(ctx, st.After != ""); err != nil {
		return err
	}
	st.Listed, st.Bare, st.Reading = true, t.bare, dumpProgress{}
	t.setStart(st)
	return t.saveListState(st)
}

// setStart makes the next poll of the changes start at the time of the listing, if that is
// later.
func (t *traversal) setStart(st *listState) {
	switch {
	case t.hasChanges() && (st.Changed.IsZero() || t.at.After(st.Changed)):
		st.startAt(t.at)
	case t.at.IsZero(): // the list may include any applied change, or later ones
		st.Begin = st.Changed
	case t.at.After(st.Begin):
		st.Begin = t.at
	}
	if t.at.IsZero() || !t.at.Before(st.Hole) {
		st.Hole = time.Time{}
	}
}

// saveListState stores how far the source's lists were read. With the zero listState, everything
// is read again.
func (m *Mirror) saveListState(st *listState) error {
	var b ledger.Batch
	b.PutMeta("looks", *st)
	return m.home.Ledger.Commit(&b)
}

// listingTime returns the time that a Resource List states for itself, or zero if it states none
// or one in the future.
func (m *Mirror) listingTime(ctx context.Context) (time.Time, error) {
	if m.source.ResourceList == "" || !m.hasChanges() {
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
		r.Tolerate(func(*resourcesync.Error) {}) // they are logged when the whole list is read
		h, err = r.Header()
	}
	if err != nil {
		return time.Time{}, &SourceError{fmt.Errorf("read Resource List %s: %w", harvest.Plain(a.URL), err)}
	}
	if harvest.Ahead(h.At, time.Now()) {
		return time.Time{}, nil
	}
	return h.At, nil
}

// A traversal reads the listing of all resources once.
type traversal struct {
	*Mirror
	at time.Time
	id uint64 // random; a resource with another ID was not seen by this traversal, even if it resumes after an interruption

	bare    bool
	changed []feed.Entry                     // entries to apply
	packed  map[string]*pack.Member          // by loc: member of a package with the content
	seen    map[string]ledger.ListedResource // by loc: records to store after changed is applied
}

// add adds one resource, and flushes full batches.
func (t *traversal) add(ctx context.Context, c resourcesync.Change) error {
	e := feed.Entry{Change: c}
	before, known := t.seen[c.Loc] // a list may name a resource several times
	if !known {
		var err error
		if before, known, err = t.home.Ledger.ListedResource(c.Loc); err != nil {
			return err
		}
	}
	bare := c.Hash == "" && c.Lastmod.IsZero() && c.Length == nil
	t.bare = t.bare || bare
	switch {
	case known && t.isNewer(&before):
		e = before.Entry
	case known && !bare && sameVersion(&before.Entry.Change, &c):
		e.Cursor = before.Entry.Cursor
	default:
		t.changed = append(t.changed, e)
	}
	if t.seen == nil {
		t.seen = map[string]ledger.ListedResource{}
	}
	t.seen[c.Loc] = ledger.ListedResource{Entry: e, Traversal: t.id}
	if max(len(t.seen), len(t.changed)) < listBatch {
		return nil
	}
	return t.flush(ctx)
}

// isNewer reports whether an applied change is newer than the listing.
func (t *traversal) isNewer(l *ledger.ListedResource) bool {
	return !t.at.IsZero() && changeMicros(&l.Entry) > t.at.UnixMicro()
}

// changeMicros returns the time of the change of an entry, or 0 if it is in the future.
func changeMicros(e *feed.Entry) int64 {
	if harvest.Ahead(time.UnixMicro(e.Micros), time.Now()) {
		return 0
	}
	return e.Micros
}

func sameVersion(a, b *resourcesync.Change) bool {
	same, known := audit.SameContent(a, b)
	return same && known
}

// flush applies the added entries, then records that.
func (t *traversal) flush(ctx context.Context) error {
	if err := t.applyPacked(ctx, t.changed, t.packed); err != nil {
		return err
	}
	clear(t.packed)
	var b ledger.Batch
	for _, l := range t.seen {
		b.PutListed(l)
	}
	t.changed = nil
	clear(t.seen)
	return t.home.Ledger.Commit(&b)
}

// applyPacked passes entries to the sink. packed has, by loc, the members of a package with
// their contents.
func (m *Mirror) applyPacked(ctx context.Context, entries []feed.Entry, packed map[string]*pack.Member) error {
	if d, ok := m.sink.(*Directory); ok {
		return d.applyPacked(ctx, entries, packed)
	}
	return m.sink.Apply(ctx, entries)
}

// removeUnlisted removes resources that the listing no longer names. If hub is true, a hub is
// followed after the listing, and resources that came from the hub stay.
func (t *traversal) removeUnlisted(ctx context.Context, hub bool) error {
	var deleted []feed.Entry
	empty := true // whether neither the listing nor later changes have a resource
	for l, err := range t.home.Ledger.ListedResources(ctx) {
		if err != nil {
			return err
		}
		if l.Traversal != t.id && !t.isNewer(&l) {
			deleted = append(deleted, deletion(l.Entry.Change.Loc, feed.Cursor{}))
		} else {
			empty = false
		}
	}
	unlisted := func(loc string) (bool, error) {
		if _, listed, err := t.home.Ledger.ListedResource(loc); err != nil || listed {
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
	return t.applyEntries(ctx, append(deleted, orphans...)) // in one call, because the limit applies to their sum
}

// applyChangeList applies the changes of the Change Lists since the last poll while it reads
// them. If the source has no Change List, it uses the Change Dump. gap means that they start
// after the last poll; then nothing was applied.
func (m *Mirror) applyChangeList(ctx context.Context, st *listState) (gap bool, err error) {
	if st.hasGap(time.Time{}) {
		return true, nil
	}
	if m.source.ChangeList == "" {
		return m.applyChangeDump(ctx, st)
	}
	var seen harvest.Seen
	if st.Lists != nil {
		seen = *st.Lists
	}
	var reach harvest.Reach
	newest, hole, batch := st.Changed, st.Hole, make([]resourcesync.Change, 0, listBatch)
	var skipped skippedEntries
	for c, err := range m.lister.Changes(ctx, m.source.ChangeList, st.changesSince(), &seen, &reach) {
		s, isSkipped := errors.AsType[*harvest.Skipped](err)
		switch {
		case errors.Is(err, harvest.ErrUnchanged):
			return false, nil
		case isSkipped && st.hasGap(reach.From):
			return true, nil
		case isSkipped: // only a later Resource List shows which resource changed
			skipped.add(m, s)
			newest = latest(newest, s.Change.Datetime)
			hole = latest(hole, newest)
			continue
		case err != nil:
			return false, &SourceError{err}
		case st.hasGap(reach.From):
			return true, nil
		case !m.hasPrefix(c.Loc):
			continue
		case c.Change == "":
			return false, &SourceError{resourcesync.Invalidf("Change List: entry of %s has no change", resourcesync.Shorten(c.Loc))}
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
	if st.hasGap(reach.From) {
		return true, nil
	}
	if err := m.applyChanges(ctx, batch, nil, st); err != nil {
		return false, err
	}
	if st.Changed, st.Until, st.Lists = newest, reach.Until, &seen; st.Begin.IsZero() {
		st.Begin = newest
	}
	if m.hasListing() {
		st.Hole = hole
	}
	return false, m.saveListState(st)
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// applyChanges applies those changes that have not been applied yet. packed is as in
// applyPacked.
func (m *Mirror) applyChanges(ctx context.Context, changes []resourcesync.Change, packed map[string]*pack.Member, st *listState) error {
	var entries []feed.Entry
	var b ledger.Batch
	added := map[string]bool{} // locs of entries
	last := map[string]int{}   // index of the last change by loc
	for i := range changes {
		last[changes[i].Loc] = i
	}
	for i, c := range changes {
		before, known, err := m.home.Ledger.ListedResource(c.Loc)
		if err != nil {
			return err
		}
		if !m.matches(&c) {
			if !known && !added[c.Loc] {
				continue // the mirror does not have it
			}
			c = resourcesync.Change{Loc: c.Loc, Change: resourcesync.Deleted, Datetime: c.Datetime} // the resource has left the collection
		}
		if !known && !added[c.Loc] && c.Datetime.Before(st.Changed) && changes[last[c.Loc]].Change == resourcesync.Deleted {
			continue // repeated in the overlap with the last poll
		}
		e := feed.Entry{Cursor: feed.Cursor{Micros: c.Datetime.UnixMicro()}, Change: c}
		if applied := changeMicros(&before.Entry); known && applied >= e.Micros {
			repeated := applied > e.Micros || before.Entry.Change.Change == c.Change && sameVersion(&before.Entry.Change, &c)
			if repeated || last[c.Loc] > i && changes[last[c.Loc]].Datetime.Equal(c.Datetime) {
				continue // already applied; a resource may change several times within the precision of the datetimes
			}
		}
		// If the time of the listing is unknown, only lastmod shows that the listing has a
		// later version.
		if known && before.Entry.Micros == 0 && st.Changed.IsZero() && !c.Lastmod.IsZero() && c.Lastmod.Before(before.Entry.Change.Lastmod) {
			continue
		}
		entries, added[c.Loc] = append(entries, e), true
		if c.Change == resourcesync.Deleted {
			b.RemoveListed(c.Loc)
		} else {
			b.PutListed(ledger.ListedResource{Entry: e})
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
