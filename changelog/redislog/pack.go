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
	packBlocks = 2_000   // how many live blocks one step reads at most
	packBytes  = 1 << 20 // how many bytes of live blocks one step reads at most; a full block is smaller
)

// Pack merges the oldest live blocks of a set into full blocks, and moves them to the
// packed blocks. It leaves out the newest live blocks, which do not fill a block yet.
// It returns how many entries it moved. While Pack works, every cursor still reads
// the same entries. Several hubs may pack a set at the same time: the second one
// finds the blocks moved and stops.
//
// Trim calls Pack. Changes that were published one at a time take a quarter of the
// memory afterwards.
func (l *Log) Pack(ctx context.Context, set string) (moved int, err error) {
	moved, err = l.pack(ctx, set)
	if err != nil {
		return moved, fmt.Errorf("pack set %q: %w", set, err)
	}
	return moved, nil
}

func (l *Log) pack(ctx context.Context, set string) (moved int, err error) {
	for {
		n, err := l.packSome(ctx, set)
		moved += n
		if err != nil || n == 0 {
			return moved, err
		}
		if err := l.sweep(ctx, set); err != nil {
			return moved, err
		}
	}
}

// sweep removes what earlier steps have left.
func (l *Log) sweep(ctx context.Context, set string) error {
	for more := true; more; {
		err := l.write(ctx, func(t *redisconn.Try) error {
			reply, err := l.ask(t, l.scripts.sweep, l.allKeys(set))
			more = reply.Number(1) == 1
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// packSome is one step of Pack.
func (l *Log) packSome(ctx context.Context, set string) (moved int, err error) {
	reply, err := l.oldest(ctx, set)
	if err != nil {
		return 0, err
	}
	return l.swap(ctx, set, reply)
}

// oldest reads the oldest live blocks of a set.
func (l *Log) oldest(ctx context.Context, set string) (reply redisconn.Answer, err error) {
	err = l.read(ctx, func(t *redisconn.Try) (err error) {
		reply, err = l.ask(t, l.scripts.oldest, l.keys(set), packBlocks, packBytes)
		return err
	})
	return reply, err
}

// swap replaces the live blocks in the answer of oldest.lua by packed ones, if they
// are still the oldest.
func (l *Log) swap(ctx context.Context, set string, reply redisconn.Answer) (moved int, err error) {
	blocks, err := liveBlocks(set, reply)
	if err != nil {
		return 0, err
	}
	groups := full(blocks, uint64(reply.Number(1)))
	if len(groups) == 0 {
		return 0, nil
	}
	var args []any
	taken := 0
	for _, g := range groups {
		merged, err := merge(set, g)
		if err != nil {
			return 0, err
		}
		args = append(args, len(g), []byte(merged))
		taken += len(g)
		for _, b := range g {
			moved += b.count
		}
	}
	args = append([]any{len(groups)}, args...)
	sources := []any{reply.Text(3), taken}
	for _, b := range blocks[:taken] {
		sources = append(sources, b.last.String(), []byte(b.bytes[len(b.bytes)-4:]))
	}
	c := l.conn.Writing()
	err = l.do(ctx, c, func(t *redisconn.Try) (err error) {
		reply, err = l.ask(t, l.scripts.pack, l.keys(set), append(sources, args...)...)
		return err
	})
	if errors.Is(err, errAnew) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if reply.Word() == "moved" && !c.Lost() { // if a try was lost, that try may have moved them
		return 0, nil
	}
	return moved, nil
}

// A live is a live block, as Pack reads it.
type live struct {
	last  feed.Cursor
	count int
	bytes changelog.Block
}

// liveBlocks reads the answer of oldest.lua.
func liveBlocks(set string, reply redisconn.Answer) ([]live, error) {
	if len(reply) < 4 || reply.Number(1) < 1 {
		return nil, fmt.Errorf("%w: the answer of a read", changelog.ErrCorrupt)
	}
	position := uint64(reply.Number(2))
	var blocks []live
	for i := 4; i < len(reply); i++ {
		last, bytes, err := block(reply.Text(i))
		if err != nil {
			return nil, corrupt(fmt.Sprintf("a block of set %q", set), err)
		}
		// A block that is moved unchanged would keep its wrong place.
		if last.Position <= position || last.Position-position != bytes.Count() || len(bytes) < 4 {
			return nil, fmt.Errorf("%w: the block of set %q that ends at position %d does not begin behind position %d", changelog.ErrCorrupt, set, last.Position, position)
		}
		blocks = append(blocks, live{last, int(last.Position - position), bytes})
		position = last.Position
	}
	return blocks, nil
}

// full groups the oldest blocks. Each group makes one block that has no room for a
// further one. full leaves out the newest blocks, which do not fill a block yet.
func full(blocks []live, listSize uint64) (groups [][]live) {
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

// merge makes one block of a group. It returns nil if the group has only one block.
func merge(set string, blocks []live) (changelog.Block, error) {
	if len(blocks) == 1 {
		return nil, nil
	}
	var entries []feed.Entry
	for _, b := range blocks {
		e, err := b.bytes.Entries(b.last)
		if err != nil {
			return nil, fmt.Errorf("the block of set %q that ends at position %d: %w", set, b.last.Position, err)
		}
		entries = append(entries, e...)
	}
	return changelog.MergeBlock(entries), nil
}
