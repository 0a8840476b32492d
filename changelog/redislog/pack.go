package redislog

import (
	"context"
	"fmt"

	"github.com/rshub/rshub/changelog"
)

const (
	packBlocks = 2_000   // live blocks looked at in one step
	packBytes  = 1 << 20 // of them, as they are stored; a full block is smaller
)

// Pack moves the oldest live blocks of a set to its packed ones, as far as they
// make full blocks together, and returns how many entries it moved. What is in
// the log stays the same at every moment, for every cursor. Several hubs may
// pack a set at once: who comes second leaves it.
//
// Trim calls it. Changes that were published one at a time take a fourth of the
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

// sweep removes what other steps have left.
func (l *Log) sweep(ctx context.Context, set string) error {
	for more := true; more; {
		err := l.do(ctx, new(call), func(ctx context.Context) error {
			reply, err := l.ask(ctx, l.scripts.sweep, l.keys(set))
			more = reply.number(1) == 1
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
	var reply answer
	err = l.read(ctx, func(ctx context.Context) (err error) {
		reply, err = l.ask(ctx, l.scripts.oldest, l.keys(set), packBlocks, packBytes)
		return err
	})
	if err != nil {
		return 0, err
	}
	return l.swap(ctx, set, reply)
}

// swap replaces the live blocks that were read by packed ones, if they are still
// the oldest.
func (l *Log) swap(ctx context.Context, set string, reply answer) (moved int, err error) {
	blocks, err := liveBlocks(set, reply)
	if err != nil {
		return 0, err
	}
	groups := full(blocks, uint64(reply.number(1)))
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
	sources := []any{taken}
	for _, b := range blocks[:taken] {
		sources = append(sources, b.last.String(), []byte(b.bytes[len(b.bytes)-4:]))
	}
	c := new(call)
	err = l.do(ctx, c, func(ctx context.Context) (err error) {
		reply, err = l.ask(ctx, l.scripts.pack, l.keys(set), append(sources, args...)...)
		return err
	})
	if err != nil {
		return 0, err
	}
	if reply.word() == "moved" && !c.lost.Load() { // else an earlier try did it
		return 0, nil
	}
	return moved, nil
}

// A live block as the packer sees it.
type live struct {
	last  changelog.Cursor
	count int
	bytes changelog.Block
}

// liveBlocks reads the answer of oldest.lua.
func liveBlocks(set string, reply answer) ([]live, error) {
	if len(reply) < 3 || reply.number(1) < 1 {
		return nil, fmt.Errorf("%w: the answer of a read", changelog.ErrCorrupt)
	}
	position := uint64(reply.number(2))
	var blocks []live
	for i := 3; i < len(reply); i++ {
		last, bytes, err := block(reply.text(i))
		if err != nil {
			return nil, corrupt(fmt.Sprintf("a block of set %q", set), err)
		}
		if last.Position <= position || len(bytes) < 4 {
			return nil, fmt.Errorf("%w: the block of set %q that ends at position %d", changelog.ErrCorrupt, set, last.Position)
		}
		blocks = append(blocks, live{last, int(last.Position - position), bytes})
		position = last.Position
	}
	return blocks, nil
}

// full groups the oldest blocks: each group makes one block that nothing more
// can be added to. The newest that do not fill one are left.
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

// merge makes one block of several, nil where it is one already.
func merge(set string, blocks []live) (changelog.Block, error) {
	if len(blocks) == 1 {
		return nil, nil
	}
	var entries []changelog.Entry
	for _, b := range blocks {
		e, err := b.bytes.Entries(b.last)
		if err == nil && len(e) != b.count {
			err = fmt.Errorf("%w: it has %d entries instead of %d", changelog.ErrCorrupt, len(e), b.count)
		}
		if err != nil {
			return nil, fmt.Errorf("the block of set %q that ends at position %d: %w", set, b.last.Position, err)
		}
		entries = append(entries, e...)
	}
	return changelog.MergeBlock(entries), nil
}
