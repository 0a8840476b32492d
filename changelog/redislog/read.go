package redislog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

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
func (l *Log) Since(ctx context.Context, set string, after changelog.Cursor, limit int) (*changelog.Batch, error) {
	b, err := l.since(ctx, set, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read set %q after %v: %w", set, after, err)
	}
	return b, nil
}

func (l *Log) since(ctx context.Context, set string, after changelog.Cursor, limit int) (*changelog.Batch, error) {
	if limit <= 0 {
		limit = defaultLimit
	}
	var reply answer
	err := l.read(ctx, func(ctx context.Context) (err error) {
		reply, err = l.ask(ctx, l.scripts.since, l.keys(set), after.Position, after.Micros, limit, maxRead)
		if err == nil && reply.word() == "gone" {
			err = refusal{changelog.ErrGone}
		}
		return err
	})
	batch := &changelog.Batch{Set: set, After: after, Cursor: after}
	if errors.Is(err, changelog.ErrNoSet) {
		if after.IsZero() {
			return batch, nil
		}
		return nil, changelog.ErrGone
	}
	if err != nil {
		return nil, err
	}
	if batch.After, err = changelog.ParseCursor(reply.text(1)); err != nil {
		return nil, corrupt("the answer to a read", err)
	}
	head, err := changelog.ParseCursor(reply.text(3))
	if err != nil {
		return nil, corrupt("the answer to a read", err)
	}
	l.saw(head)
	batch.Diverged, batch.Cursor = reply.number(2) == 1, batch.After
	if batch.Entries, err = entries(set, reply[4:], batch.After, head.Position, limit); err != nil {
		return nil, err
	}
	if n := len(batch.Entries); n > 0 {
		batch.Cursor = batch.Entries[n-1].Cursor
	}
	return batch, nil
}

// entries decodes the blocks of an answer, from the entry behind a cursor on, to
// at most limit entries. The first block may hold the cursor.
func entries(set string, blocks answer, after changelog.Cursor, head uint64, limit int) ([]changelog.Entry, error) {
	if after.Position == head {
		return nil, nil
	}
	entries := make([]changelog.Entry, 0, min(uint64(limit), head-after.Position))
	size := 0
	for i := range blocks {
		last, bytes, err := block(blocks.text(i))
		if err != nil {
			return nil, corrupt("a block of set "+strconv.Quote(set), err)
		}
		n := int(last.Position - after.Position)
		size += bytes.Size()
		if len(entries) > 0 && (n > limit-len(entries) || size > maxSize) {
			return entries, nil
		}
		decoded, err := bytes.Entries(last)
		if err != nil {
			return nil, fmt.Errorf("the block of set %q that ends at position %d: %w", set, last.Position, err)
		}
		if len(decoded) < n || len(decoded) > n && len(entries) > 0 {
			return nil, hole(set, after.Position+1, last.Position)
		}
		decoded = decoded[len(decoded)-n:]
		if decoded[0].Micros <= after.Micros {
			return nil, fmt.Errorf("%w: datetimes of set %q go back at position %d", changelog.ErrCorrupt, set, after.Position+1)
		}
		entries = append(entries, decoded[:min(n, limit)]...)
		if n >= limit {
			return entries, nil
		}
		after = last
	}
	if len(entries) == 0 {
		return nil, hole(set, after.Position+1, head)
	}
	return entries, nil
}

// block reads a block as lib.lua has it.
func block(text string) (last changelog.Cursor, bytes changelog.Block, err error) {
	cursor, rest, _ := strings.Cut(text, " ")
	last, err = changelog.ParseCursor(cursor)
	return last, changelog.Block(rest), err
}

func hole(set string, from, to uint64) error {
	return fmt.Errorf("%w: set %q lacks the positions %d to %d", changelog.ErrCorrupt, set, from, to)
}

func corrupt(what string, err error) error {
	return fmt.Errorf("%w: %s: %v", changelog.ErrCorrupt, what, err)
}

// At returns the cursor of the entry at a position, or the floor's.
func (l *Log) At(ctx context.Context, set string, position uint64) (changelog.Cursor, error) {
	c, err := l.find(ctx, set, "at", position)
	if err != nil {
		return c, fmt.Errorf("find position %d of set %q: %w", position, set, err)
	}
	return c, nil
}

// Seek returns the cursor behind which the entries with datetime >= micros begin.
func (l *Log) Seek(ctx context.Context, set string, micros int64) (changelog.Cursor, error) {
	c, err := l.find(ctx, set, "seek", micros)
	if err != nil {
		return c, fmt.Errorf("find datetime %d of set %q: %w", micros, set, err)
	}
	return c, nil
}

func (l *Log) find(ctx context.Context, set, by string, number any) (c changelog.Cursor, err error) {
	err = l.read(ctx, func(ctx context.Context) error {
		reply, err := l.ask(ctx, l.scripts.find, l.keys(set), by, number)
		if err != nil {
			return err
		}
		switch reply.word() {
		case "gone":
			return refusal{changelog.ErrGone}
		case "behind":
			return refusal{changelog.Invalid("position %d lies behind the newest entry, %s", number, reply.text(1))}
		}
		if c, err = changelog.ParseCursor(reply.text(1)); err != nil {
			return refusal{corrupt("the answer to a search", err)}
		}
		return nil
	})
	return c, err
}
