package disklog

import (
	"context"
	"errors"
	"fmt"

	"github.com/rshub/rshub/changelog"
)

const (
	defaultLimit = 1_000
	// A read ends where its blocks have more bytes than this, as they are stored
	// or before compression, so that neither a batch nor the time that it takes
	// grows without bound.
	maxRead = 1 << 20
	maxSize = 8 << 20
)

// Since returns the entries that directly follow a cursor.
func (l *Log) Since(ctx context.Context, name string, after changelog.Cursor, limit int) (*changelog.Batch, error) {
	b, err := l.since(ctx, name, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read set %q after %v: %w", name, after, err)
	}
	return b, nil
}

func (l *Log) since(ctx context.Context, name string, after changelog.Cursor, limit int) (*changelog.Batch, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if limit <= 0 {
		limit = defaultLimit
	}
	batch := &changelog.Batch{Set: name, After: after, Cursor: after}
	s := l.find(name)
	if s == nil {
		return batch, unmade(after)
	}
	if state := s.state.Load(); state != nil && state.Head == after {
		return batch, nil // the way of a follower that keeps up
	}
	v, err := l.view(s)
	if errors.Is(err, changelog.ErrNoSet) {
		return batch, unmade(after)
	}
	if err != nil {
		return nil, err
	}
	err = v.since(batch, limit, l.opts.ClockSkew.Microseconds())
	return batch, errors.Join(err, v.close())
}

// unmade is the answer to a cursor in a set that is not made.
func unmade(after changelog.Cursor) error {
	if after.IsZero() {
		return nil
	}
	return changelog.ErrGone
}

// At returns the cursor of the entry at a position, or the floor's.
func (l *Log) At(ctx context.Context, name string, position uint64) (changelog.Cursor, error) {
	c, err := l.look(ctx, name, func(v *view) (changelog.Cursor, error) {
		switch {
		case position < v.state.Floor.Position:
			return changelog.Cursor{}, changelog.ErrGone
		case position > v.state.Head.Position:
			return changelog.Cursor{}, changelog.Invalid("position %d lies behind the newest entry, %d", position, v.state.Head.Position)
		}
		return v.at(position)
	})
	if err != nil {
		return c, fmt.Errorf("find position %d of set %q: %w", position, name, err)
	}
	return c, nil
}

// Seek returns the cursor behind which the entries with datetime >= micros begin.
func (l *Log) Seek(ctx context.Context, name string, micros int64) (changelog.Cursor, error) {
	c, err := l.look(ctx, name, func(v *view) (changelog.Cursor, error) {
		floor := v.state.Floor
		if micros < floor.Micros || micros == floor.Micros && floor.Position > 0 {
			return changelog.Cursor{}, changelog.ErrGone
		}
		return v.newest(micros - 1)
	})
	if err != nil {
		return c, fmt.Errorf("find datetime %d of set %q: %w", micros, name, err)
	}
	return c, nil
}

// look finds a cursor in a view of a set.
func (l *Log) look(ctx context.Context, name string, find func(*view) (changelog.Cursor, error)) (changelog.Cursor, error) {
	if err := ctx.Err(); err != nil {
		return changelog.Cursor{}, err
	}
	s := l.find(name)
	if s == nil {
		return changelog.Cursor{}, changelog.ErrNoSet
	}
	v, err := l.view(s)
	if err != nil {
		return changelog.Cursor{}, err
	}
	c, err := find(v)
	if err := errors.Join(err, v.close()); err != nil {
		return changelog.Cursor{}, err
	}
	return c, nil
}
