package disklog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// Trim applies retention to a set and removes its expired keys.
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
		return 0, feed.ErrNoSet
	}
	removed, err := l.removeLists(ctx, s, r)
	if err != nil {
		return 0, err
	}
	return removed, l.expireKeys(ctx, s, r.Doubtful || l.clock.Load().Doubtful(l.now()))
}

// removeLists removes the closed lists that retention no longer retains, oldest first. It returns the
// number of entries removed.
func (l *Log) removeLists(ctx context.Context, s *set, r changelog.Retention) (int, error) {
	if err := s.lock(ctx); err != nil {
		return 0, err
	}
	defer s.write.Unlock()
	v, err := l.view(s)
	if err != nil {
		return 0, err
	}
	if r.Doubtful {
		r.Age = 0
	}
	floor, err := v.retentionFloor(r, l.now())
	if err := errors.Join(err, v.close()); err != nil {
		return 0, err
	}
	old := s.record.Floor
	if floor == old {
		return 0, nil
	}
	s.record.Floor = floor
	s.updateState(func(state *feed.State) { state.Floor = floor }) // before the entries are removed, see Log.view
	b := l.db.NewBatch()
	removeRange(b, logKey(s.name, 0), logKey(s.name, floor.Position+1))
	put(b, setKey(s.name), s.record.encode())
	if err := l.commit(b); err != nil {
		return 0, err
	}
	return int(floor.Position - old.Position), nil
}

// Tick records the time of the hub's clock; see changelog.Log.
func (l *Log) Tick(ctx context.Context) (doubtful bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("record the time: %w", err)
	}
	l.tickMu.Lock()
	defer l.tickMu.Unlock()
	prev, err := l.readClock()
	if err != nil {
		return false, fmt.Errorf("record the time: %w", err)
	}
	now := l.now()
	c := prev.Tick(now)
	// Write only when enough time has passed, so that an idle hub rarely writes.
	if d := now - prev.At; c.Doubted != prev.Doubted || max(d, -d) >= changelog.ClockStep.Microseconds()/6 {
		b := l.db.NewBatch()
		v := binary.BigEndian.AppendUint64(nil, uint64(c.At))
		put(b, clockKey, binary.BigEndian.AppendUint64(v, uint64(c.Doubted)))
		if err := l.commit(b); err != nil {
			return false, fmt.Errorf("record the time: %w", err)
		}
	}
	l.clock.Store(&c)
	return c.Doubted > 0, nil
}

// readClock reads the newest record of Tick. The Clock is zero if there is none.
func (l *Log) readClock() (c changelog.Clock, err error) {
	v, err := l.get(clockKey)
	switch {
	case err != nil || v == nil:
		return c, err
	case len(v) != 16:
		return c, fmt.Errorf("%w: recorded time: got %d bytes, want 16", changelog.ErrCorrupt, len(v))
	}
	return changelog.Clock{At: int64(binary.BigEndian.Uint64(v)), Doubted: int64(binary.BigEndian.Uint64(v[8:]))}, nil
}

// retentionFloor returns the floor after retention, which is the present floor if nothing is to be
// removed.
func (v *view) retentionFloor(r changelog.Retention, now int64) (feed.Cursor, error) {
	k := uint64(v.state.ListSize)
	var lists uint64 // number of the last list that may be removed
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
		lists = min(lists, open-2) // the open list and the newest closed list stay
	} else {
		lists = 0
	}
	if r.Unread != nil {
		lists = min(lists, r.Unread.Position/k)
	}
	if lists*k <= v.state.Floor.Position {
		return v.state.Floor, nil
	}
	return v.at(lists * k)
}
