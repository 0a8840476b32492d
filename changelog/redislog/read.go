package redislog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/resourcesync"
)

const (
	defaultLimit = 1_000
	// A read ends when its blocks have more bytes than one of these. So the memory
	// and the time that one batch takes are bounded.
	maxRead = 1 << 20 // of blocks as they are stored
	maxSize = 1 << 20 // of blocks before compression
)

// Since returns the entries that directly follow a cursor.
func (l *Log) Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	b, err := l.since(ctx, set, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read set %q after %v: %w", set, after, err)
	}
	return b, nil
}

func (l *Log) since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error) {
	if limit <= 0 {
		limit = defaultLimit
	}
	var reply redisconn.Answer
	err := l.read(ctx, func(t *redisconn.Try) (err error) {
		reply, err = l.run(t, l.scripts.since, l.keys(set), after.Position, after.Micros, limit, maxRead)
		if err == nil && reply.Word() == "gone" {
			err = redisconn.Refuse(feed.ErrGone)
		}
		return err
	})
	batch := &feed.Batch{Set: set, After: after, Cursor: after}
	if errors.Is(err, feed.ErrNoSet) {
		if after.IsZero() {
			return batch, nil
		}
		return nil, feed.ErrGone
	}
	if err != nil {
		return nil, err
	}
	if batch.After, err = feed.ParseCursor(reply.Text(1)); err != nil {
		return nil, corruptError("the answer to a read", err)
	}
	head, err := feed.ParseCursor(reply.Text(3))
	if err != nil {
		return nil, corruptError("the answer to a read", err)
	}
	batch.Diverged, batch.Cursor = reply.Number(2) == 1, batch.After
	if batch.Entries, err = decodeBlocks(set, reply[4:], batch.After, head.Position, limit); err != nil {
		return nil, err
	}
	if n := len(batch.Entries); n > 0 {
		batch.Cursor = batch.Entries[n-1].Cursor
	}
	return batch, nil
}

// decodeBlocks decodes the blocks of an answer of since.lua. It returns at most limit
// decodeBlocks, beginning with the one after the cursor after, which may lie in the middle
// of the first block.
func decodeBlocks(set string, blocks redisconn.Answer, after feed.Cursor, head uint64, limit int) ([]feed.Entry, error) {
	if after.Position == head {
		return nil, nil
	}
	entries := make([]feed.Entry, 0, min(uint64(limit), head-after.Position))
	size := 0
	for i := range blocks {
		last, bytes, err := parseBlock(blocks.Text(i))
		if err != nil {
			return nil, corruptError("a block of set "+strconv.Quote(set), err)
		}
		if last.Position <= after.Position {
			return nil, fmt.Errorf("%w: positions of set %q go back behind position %d", changelog.ErrCorrupt, set, after.Position)
		}
		n := int(last.Position - after.Position)
		size += bytes.Size()
		if len(entries) > 0 && (n > limit-len(entries) || size > maxSize) {
			return entries, nil
		}
		have := len(entries)
		if entries, err = bytes.AppendEntries(entries, last); err != nil {
			return nil, fmt.Errorf("the block of set %q that ends at position %d: %w", set, last.Position, err)
		}
		if have == 0 { // the cursor may be in the middle of the first block
			entries = entries[max(0, len(entries)-n):]
		}
		if len(entries)-have != n {
			return nil, missingError(set, after.Position+1, last.Position)
		}
		if entries[have].Micros <= after.Micros {
			return nil, fmt.Errorf("%w: datetimes of set %q go back at position %d", changelog.ErrCorrupt, set, after.Position+1)
		}
		if len(entries) >= limit {
			return entries[:limit], nil
		}
		after = last
	}
	if len(entries) == 0 {
		return nil, missingError(set, after.Position+1, head)
	}
	return entries, nil
}

// parseBlock reads a parseBlock in the form of lib.lua: the cursor of its last entry, a space,
// and the bytes.
func parseBlock(text string) (last feed.Cursor, bytes changelog.Block, err error) {
	cursor, rest, _ := strings.Cut(text, " ")
	last, err = feed.ParseCursor(cursor)
	return last, changelog.Block(rest), err
}

func missingError(set string, from, to uint64) error {
	return fmt.Errorf("%w: set %q lacks the positions %d to %d", changelog.ErrCorrupt, set, from, to)
}

func corruptError(what string, err error) error {
	return fmt.Errorf("%w: %s: %v", changelog.ErrCorrupt, what, err)
}

// At returns the cursor of the entry at a position; at the floor's position, the
// floor.
func (l *Log) At(ctx context.Context, set string, position uint64) (feed.Cursor, error) {
	c, err := l.findCursor(ctx, set, "at", position)
	if err != nil {
		return c, fmt.Errorf("find position %d of set %q: %w", position, set, err)
	}
	return c, nil
}

// Seek returns the cursor behind which the entries with datetime >= micros begin.
func (l *Log) Seek(ctx context.Context, set string, micros int64) (feed.Cursor, error) {
	c, err := l.findCursor(ctx, set, "seek", micros)
	if err != nil {
		return c, fmt.Errorf("find datetime %d of set %q: %w", micros, set, err)
	}
	return c, nil
}

func (l *Log) findCursor(ctx context.Context, set, by string, number any) (c feed.Cursor, err error) {
	err = l.read(ctx, func(t *redisconn.Try) error {
		reply, err := l.run(t, l.scripts.find, l.keys(set), by, number)
		if err != nil {
			return err
		}
		switch reply.Word() {
		case "gone":
			return redisconn.Refuse(feed.ErrGone)
		case "behind":
			return redisconn.Refuse(resourcesync.Invalidf("position %d lies behind the newest entry, %s", number, reply.Text(1)))
		}
		if c, err = feed.ParseCursor(reply.Text(1)); err != nil {
			return redisconn.Refuse(corruptError("the answer to a search", err))
		}
		return nil
	})
	return c, err
}
