package redislog

import (
	"context"
	"errors"
	"fmt"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
)

const (
	packBlocks = 2_000   // maximum number of live blocks that one step reads
	packBytes  = 1 << 20 // maximum bytes of live blocks that one step reads; a full block is smaller
)

// Pack merges the oldest live blocks of a set into full blocks, and moves them to the packed
// blocks. It leaves out the newest live blocks, which do not fill a block yet. It returns the
// number of moved entries. During a Pack, every cursor reads the same entries as before. Several
// hubs may pack a set at the same time: the second one finds the blocks moved and stops.
//
// Trim calls Pack. It reduces the memory for changes that were published one at a time to a
// quarter.
func (l *Log) Pack(ctx context.Context, set string) (moved int, err error) {
	moved, err = l.pack(ctx, set)
	if err != nil {
		return moved, fmt.Errorf("pack set %q: %w", set, err)
	}
	return moved, nil
}

func (l *Log) pack(ctx context.Context, set string) (moved int, err error) {
	for {
		n, err := l.packStep(ctx, set)
		moved += n
		if err != nil || n == 0 {
			return moved, err
		}
		if err := l.sweep(ctx, set); err != nil {
			return moved, err
		}
	}
}

// sweep removes data left over by earlier steps.
func (l *Log) sweep(ctx context.Context, set string) error {
	for more := true; more; {
		err := l.write(ctx, func(t *redisconn.Try) error {
			reply, err := l.run(t, l.scripts.sweep, l.allKeys(set))
			more = reply.Number(1) == 1
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// packStep executes one step of Pack. It returns 0 if there is nothing to move.
func (l *Log) packStep(ctx context.Context, set string) (moved int, err error) {
	reply, err := l.readOldest(ctx, set)
	if err != nil {
		return 0, err
	}
	return l.swapBlocks(ctx, set, reply)
}

// readOldest reads the oldest live blocks of a set.
func (l *Log) readOldest(ctx context.Context, set string) (reply redisconn.Answer, err error) {
	err = l.read(ctx, func(t *redisconn.Try) (err error) {
		reply, err = l.run(t, l.scripts.oldest, l.keys(set), packBlocks, packBytes)
		return err
	})
	return reply, err
}

// swapBlocks replaces the live blocks in the answer of oldest.lua by packed blocks, if they are
// still the oldest.
func (l *Log) swapBlocks(ctx context.Context, set string, reply redisconn.Answer) (moved int, err error) {
	blocks, err := decodeLiveBlocks(set, reply)
	if err != nil {
		return 0, err
	}
	groups := groupFull(blocks, uint64(reply.Number(1)))
	if len(groups) == 0 {
		return 0, nil
	}
	var args []any
	used := 0
	for _, g := range groups {
		merged, err := mergeGroup(set, g)
		if err != nil {
			return 0, err
		}
		args = append(args, len(g), []byte(merged))
		used += len(g)
		for _, b := range g {
			moved += b.count
		}
	}
	args = append([]any{len(groups)}, args...)
	sources := []any{reply.Text(3), used}
	for _, b := range blocks[:used] {
		sources = append(sources, b.last.String(), []byte(b.bytes[len(b.bytes)-4:]))
	}
	c := l.conn.WriteCall()
	err = l.do(ctx, c, func(t *redisconn.Try) (err error) {
		reply, err = l.run(t, l.scripts.pack, l.keys(set), append(sources, args...)...)
		return err
	})
	if errors.Is(err, errSetChanged) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if reply.Word() == "moved" && !c.Lost() { // if the answer to an attempt was lost, that attempt may have moved them
		return 0, nil
	}
	return moved, nil
}

// A liveBlock is a live block as read by Pack.
type liveBlock struct {
	last  feed.Cursor
	count int
	bytes changelog.Block
}

// decodeLiveBlocks decodes the answer of oldest.lua.
func decodeLiveBlocks(set string, reply redisconn.Answer) ([]liveBlock, error) {
	if len(reply) < 4 || reply.Number(1) < 1 {
		return nil, fmt.Errorf("%w: answer to a read", changelog.ErrCorrupt)
	}
	position := uint64(reply.Number(2))
	var blocks []liveBlock
	for i := 4; i < len(reply); i++ {
		last, bytes, err := parseBlock(reply.Text(i))
		if err != nil {
			return nil, corruptError(fmt.Sprintf("block of set %q", set), err)
		}
		// Moving such a block unchanged would preserve its wrong position.
		if last.Position <= position || last.Position-position != bytes.Count() || len(bytes) < 4 {
			return nil, fmt.Errorf("%w: block of set %q that ends at position %d does not start after position %d", changelog.ErrCorrupt, set, last.Position, position)
		}
		blocks = append(blocks, liveBlock{last, int(last.Position - position), bytes})
		position = last.Position
	}
	return blocks, nil
}

// groupFull groups the oldest blocks. Each group becomes one block, to which no further block can
// be added. The newest blocks, which do not fill a block yet, are in no group.
func groupFull(blocks []liveBlock, listSize uint64) (groups [][]liveBlock) {
	begin, count, size := 0, 0, 0
	for i, b := range blocks {
		n := b.bytes.Size()
		if i > begin && (count+b.count > changelog.MaxBlockEntries || size+n > changelog.MaxBlockBytes) {
			groups = append(groups, blocks[begin:i])
			begin, count, size = i, 0, 0
		}
		count, size = count+b.count, size+n
		if b.last.Position%listSize == 0 || count == changelog.MaxBlockEntries {
			groups = append(groups, blocks[begin:i+1])
			begin, count, size = i+1, 0, 0
		}
	}
	return groups
}

// mergeGroup merges a group into one block. It returns nil if the group has only one block.
func mergeGroup(set string, blocks []liveBlock) (changelog.Block, error) {
	if len(blocks) == 1 {
		return nil, nil
	}
	var entries []feed.Entry
	for _, b := range blocks {
		e, err := b.bytes.Entries(b.last)
		if err != nil {
			return nil, fmt.Errorf("block of set %q that ends at position %d: %w", set, b.last.Position, err)
		}
		entries = append(entries, e...)
	}
	return changelog.MergeBlock(entries), nil
}
