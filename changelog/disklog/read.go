package disklog

import (
	"context"
	"errors"
	"fmt"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

const (
	defaultLimit = 1_000
	// Maximum sizes in bytes of the blocks of one read, which bound its memory and its time. A read
	// stops before the block that exceeds one of them, but returns at least one entry.
	maxRead = 1 << 20 // as stored
	maxSize = 1 << 20 // before compression
)

// Since returns the entries that directly follow a cursor; see changelog.Log.
func (l *Log) Since(ctx context.Context, name string, after feed.Cursor, limit int) (*feed.Batch, error) {
	b, err := l.since(ctx, name, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read set %q after %v: %w", name, after, err)
	}
	return b, nil
}

func (l *Log) since(ctx context.Context, name string, after feed.Cursor, limit int) (*feed.Batch, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if limit <= 0 {
		limit = defaultLimit
	}
	batch := &feed.Batch{Set: name, After: after, Cursor: after}
	s := l.find(name)
	if s == nil {
		return batch, missingSetError(after)
	}
	if state := s.state.Load(); state != nil && state.Head == after {
		return batch, nil // nothing follows; the usual case of a follower that is up to date
	}
	v, err := l.view(s)
	if errors.Is(err, feed.ErrNoSet) {
		return batch, missingSetError(after)
	}
	if err != nil {
		return nil, err
	}
	err = v.since(batch, limit, l.opts.ClockSkew.Microseconds())
	return batch, errors.Join(err, v.close())
}

// missingSetError returns the error of Since for a set that does not exist.
func missingSetError(after feed.Cursor) error {
	if after.IsZero() {
		return nil
	}
	return feed.ErrGone
}

// At returns the cursor of the entry at a position, or the floor at the floor's position.
func (l *Log) At(ctx context.Context, name string, position uint64) (feed.Cursor, error) {
	c, err := l.findCursor(ctx, name, func(v *view) (feed.Cursor, error) {
		switch {
		case position < v.state.Floor.Position:
			return feed.Cursor{}, feed.ErrGone
		case position > v.state.Head.Position:
			return feed.Cursor{}, resourcesync.Invalidf("position %d is after the newest entry, %d", position, v.state.Head.Position)
		}
		return v.at(position)
	})
	if err != nil {
		return c, fmt.Errorf("find position %d of set %q: %w", position, name, err)
	}
	return c, nil
}

// Seek returns the cursor after which the entries with datetime >= micros start; see changelog.Log.
func (l *Log) Seek(ctx context.Context, name string, micros int64) (feed.Cursor, error) {
	c, err := l.findCursor(ctx, name, func(v *view) (feed.Cursor, error) {
		floor := v.state.Floor
		if micros < floor.Micros || micros == floor.Micros && floor.Position > 0 {
			return feed.Cursor{}, feed.ErrGone
		}
		return v.newest(micros - 1)
	})
	if err != nil {
		return c, fmt.Errorf("find datetime %d of set %q: %w", micros, name, err)
	}
	return c, nil
}

// findCursor calls find with a view of a set, and returns its result.
func (l *Log) findCursor(ctx context.Context, name string, find func(*view) (feed.Cursor, error)) (feed.Cursor, error) {
	if err := ctx.Err(); err != nil {
		return feed.Cursor{}, err
	}
	s := l.find(name)
	if s == nil {
		return feed.Cursor{}, feed.ErrNoSet
	}
	v, err := l.view(s)
	if err != nil {
		return feed.Cursor{}, err
	}
	c, err := find(v)
	if err := errors.Join(err, v.close()); err != nil {
		return feed.Cursor{}, err
	}
	return c, nil
}
