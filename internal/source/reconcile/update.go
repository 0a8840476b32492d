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

// A Sight is what a source has seen at one loc since the last Sync.
type Sight struct {
	Loc   string
	Entry *feed.Entry // the resource; nil: there is none
	Below string      // no other resource has a loc that begins with this; empty: nothing is known about others
}

// ErrSync means that only a Sync can find out what the hub knows. There was no Sync yet,
// or the hub has another log, because the set was made anew or a backup was restored.
var ErrSync = errors.New("the hub may have lost a part of what it knew")

// Update publishes the changes that a source has seen. It does not list the rest of the
// source, and does not ask the hub, because the Source knows the hub's state since the
// last Sync. After an error the caller has to Sync before the next Update; the Sync finds
// the same changes again.
func (s *Source) Update(ctx context.Context, sights []Sight) (Result, error) {
	if s.holding == nil {
		return Result{}, ErrSync
	}
	if err := s.learn(ctx); err != nil {
		return Result{}, err
	}
	u := &update{Source: s, state: s.known.State(feed.Cursor{}), seen: map[string]bool{}}
	for i := range sights {
		if err := u.see(ctx, &sights[i]); err != nil {
			return u.result, err
		}
	}
	err := u.publish(ctx)
	if err != nil {
		_ = s.Close() // the first error is worth more
	}
	return u.result, err
}

// learn computes what the hub knows since the last Sync: the list, and the hub's
// resources in the gaps.
func (s *Source) learn(ctx context.Context) error {
	if s.known != nil {
		return nil
	}
	own, err := s.holding.own(ctx)
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
	s.known, s.position = known, toKeep
	return nil
}

type update struct {
	*Source
	state   *inventory.State // what the hub knew before
	seen    map[string]bool  // locs
	changes []resourcesync.Change
	gone    []resourcesync.Change
	result  Result
}

// see adds the changes that a Sight shows.
func (u *update) see(ctx context.Context, s *Sight) error {
	e, known, err := u.state.Get(ctx, s.Loc)
	if err != nil {
		return err
	}
	switch {
	case u.seen[s.Loc]: // an earlier Sight with Below covered it
	case s.Entry != nil && !known:
		err = u.add(s.Entry, resourcesync.Created)
	case s.Entry != nil:
		if same, comparable := audit.SameContent(&s.Entry.Change, &e.Change); !same || !comparable {
			err = u.add(s.Entry, resourcesync.Updated)
		}
	case known:
		u.remove(s.Loc)
	}
	u.seen[s.Loc] = true
	if err != nil || s.Below == "" {
		return err
	}
	for e, err := range u.state.Walk(ctx, inventory.Prefix(s.Below)) {
		if err != nil {
			return err
		}
		if !u.seen[e.Change.Loc] {
			u.seen[e.Change.Loc] = true
			u.remove(e.Change.Loc)
		}
	}
	return nil
}

func (u *update) add(e *feed.Entry, t resourcesync.ChangeType) error {
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

func (u *update) remove(loc string) {
	u.result.Deleted++
	u.gone = append(u.gone, resourcesync.Change{Loc: loc, Change: resourcesync.Deleted})
}

// publish publishes the changes, and notes that the hub knows them.
func (u *update) publish(ctx context.Context) error {
	t, err := u.state.Tally(ctx, inventory.Range{})
	if err != nil {
		return err
	}
	left := t.Count + uint64(u.result.Created) - uint64(u.result.Deleted)
	if err := u.opts.Toll.Check(u.opts.MaxDelete, uint64(len(u.gone)), u.held, left, u.opts.Now()); err != nil {
		return err
	}
	all := append(u.changes, u.gone...)
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
		return fmt.Errorf("the hub's log was at %v, and after %d changes it is at %v: %w", u.head, len(all), b.head, ErrSync)
	}
	u.head, u.result.Cursor = b.head, b.head
	u.Source.held += uint64(u.result.Created)
	return u.known.Add(ctx, entries)
}

// Waiting returns how many resources have changed since the last Sync. They take memory
// until the next one.
func (s *Source) Waiting() int {
	if s.known == nil {
		return 0
	}
	return s.known.Len()
}
