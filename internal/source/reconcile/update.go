package reconcile

import (
	"context"
	"errors"
	"fmt"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/resourcesync"
)

// An Observation is what a source has seen at one loc since the last Sync.
type Observation struct {
	Loc    string
	Entry  *feed.Entry // the resource; nil if it does not exist
	Prefix string      // no other resource has a loc with this prefix; empty means that nothing is known about others
}

// ErrNeedsSync means that only a Sync can find out what the hub knows. There was no Sync yet, or
// the hub has another log, because the set was recreated or a backup was restored.
var ErrNeedsSync = errors.New("the hub may have lost changes; a sync is needed")

// Update publishes the changes that a source has observed. It does not list the rest of the source
// and does not ask the hub, because the Source knows the hub's state since the last Sync. After an
// error, the caller must call Sync before the next Update; the Sync finds the same changes again.
func (s *Source) Update(ctx context.Context, sights []Observation) (Result, error) {
	if s.list == nil {
		return Result{}, ErrNeedsSync
	}
	if err := s.loadHubState(ctx); err != nil {
		return Result{}, err
	}
	u := &updateRun{Source: s, state: s.hubState.State(feed.Cursor{}), seen: map[string]bool{}}
	for i := range sights {
		if err := u.observe(ctx, &sights[i]); err != nil {
			return u.result, err
		}
	}
	err := u.publish(ctx)
	if err != nil {
		_ = s.Close() // the first error is more useful
	}
	return u.result, err
}

// loadHubState computes what the hub knows since the last Sync: the list, and the hub's resources
// in the gaps.
func (s *Source) loadHubState(ctx context.Context) error {
	if s.hubState != nil {
		return nil
	}
	own, err := s.list.sortedState(ctx)
	if err != nil {
		return err
	}
	known := own.Overlay()
	if s.changes != nil {
		for e, err := range s.changes.Walk(ctx, inventory.Range{}) {
			if err == nil && e.Position == toKeep {
				err = known.Add(ctx, []feed.Entry{*e})
			}
			if err != nil {
				return err
			}
		}
	}
	s.hubState, s.position = known, toKeep
	return nil
}

type updateRun struct {
	*Source
	state     *inventory.State // what the hub knew before
	seen      map[string]bool  // locs
	changes   []resourcesync.Change
	deletions []resourcesync.Change
	result    Result
}

// observe adds the changes that an Observation implies.
func (u *updateRun) observe(ctx context.Context, s *Observation) error {
	e, known, err := u.state.Get(ctx, s.Loc)
	if err != nil {
		return err
	}
	switch {
	case u.seen[s.Loc]: // covered by the Prefix of an earlier Observation
	case s.Entry != nil && !known:
		err = u.add(s.Entry, resourcesync.Created)
	case s.Entry != nil:
		if same, comparable := audit.SameContent(&s.Entry.Change, &e.Change); !same || !comparable {
			err = u.add(s.Entry, resourcesync.Updated)
		}
	case known:
		u.addDeletion(s.Loc)
	}
	u.seen[s.Loc] = true
	if err != nil || s.Prefix == "" {
		return err
	}
	for e, err := range u.state.Walk(ctx, inventory.Prefix(s.Prefix)) {
		if err != nil {
			return err
		}
		if !u.seen[e.Change.Loc] {
			u.seen[e.Change.Loc] = true
			u.addDeletion(e.Change.Loc)
		}
	}
	return nil
}

func (u *updateRun) add(e *feed.Entry, t resourcesync.ChangeType) error {
	c := e.Change
	c.Change = t
	if err := c.Validate(); err != nil {
		return err
	}
	if t == resourcesync.Created {
		u.result.Created++
	} else {
		u.result.Updated++
	}
	u.changes = append(u.changes, c)
	return nil
}

func (u *updateRun) addDeletion(loc string) {
	u.result.Deleted++
	u.deletions = append(u.deletions, resourcesync.Change{Loc: loc, Change: resourcesync.Deleted})
}

// publish publishes the changes and records that the hub knows them.
func (u *updateRun) publish(ctx context.Context) error {
	t, err := u.state.Tally(ctx, inventory.Range{})
	if err != nil {
		return err
	}
	left := t.Count + uint64(u.result.Created) - uint64(u.result.Deleted)
	if err := u.opts.Deletions.Check(u.opts.MaxDelete, uint64(len(u.deletions)), u.hubCount, left, u.opts.Now()); err != nil {
		return err
	}
	all := append(u.changes, u.deletions...)
	b := u.batch(u.head)
	entries := make([]feed.Entry, len(all))
	for i := range all {
		if err := b.Add(ctx, &all[i]); err != nil {
			return err
		}
		u.position++
		entries[i] = feed.Entry{Cursor: feed.Cursor{Position: u.position}, Change: all[i]}
	}
	if err := b.Send(ctx); err != nil {
		return err
	}
	if len(all) > 0 && b.head.Position < u.head.Position+uint64(len(all)) {
		return fmt.Errorf("the hub's log was at %v, and is at %[3]v after %[2]d changes: %[4]w", u.head, len(all), b.head, ErrNeedsSync)
	}
	u.head, u.result.Cursor = b.head, b.head
	u.Source.hubCount += uint64(u.result.Created)
	return u.hubState.Add(ctx, entries)
}

// PendingLen returns the number of resources that have changed since the last Sync. They use memory
// until the next one.
func (s *Source) PendingLen() int {
	if s.hubState == nil {
		return 0
	}
	return s.hubState.Len()
}
