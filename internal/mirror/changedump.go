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

// packageFingerprint identifies a version of a package of a Change Dump, as fingerprint does for
// a dump.
func packageFingerprint(p *harvest.Package) string {
	return fingerprint(&harvest.Dump{At: p.Until, Packages: []harvest.Package{*p}})
}

// applyChangeDump applies the changes of the Change Dump since the last poll with their
// contents, one package after the other. It reads a package only once, if the dump shows when
// the package changes. gap means that the dump starts after the last poll; then nothing was
// applied.
func (m *Mirror) applyChangeDump(ctx context.Context, st *listState) (gap bool, err error) {
	d, err := m.lister.ChangeDump(ctx, m.source.ChangeDump, st.Changed)
	if err != nil {
		return false, &SourceError{err}
	}
	if st.hasGap(d.From) {
		return true, nil
	}
	packages := d.Packages
	if st.Package != "" {
		known := slices.IndexFunc(packages, func(p harvest.Package) bool { return packageFingerprint(&p) == st.Package })
		packages = packages[known+1:]
	}
	newest := st.Changed
	for i := range packages {
		m.opts.Logf("reading package %d of %d of the Change Dump", i+1, len(packages))
		last, err := m.applyChangePackage(ctx, &packages[i], st)
		if err != nil {
			return false, err
		}
		if last.After(newest) {
			newest = last
		}
		st.Package, st.Until = packageFingerprint(&packages[i]), packages[i].Until
		if i == len(packages)-1 {
			st.Changed = newest // only now, because the packages need not be in chronological order
		}
		if err := m.saveListState(st); err != nil {
			return false, err
		}
	}
	return false, nil
}

// applyChangePackage applies the changes of one package. It returns the time of the newest one.
func (m *Mirror) applyChangePackage(ctx context.Context, p *harvest.Package, st *listState) (newest time.Time, err error) {
	var batch []resourcesync.Change
	packed, latest := map[string]*pack.Member{}, map[string]time.Time{}
	apply := func() error {
		err := m.applyChanges(ctx, batch, packed, st)
		batch = batch[:0]
		clear(packed)
		return err
	}
	_, contents := m.sink.(*Directory)
	err = m.readManifest(ctx, resourcesync.ChangeDumpManifest, p, contents, func(e *feed.Entry, in *pack.Member) error {
		c := &e.Change
		if !m.hasPrefix(c.Loc) || c.Datetime.Before(st.Changed) || c.Datetime.Before(latest[c.Loc]) {
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
