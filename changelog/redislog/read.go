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
	// Maximum sizes in bytes of the blocks of one read, which bound its memory and its time. A read
	// stops before the block that exceeds one of them, but returns at least one entry.
	maxRead = 1 << 20 // as stored
	maxSize = 1 << 20 // before compression
)

// Since returns the entries that directly follow a cursor; see changelog.Log.
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
		return nil, corruptError("answer to a read", err)
	}
	head, err := feed.ParseCursor(reply.Text(3))
	if err != nil {
		return nil, corruptError("answer to a read", err)
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

// decodeBlocks decodes the blocks in an answer of since.lua. It returns at most limit entries,
// starting with the one that follows the cursor after, which may be in the middle of the first
// block. head is the position of the log's head.
func decodeBlocks(set string, blocks redisconn.Answer, after feed.Cursor, head uint64, limit int) ([]feed.Entry, error) {
	if after.Position == head {
		return nil, nil
	}
	entries := make([]feed.Entry, 0, min(uint64(limit), head-after.Position))
	size := 0
	for i := range blocks {
		last, bytes, err := parseBlock(blocks.Text(i))
		if err != nil {
			return nil, corruptError("block of set "+strconv.Quote(set), err)
		}
		if last.Position <= after.Position {
			return nil, fmt.Errorf("%w: position of set %q does not increase after position %d", changelog.ErrCorrupt, set, after.Position)
		}
		n := int(last.Position - after.Position)
		size += bytes.Size()
		if len(entries) > 0 && (n > limit-len(entries) || size > maxSize) {
			return entries, nil
		}
		have := len(entries)
		if entries, err = bytes.AppendEntries(entries, last); err != nil {
			return nil, fmt.Errorf("block of set %q that ends at position %d: %w", set, last.Position, err)
		}
		if have == 0 { // the cursor may be in the middle of the first block
			entries = entries[max(0, len(entries)-n):]
		}
		if len(entries)-have != n {
			return nil, missingError(set, after.Position+1, last.Position)
		}
		if entries[have].Micros <= after.Micros {
			return nil, fmt.Errorf("%w: datetime of set %q does not increase at position %d", changelog.ErrCorrupt, set, after.Position+1)
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

// parseBlock splits a block as stored by lib.lua: the cursor of its last entry, a space, and the
// bytes.
func parseBlock(text string) (last feed.Cursor, bytes changelog.Block, err error) {
	cursor, rest, _ := strings.Cut(text, " ")
	last, err = feed.ParseCursor(cursor)
	return last, changelog.Block(rest), err
}

func missingError(set string, from, to uint64) error {
	return fmt.Errorf("%w: set %q: positions %d to %d are missing", changelog.ErrCorrupt, set, from, to)
}

func corruptError(what string, err error) error {
	return fmt.Errorf("%w: %s: %v", changelog.ErrCorrupt, what, err)
}

// At returns the cursor of the entry at a position, or the floor at the floor's position.
func (l *Log) At(ctx context.Context, set string, position uint64) (feed.Cursor, error) {
	c, err := l.findCursor(ctx, set, "at", position)
	if err != nil {
		return c, fmt.Errorf("find position %d of set %q: %w", position, set, err)
	}
	return c, nil
}

// Seek returns the cursor after which the entries with datetime >= micros start; see changelog.Log.
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
			return redisconn.Refuse(resourcesync.Invalidf("position %d is after the newest entry, %s", number, reply.Text(1)))
		}
		if c, err = feed.ParseCursor(reply.Text(1)); err != nil {
			return redisconn.Refuse(corruptError("answer to a search", err))
		}
		return nil
	})
	return c, err
}
