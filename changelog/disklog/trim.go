package disklog

import (
	"context"
	"errors"
	"fmt"

	"github.com/rshub/rshub/changelog"
)

// Trim applies retention to a set and forgets expired keys.
func (l *Log) Trim(ctx context.Context, name string, r changelog.Retention) (int, error) {
	removed, err := l.trim(ctx, name, r)
	if err != nil {
		return removed, fmt.Errorf("trim set %q: %w", name, err)
	}
	return removed, nil
}

func (l *Log) trim(ctx context.Context, name string, r changelog.Retention) (int, error) {
	s := l.find(name)
	if s == nil {
		return 0, changelog.ErrNoSet
	}
	removed, err := l.cutLists(ctx, s, r)
	if err != nil {
		return 0, err
	}
	return removed, l.forget(ctx, s)
}

// cutLists removes the oldest closed lists, as far as retention wants it.
func (l *Log) cutLists(ctx context.Context, s *set, r changelog.Retention) (int, error) {
	if err := s.lock(ctx); err != nil {
		return 0, err
	}
	defer s.write.Unlock()
	v, err := l.view(s)
	if err != nil {
		return 0, err
	}
	floor, err := v.retain(r, l.now())
	if err := errors.Join(err, v.close()); err != nil {
		return 0, err
	}
	old := s.record.Floor
	if floor == old {
		return 0, nil
	}
	s.record.Floor = floor
	s.show(func(state *changelog.State) { state.Floor = floor }) // before the entries go: see view
	b := l.db.NewBatch()
	removeRange(b, logKey(s.name, 0), logKey(s.name, floor.Position+1))
	put(b, setKey(s.name), s.record.encode())
	if err := l.commit(b); err != nil {
		return 0, err
	}
	return int(floor.Position - old.Position), nil
}

// retain returns the floor that retention wants.
func (v *view) retain(r changelog.Retention, now int64) (changelog.Cursor, error) {
	k := uint64(v.state.ListSize)
	var lists uint64 // that may go; each condition holds for the first lists up to some number
	if r.Age > 0 {
		young, err := v.newest(now - r.Age.Microseconds() - 1)
		if err != nil {
			return young, err
		}
		lists = young.Position / k
	}
	if head := v.state.Head.Position; r.Count > 0 && head > r.Count {
		lists = max(lists, (head-r.Count)/k)
	}
	if _, open := v.state.Lists(); open >= 2 {
		lists = min(lists, open-2) // the open list and the newest closed one stay
	} else {
		lists = 0
	}
	if lists*k <= v.state.Floor.Position {
		return v.state.Floor, nil
	}
	return v.at(lists * k)
}
