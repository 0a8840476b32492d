package dump

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
)

// resources makes the Resource Dump of a set, if one is due. It reports whether there was
// never one, and there will be one when the set has a Resource List.
func (m *Maker) resources(ctx context.Context, st *feed.State, rec *record) (waits bool, err error) {
	l, err := m.listOf(ctx, st.Set, rec)
	if e, ok := errors.AsType[*feed.Error](err); ok && e.Status == 404 && !errors.Is(err, feed.ErrNoSet) {
		return len(rec.Resources) == 0, nil
	}
	if err != nil {
		return false, err
	}
	if last := rec.resourceDump(); rec.BegunResources == nil && last != nil && (last.At == l.Cursor() || time.Since(last.Completed) < m.opts.Interval) {
		return false, nil
	}
	b := rec.BegunResources
	if b == nil {
		b = &begun{made: made{Name: resourceKind + "-" + l.Cursor().String(), At: l.Cursor()}}
	}
	s, err := m.copy(ctx, l, b.After)
	if err != nil {
		return false, fmt.Errorf("copy the list of the resources: %w", err)
	}
	defer s.close()
	if s.n == 0 && b.isEmpty() {
		return true, nil // a dump has no form for nothing
	}
	begin := time.Now()
	w := &writing{Maker: m, set: st.Set, kind: resourceKind, of: &b.made, begun: func() error {
		rec.BegunResources = b
		if err := m.keep(ctx, st.Set, rec); err != nil {
			return err
		}
		return m.changes(ctx, st.Set, rec) // they need not wait until this dump is made
	}, last: func(e *feed.Entry) { b.After = e.Change.Loc }}
	var f *former
	if last := cmp.Or(rec.resourceDump(), rec.GivenUp); last != nil {
		f = &former{Maker: m, set: st.Set, dump: last}
	}
	if err := w.all(ctx, st, f.items(ctx, s.all())); err != nil {
		return false, err
	}
	b.Completed = time.Now().UTC().Truncate(time.Microsecond)
	rec.Resources = append(rec.Resources, b.made)
	if n := len(rec.Resources); n > 2 { // whoever reads the one before can go on
		rec.Resources = rec.Resources[n-2:]
	}
	rec.BegunResources, rec.GivenUp = nil, nil
	if err := m.keep(ctx, st.Set, rec); err != nil {
		return false, err
	}
	m.made(st.Set, resourceKind, &b.made, begin)
	return false, m.sweep(ctx, st.Set, rec)
}

// listOf returns what the dump is made of that was begun. If that is gone, or nothing was begun,
// it returns the newest Resource List.
func (m *Maker) listOf(ctx context.Context, set string, rec *record) (Resources, error) {
	if b := rec.BegunResources; b != nil {
		l, err := m.opts.List(ctx, set, b.At)
		if !errors.Is(err, feed.ErrGone) {
			return l, err
		}
		rec.BegunResources = nil
		if len(rec.Resources) == 0 && (rec.GivenUp == nil || len(b.Packages) > len(rec.GivenUp.Packages)) {
			rec.GivenUp = &b.made
		}
	}
	return m.opts.List(ctx, set, feed.Cursor{})
}

// copy copies the resources behind a loc.
func (m *Maker) copy(ctx context.Context, l Resources, after string) (*spool, error) {
	s, err := newSpool(m.opts.Dir)
	if err != nil {
		return nil, err
	}
	var r inventory.Range
	if after != "" {
		r.From = after + "\x00"
	}
	for e, err := range l.Walk(ctx, r) {
		if err == nil {
			err = s.add(e)
		}
		if err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// A writing writes the packages of one dump.
type writing struct {
	*Maker
	set   string
	kind  string
	of    *made
	begun func() error      // keeps what was begun, after each package
	last  func(*feed.Entry) // is told the last entry of each package before that

	now  *packing
	from feed.Cursor // of a Change Dump: the cursor before the first change of the package
	end  *feed.Entry // the last entry in the package
}

// all packs items. After an error, the packages before it are kept as begun.
func (w *writing) all(ctx context.Context, st *feed.State, items iter.Seq2[item, error]) error {
	defer func() {
		if w.now != nil {
			w.now.abort()
		}
	}()
	w.from = w.of.From
	if n := len(w.of.Packages); n > 0 {
		w.from = w.of.Packages[n-1].At
	}
	err := w.gatherer.each(ctx, items, func(g *gathered) error {
		if w.full(g) {
			if err := w.cut(); err != nil {
				return err
			}
		}
		if w.now == nil {
			var err error
			if w.now, err = w.newPacking(ctx, st, w.of, w.kind, len(w.of.Packages)+1); err != nil {
				return err
			}
		}
		w.end = g.entry
		w.metrics.saw(g)
		return w.now.add(g)
	})
	if err != nil {
		return err
	}
	if w.now != nil {
		return w.cut()
	}
	return nil
}

// full reports whether the package has no room for one more.
func (w *writing) full(g *gathered) bool {
	p := w.now
	if p == nil || p.count() == 0 {
		return false
	}
	next := int64(g.entry.Change.Size() + len(g.why) + 1<<10)
	size := p.size
	if g.got != nil {
		size += g.got.Size
	}
	return p.count() >= w.opts.PackageCount || p.text()+next > maxManifest || size > w.opts.PackageBytes
}

// cut ends the package.
func (w *writing) cut() error {
	done, err := w.now.commit(w.from, w.end.Cursor)
	if err != nil {
		return err
	}
	w.now, w.from = nil, w.end.Cursor
	if w.kind == resourceKind {
		done.Last = w.end.Change.Loc
	}
	w.of.Packages = append(w.of.Packages, done)
	w.metrics.packages.Inc()
	w.metrics.bytes.Add(float64(done.Zip.Size))
	w.last(w.end)
	return w.begun()
}

// made says that a dump was made.
func (m *Maker) made(set, kind string, d *made, begin time.Time) {
	m.metrics.dumps.WithLabelValues(kind).Inc()
	n, size := 0, int64(0)
	for i := range d.Packages {
		n += d.Packages[i].Resources
		size += d.Packages[i].Zip.Size
	}
	m.opts.Logger.Info("a dump was made", "set", set, "kind", kind, "cursor", d.At.String(), "packages", len(d.Packages), "resources", n, "missing", d.missing(), "bytes", size, "seconds", time.Since(begin).Seconds())
}
