package mirror

import (
	"context"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/mirror/pack"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/resourcesync"
)

// spanOf returns a text that identifies a version of a package of a Change Dump, as printOf does.
func spanOf(p *harvest.Package) string {
	return printOf(&harvest.Dump{At: p.Until, Packages: []harvest.Package{*p}})
}

// takeChangeDump applies the changes of the Change Dump since the last look, with their
// contents, one package after the other. It reads a package only once, if the dump shows
// when the package changes. gap means that the dump does not reach back to the last look;
// then nothing was applied.
func (m *Mirror) takeChangeDump(ctx context.Context, st *looks) (gap bool, err error) {
	d, err := m.lister.ChangeDump(ctx, m.source.ChangeDump, st.Changed)
	if err != nil {
		return false, &SourceError{err}
	}
	if st.lost(d.From) {
		return true, nil
	}
	spans := d.Packages
	if st.Package != "" {
		known := slices.IndexFunc(spans, func(p harvest.Package) bool { return spanOf(&p) == st.Package })
		spans = spans[known+1:]
	}
	newest := st.Changed
	for i := range spans {
		m.opts.Note("reading package %d of %d of the Change Dump", i+1, len(spans))
		last, err := m.takeSpan(ctx, &spans[i], st)
		if err != nil {
			return false, err
		}
		if last.After(newest) {
			newest = last
		}
		st.Package, st.Until = spanOf(&spans[i]), spans[i].Until
		if i == len(spans)-1 {
			st.Changed = newest // only now, because the packages need not be in the order of their changes
		}
		if err := m.keep(st); err != nil {
			return false, err
		}
	}
	return false, nil
}

// takeSpan applies the changes of one package. It returns the time of the newest one.
func (m *Mirror) takeSpan(ctx context.Context, p *harvest.Package, st *looks) (newest time.Time, err error) {
	var batch []resourcesync.Change
	packed, latest := map[string]*pack.Member{}, map[string]time.Time{}
	apply := func() error {
		err := m.applyChanges(ctx, batch, packed, st)
		batch = batch[:0]
		clear(packed)
		return err
	}
	_, contents := m.sink.(*Directory)
	err = m.manifest(ctx, resourcesync.ChangeDumpManifest, p, contents, func(e *feed.Entry, in *pack.Member) error {
		c := &e.Change
		if !m.names(c.Loc) || c.Datetime.Before(st.Changed) || c.Datetime.Before(latest[c.Loc]) {
			return nil
		}
		latest[c.Loc] = c.Datetime
		if c.Datetime.After(newest) {
			newest = c.Datetime
		}
		delete(packed, c.Loc) // the content belongs to an earlier change
		if in != nil {
			packed[c.Loc] = in
		}
		if batch = append(batch, *c); len(batch) < listBatch {
			return nil
		}
		return apply()
	}, apply)
	return newest, err
}
