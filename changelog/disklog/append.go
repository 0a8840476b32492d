package disklog

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/changelog"
)

// Append adds publishes to a set's log. Callers share the fsync.
func (l *Log) Append(ctx context.Context, name string, publishes ...changelog.Publish) ([]changelog.Appended, error) {
	appended, err := l.append(ctx, name, publishes)
	if err != nil {
		return nil, fmt.Errorf("append to set %q: %w", name, err)
	}
	return appended, nil
}

func (l *Log) append(ctx context.Context, name string, publishes []changelog.Publish) ([]changelog.Appended, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := changelog.CheckPublishes(publishes); err != nil {
		return nil, err
	}
	s := l.find(name)
	if s == nil {
		return nil, changelog.ErrNoSet
	}
	if err := l.room(); err != nil {
		return nil, err
	}
	a := appending{set: s, publishes: publishes, appended: make([]changelog.Appended, len(publishes))}
	if state := s.state.Load(); state != nil {
		a.cut(state)
	}
	if err := l.place(ctx, &a); err != nil {
		return nil, err
	}
	if a.batch == nil {
		return a.appended, nil
	}
	if err := l.wait(a.batch); err != nil {
		return nil, err
	}
	// Whoever waited for a later append shows more. What is before a durable
	// batch is durable too.
	s.show(func(state *changelog.State) {
		if a.tip.Head.Position > state.Head.Position {
			state.Head, state.Latest = a.tip.Head, a.tip.Latest
		}
	})
	return a.appended, nil
}

// An appending is one call of Append on its way.
type appending struct {
	set       *set
	publishes []changelog.Publish
	blocks    [][]changelog.CutBlock // of each publish, cut for where it was thought to go
	appended  []changelog.Appended
	seen      map[string]known // keys of this call
	tip       tip              // after it
	batch     *pebble.Batch    // applied and to be waited for; nil when there is none
}

// cut encodes the publishes before the set is locked, for the places that they
// get if nobody is faster.
func (a *appending) cut(state *changelog.State) {
	first := state.Head.Position + 1
	a.blocks = make([][]changelog.CutBlock, len(a.publishes))
	for i, p := range a.publishes {
		a.blocks[i] = changelog.CutBlocks(p.Changes, first, state.ListSize)
		first += uint64(len(p.Changes))
	}
}

// place gives the publishes their places, and applies them.
func (l *Log) place(ctx context.Context, a *appending) error {
	s := a.set
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.write.Unlock()
	now := l.now()
	if s.tip.Head.Micros > now+l.opts.ClockSkew.Microseconds() {
		return l.late(s.name, s.tip.Head)
	}
	a.tip = s.tip
	b := l.db.NewBatch()
	for i := range a.publishes {
		p := &a.publishes[i]
		k, again, err := l.recall(a, b, p, now)
		if err != nil {
			b.Close()
			return err
		}
		if !again {
			k = a.add(b, i, now)
			a.remember(b, p, k)
			a.appended[i] = k.appended()
			continue
		}
		if k.Hash != p.Hash {
			a.appended[i].Err = changelog.ErrKeyReused
			continue
		}
		a.appended[i] = k.appended()
		a.appended[i].Replayed = true
		if k.Cursor.Position > s.state.Load().Head.Position && b.Empty() {
			_ = b.LogData(nil, nil) // the first one is not durable yet: wait for it
		}
	}
	if b.Empty() {
		return b.Close()
	}
	if a.tip != s.tip {
		put(b, tipKey(s.name), a.tip.encode())
	}
	if err := l.apply(b); err != nil {
		return err
	}
	s.tip, a.batch = a.tip, b
	return nil
}

// add puts publish i behind the tip.
func (a *appending) add(b *pebble.Batch, i int, now int64) known {
	p, head := &a.publishes[i], a.tip.Head
	k := known{Hash: p.Hash, After: head}
	blocks, size := a.blocks[i], a.set.record.ListSize
	if !fit(blocks, head.Position, size) {
		blocks = changelog.CutBlocks(p.Changes, head.Position+1, size)
	}
	at := max(now, head.Micros+1) - 1 // of the entry before, had it come just now
	for _, block := range blocks {
		head.Position += uint64(block.Count)
		at += int64(block.Count)
		value := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(block.Block)), uint64(at))
		put(b, logKey(a.set.name, head.Position), append(value, block.Block...))
	}
	head.Micros = at
	k.Cursor = head
	a.tip.Head, a.tip.Latest = head, k.After
	return k
}

// fit reports whether blocks stay within lists when they follow a position.
func fit(blocks []changelog.CutBlock, position uint64, listSize int) bool {
	k := uint64(listSize)
	for _, b := range blocks {
		if position%k+uint64(b.Count) > k {
			return false
		}
		position += uint64(b.Count)
	}
	return true
}

func (k known) appended() changelog.Appended {
	return changelog.Appended{After: k.After, Cursor: k.Cursor, Count: int(k.Cursor.Position - k.After.Position)}
}
