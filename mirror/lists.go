package mirror

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/harvest"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/mirror/ledger"
	"github.com/rshub/rshub/resourcesync"
)

const listBatch = 1_000 // entries that are applied at once

// looks is what a mirror remembers of a source's lists.
type looks struct {
	Number  uint64          `json:"number"` // of the newest look at the listing of all resources, which may have been cut off
	Listed  bool            `json:"listed"` // the Resource List was taken over
	Pushed  bool            `json:"pushed"` // what a hub says is taken over, and the list is older
	Bare    bool            `json:"bare"`   // it has resources of which it says nothing but the URL
	Seen    *harvest.Seen   `json:"seen"`
	Dump    string          `json:"dump,omitempty"` // the print of the Resource Dump that was taken over
	Changed time.Time       `json:"changed"`        // every change up to then is taken over
	Version harvest.Version `json:"version"`        // of the Change List that was read; zero: of an index, or of none
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

// lists looks at the source's lists, again and again unless once.
func (m *Mirror) lists(ctx context.Context, once bool) error {
	if !m.listed() && m.source.ChangeList == "" {
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

// passing reports whether another look may find an error gone.
func passing(err error) bool {
	_, ok := errors.AsType[*SourceError](err)
	return ok
}

// look takes over what the lists say that was not known.
func (m *Mirror) look(ctx context.Context) error {
	m.working.Lock()
	defer m.working.Unlock()
	var st looks
	if _, err := m.home.Ledger.Meta("looks", &st); err != nil {
		return err
	}
	if m.resources() != "" && !st.Listed {
		if err := m.restock(ctx, m.source.ResourceDump, "", time.Time{}); err != nil {
			return err
		}
	}
	if m.listed() && (!st.Listed || m.source.ChangeList == "") {
		if err := m.takeAll(ctx, &st); err != nil {
			return err
		}
	}
	if m.source.ChangeList == "" {
		return nil
	}
	if err := m.restock(ctx, "", m.source.ChangeDump, st.Changed); err != nil {
		return err
	}
	gap, err := m.takeChanges(ctx, &st)
	for tries := 1; gap && err == nil; tries++ {
		gap, err = m.bridge(ctx, &st, tries < bridges)
	}
	return err
}

// bridges is how often in a row the list of all resources is read because the Change List
// begins after it. A source may renew both while they are read.
const bridges = 3

// bridge takes over all resources, because the Change List begins after the last look, and then
// the changes. gap says that the Change List was renewed meanwhile, and begins after the list,
// too. If there is nothing more to try, or again is not set, bridge takes over all changes that
// there are.
func (m *Mirror) bridge(ctx context.Context, st *looks, again bool) (gap bool, err error) {
	before := st.Changed
	if !m.listed() {
		m.opts.Note("the Change List begins after the last look: the changes in between are lost")
	} else {
		m.opts.Note("the Change List begins after the last look: reading the list of all resources")
		if err := m.takeAll(ctx, st); err != nil {
			return false, err
		}
	}
	if !st.Changed.Equal(before) {
		if gap, err = m.takeChanges(ctx, st); !gap || again || err != nil {
			return gap, err
		}
	}
	if m.listed() {
		m.opts.Note("the Change List begins after the list of all resources: changes in between may be missing")
	}
	st.Changed, st.Version = time.Time{}, harvest.Version{}
	return m.takeChanges(ctx, st)
}

// takeAll takes over all resources of the source: by its list, else by its dump.
func (m *Mirror) takeAll(ctx context.Context, st *looks) error {
	if m.resources() == "" {
		return m.takeDump(ctx, st)
	}
	return m.takeList(ctx, st)
}

// takeList takes over the listing of all resources: what is new or different in it, and
// at its end what is in it no more.
func (m *Mirror) takeList(ctx context.Context, st *looks) error {
	at, err := m.listedAt(ctx)
	if err != nil {
		return err
	}
	if err := m.begin(st); err != nil {
		return err
	}
	t := &taking{Mirror: m, at: at, look: st.Number}
	seen := st.Seen
	if seen == nil || !st.Listed || st.Bare {
		seen = new(harvest.Seen) // read all
	}
	for e, err := range m.lister.Since(ctx, m.resources(), seen) {
		if errors.Is(err, harvest.ErrUnchanged) {
			return nil
		}
		if err != nil {
			return errors.Join(t.apply(ctx), &SourceError{err})
		}
		if !t.wants(e) {
			continue
		}
		if err := t.add(ctx, e.Change); err != nil {
			return err
		}
	}
	if err := t.apply(ctx); err != nil {
		return err
	}
	st.Seen = seen
	return t.end(ctx, st)
}

// begin gives a look at the listing of all resources a number of its own. What a look that was
// cut off saw may be gone since.
func (m *Mirror) begin(st *looks) error {
	st.Number++
	var b ledger.Batch
	b.Meta("looks", *st)
	return m.home.Ledger.Commit(&b)
}

// end removes what was not seen, and keeps that all was taken over.
func (t *taking) end(ctx context.Context, st *looks) error {
	if err := t.leftovers(ctx); err != nil {
		return err
	}
	st.Listed, st.Bare = true, t.bare
	if t.source.ChangeList != "" && (st.Changed.IsZero() || t.at.After(st.Changed)) {
		st.Changed, st.Version = t.at, harvest.Version{}
	}
	return t.keep(st)
}

// wants reports whether the mirror is to have a resource.
func (m *Mirror) wants(e *feed.Entry) bool { return strings.HasPrefix(e.Change.Loc, m.opts.Prefix) }

func (m *Mirror) keep(st *looks) error {
	var b ledger.Batch
	b.Meta("looks", *st)
	b.Meta(dumpKey, nil)
	return m.home.Ledger.Commit(&b)
}

// listedAt returns the time that a Resource List says it is of; zero: it does not say.
func (m *Mirror) listedAt(ctx context.Context) (time.Time, error) {
	if m.source.ResourceList == "" || m.source.ChangeList == "" {
		return time.Time{}, nil
	}
	a, err := m.lister.Getter.Get(ctx, "the Resource List", m.source.ResourceList, harvest.Version{})
	if err != nil {
		return time.Time{}, &SourceError{err}
	}
	defer a.Close()
	h, err := resourcesync.NewXMLReader(a.Body, m.lister.Limits).Header()
	if err != nil {
		return time.Time{}, &SourceError{fmt.Errorf("the Resource List %s: %w", harvest.Plain(a.URL), err)}
	}
	return h.At, nil
}

// A taking is one look at the listing of all resources.
type taking struct {
	*Mirror
	at   time.Time
	look uint64

	bare    bool
	changed []feed.Entry       // to be applied
	packed  map[string]*member // by loc: where the content is, if it is in a package
	seen    []ledger.Listed    // to be kept when that is done
}

// add takes in one resource.
func (t *taking) add(ctx context.Context, c resourcesync.Change) error {
	e := feed.Entry{Change: c}
	before, known, err := t.home.Ledger.Seen(c.Loc)
	if err != nil {
		return err
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
	t.seen = append(t.seen, ledger.Listed{Entry: e, Look: t.look})
	if len(t.seen) < listBatch {
		return nil
	}
	return t.apply(ctx)
}

// newer reports whether a change was taken over that the listing does not have yet.
func (t *taking) newer(l *ledger.Listed) bool {
	return !t.at.IsZero() && l.Entry.Micros > t.at.UnixMicro()
}

func sameVersion(a, b *resourcesync.Change) bool {
	same, known := audit.SameContent(a, b)
	return same && known
}

// doubt keeps that nobody knows which version of these resources the sink has, until what it
// has is kept. Else, if Apply is cut off, a resource would seem to have the version before it,
// and would miss that version if the source went back to it.
func (m *Mirror) doubt(entries []feed.Entry, look uint64) error {
	for batch := range slices.Chunk(entries, listBatch) {
		var b ledger.Batch
		for i := range batch {
			b.Listed(ledger.Listed{Entry: feed.Entry{Change: resourcesync.Change{Loc: batch[i].Change.Loc}}, Look: look})
		}
		if err := m.home.Ledger.Commit(&b); err != nil {
			return err
		}
	}
	return nil
}

// apply applies what was taken in, and then keeps that it was.
func (t *taking) apply(ctx context.Context) error {
	if len(t.changed) > 0 {
		err := t.doubt(t.changed, t.look)
		if err != nil {
			return err
		}
		if d, ok := t.sink.(*Directory); ok && len(t.packed) > 0 {
			err = d.applyPacked(ctx, t.changed, t.packed)
		} else {
			err = t.sink.Apply(ctx, t.changed)
		}
		if err != nil {
			return err
		}
	}
	clear(t.packed)
	var b ledger.Batch
	for i := range t.seen {
		b.Listed(t.seen[i])
	}
	t.changed, t.seen = nil, t.seen[:0]
	return t.home.Ledger.Commit(&b)
}

// leftovers removes what the listing does not name any more.
func (t *taking) leftovers(ctx context.Context) error {
	var gone []feed.Entry
	for l, err := range t.home.Ledger.Listed(ctx) {
		if err != nil {
			return err
		}
		if l.Look != t.look && !t.newer(&l) {
			gone = append(gone, deleted(l.Entry.Change.Loc, feed.Cursor{}))
		}
	}
	unlisted := func(loc string) (bool, error) {
		_, listed, err := t.home.Ledger.Seen(loc)
		return !listed, err
	}
	at := feed.Cursor{Micros: math.MaxInt64}
	if !t.at.IsZero() {
		at.Micros = t.at.UnixMicro()
	}
	orphans, err := t.orphans(ctx, at, unlisted)
	if err != nil {
		return err
	}
	gone = append(gone, orphans...)
	if len(gone) == 0 {
		return nil
	}
	if err := t.doubt(gone, 0); err != nil {
		return err
	}
	if err := t.sink.Apply(ctx, gone); err != nil { // all at once: they are bounded together
		return err
	}
	for batch := range slices.Chunk(gone, listBatch) {
		var b ledger.Batch
		for i := range batch {
			b.Unlisted(batch[i].Change.Loc)
		}
		if err := t.home.Ledger.Commit(&b); err != nil {
			return err
		}
	}
	return nil
}
