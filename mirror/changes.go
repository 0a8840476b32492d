package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/harvest"
	"github.com/rshub/rshub/mirror/ledger"
	"github.com/rshub/rshub/resourcesync"
)

// takeChanges takes over the changes of the Change Lists since the last look. gap says that
// the lists do not reach back to it; then nothing was taken over.
func (m *Mirror) takeChanges(ctx context.Context, st *looks) (gap bool, err error) {
	documents, version, err := m.changeLists(ctx, st.Changed, st.Version)
	if errors.Is(err, harvest.ErrUnchanged) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !st.Changed.IsZero() && len(documents) > 0 && documents[0].From.After(st.Changed) {
		return true, nil
	}
	newest := st.Changed
	for _, doc := range documents {
		for batch := range slices.Chunk(doc.Items, listBatch) {
			at, err := m.applyChanges(ctx, batch, st)
			if err != nil {
				return false, err
			}
			if at.After(newest) {
				newest = at
			}
		}
	}
	st.Changed, st.Version = newest, version
	return false, m.keep(st)
}

// changeLists reads the Change Lists that may have changes since a time, oldest first. It
// returns harvest.ErrUnchanged if the list is of a known version. An index has no version:
// its lists may change although the index does not.
func (m *Mirror) changeLists(ctx context.Context, since time.Time, known harvest.Version) ([]*resourcesync.Document, harvest.Version, error) {
	top, version, err := m.changes(ctx, m.source.ChangeList, known)
	if err != nil || !top.Index {
		return []*resourcesync.Document{top}, version, err
	}
	documents, err := m.members(ctx, top, since)
	return documents, harvest.Version{}, err
}

// members reads the Change Lists of an index that may have changes since a time, oldest
// first.
func (m *Mirror) members(ctx context.Context, index *resourcesync.Document, since time.Time) ([]*resourcesync.Document, error) {
	items := slices.Clone(index.Items)
	if !slices.ContainsFunc(items, func(it resourcesync.Item) bool { return it.From.IsZero() }) {
		slices.SortStableFunc(items, func(a, b resourcesync.Item) int { return a.From.Compare(b.From) })
	}
	var documents []*resourcesync.Document
	for i := range items {
		if !items[i].Until.IsZero() && items[i].Until.Before(since) {
			continue
		}
		doc, _, err := m.changes(ctx, items[i].Loc, harvest.Version{})
		if err == nil && doc.Index {
			err = &SourceError{fmt.Errorf("the Change List %s is an index again", resourcesync.Shorten(items[i].Loc))}
		}
		if err != nil {
			return nil, err
		}
		documents = append(documents, doc)
	}
	return documents, nil
}

// changes reads a Change List, or an index of Change Lists.
func (m *Mirror) changes(ctx context.Context, list string, known harvest.Version) (*resourcesync.Document, harvest.Version, error) {
	a, err := m.lister.Getter.Get(ctx, "the Change List", list, known)
	if errors.Is(err, harvest.ErrUnchanged) {
		return nil, known, err
	}
	if err != nil {
		return nil, known, &SourceError{err}
	}
	defer a.Close()
	doc, err := resourcesync.ReadXML(a.Body, m.lister.Limits)
	if err == nil && !a.Complete {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && doc.Capability != resourcesync.ChangeList {
		err = fmt.Errorf("its capability is %.40q, not changelist", doc.Capability)
	}
	if err != nil {
		return nil, known, &SourceError{fmt.Errorf("the Change List %s: %w", harvest.Plain(a.URL), err)}
	}
	return doc, a.Version, nil
}

// changedAt returns when a change of a Change List was.
func changedAt(c *resourcesync.Change) time.Time {
	if c.Datetime.IsZero() {
		return c.Lastmod // as version 1.0 of the standard had it
	}
	return c.Datetime
}

// applyChanges applies changes that were not taken over yet. It returns the newest
// datetime of them.
func (m *Mirror) applyChanges(ctx context.Context, items []resourcesync.Item, st *looks) (newest time.Time, err error) {
	var entries, doubtful []feed.Entry
	var b ledger.Batch
	last := map[string]int{} // by loc
	for i := range items {
		last[items[i].Change.Loc] = i
	}
	for i := range items {
		c := items[i].Change
		at := changedAt(&c)
		if !at.IsZero() && at.Before(st.Changed) || !strings.HasPrefix(c.Loc, m.opts.Prefix) {
			continue
		}
		if at.After(newest) {
			newest = at
		}
		if c.Change == "" {
			return newest, &SourceError{resourcesync.Invalid("a change of the Change List does not say what happened to %s", resourcesync.Shorten(c.Loc))}
		}
		e := feed.Entry{Change: c}
		if !at.IsZero() {
			e.Micros = at.UnixMicro()
		}
		before, known, err := m.home.Ledger.Seen(c.Loc)
		if err != nil {
			return newest, err
		}
		if known && e.Micros != 0 && before.Entry.Micros >= e.Micros {
			again := before.Entry.Micros > e.Micros || before.Entry.Change.Change == c.Change && sameVersion(&before.Entry.Change, &c)
			if later := &items[last[c.Loc]].Change; again || last[c.Loc] > i && changedAt(later).Equal(at) {
				continue // taken over already; a resource may change several times within the precision of the times
			}
		}
		entries = append(entries, e)
		if known || items[last[c.Loc]].Change.Change != resourcesync.Deleted {
			doubtful = append(doubtful, e)
		}
		if c.Change == resourcesync.Deleted {
			b.Unlisted(c.Loc)
		} else {
			b.Listed(ledger.Listed{Entry: e, Look: st.Number})
		}
	}
	if len(entries) == 0 {
		return newest, nil
	}
	if err := m.doubt(doubtful, st.Number); err != nil {
		return newest, err
	}
	if err := m.sink.Apply(ctx, entries); err != nil {
		return newest, err
	}
	return newest, m.home.Ledger.Commit(&b)
}
