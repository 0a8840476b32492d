package dump

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/rshub/rshub/dump/place"
	"github.com/rshub/rshub/feed"
)

// sweep removes files of a set that no dump names: those of dumps that newer ones replaced,
// and what was left by a hub that was stopped. Young files may be those of another hub.
func (m *Maker) sweep(ctx context.Context, set string, rec *record) error {
	named, before := rec.names(), time.Now().Add(-m.opts.Grace)
	return m.removeFiles(ctx, dirOf(set), func(f place.Info) bool {
		return !named[strings.TrimPrefix(f.Name, dirOf(set))] && f.Changed.Before(before)
	})
}

// remove removes all files of a set that were written before a time. The record goes first:
// from then on nothing is served.
func (m *Maker) remove(ctx context.Context, set string, before time.Time) error {
	if err := m.place.Remove(ctx, dirOf(set)+recordName); err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.views, set)
	m.mu.Unlock()
	return m.removeFiles(ctx, dirOf(set), func(f place.Info) bool { return f.Changed.Before(before) })
}

func (m *Maker) removeFiles(ctx context.Context, prefix string, which func(place.Info) bool) error {
	var errs []error
	for f, err := range m.place.List(ctx, prefix) {
		if err != nil {
			return err
		}
		if which(f) {
			errs = append(errs, m.place.Remove(ctx, f.Name))
		}
	}
	return errors.Join(errs...)
}

// clean removes the files of sets that are gone, or want no dumps any more, of those sets that
// this hub would make dumps of. It does so at the second look that finds a set so: a memory
// that is not right for a moment must not cost what took days to fetch.
func (m *Maker) clean(ctx context.Context, states []feed.State) error {
	wanted, orphans := map[string]bool{}, map[string]bool{}
	for _, st := range states {
		wanted[st.Set] = st.Dumps
	}
	before := time.Now().Add(-m.opts.Grace)
	err := m.removeFiles(ctx, "", func(f place.Info) bool {
		set, _, ok := strings.Cut(f.Name, "/")
		if !ok || wanted[set] || feed.CheckSet(set) != nil || !m.opts.Mine(set) {
			return false
		}
		orphans[set] = true
		return m.orphans[set] && f.Changed.Before(before)
	})
	m.orphans = orphans
	return err
}
