package disklog

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// Append adds publishes to a set's log; see changelog.Log. Concurrent calls share an fsync.
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
		return nil, feed.ErrNoSet
	}
	a := appendOp{set: s, publishes: publishes, appended: make([]changelog.Appended, len(publishes)), refusal: l.checkSpace()}
	if state := s.state.Load(); state != nil && a.refusal == nil {
		a.cutBlocks(state)
	}
	if err := l.applyAppend(ctx, &a); err != nil {
		return nil, err
	}
	if a.batch == nil {
		return a.appended, nil
	}
	if err := l.waitDurable(a.batch); err != nil {
		return nil, err
	}
	// A later append may already have set its own, higher head. That is correct, because everything
	// that was applied before a durable batch is durable, too.
	s.updateState(func(state *feed.State) {
		if a.tip.Head.Position > state.Head.Position {
			state.Head, state.BeforeLatest = a.tip.Head, a.tip.Latest
		}
	})
	return a.appended, nil
}

// An appendOp is a call of Append in progress.
type appendOp struct {
	set       *set
	publishes []changelog.Publish
	blocks    [][]changelog.CutBlock // blocks of each publish, encoded for the positions that cutBlocks expected
	appended  []changelog.Appended
	refusal   error              // reason why nothing can be added, nil if appends are possible; publishes that the log has are answered anyway
	receipts  map[string]receipt // receipts of this call by key
	tip       tip                // tip of the set after this call
	doubtful  bool               // the clock is in doubt, so no key expires by age
	batch     *pebble.Batch      // applied batch to wait for; nil if nothing was written
}

// cutBlocks encodes the publishes before the set is locked, for the positions that they get unless
// another append comes first.
func (a *appendOp) cutBlocks(state *feed.State) {
	first := state.Head.Position + 1
	a.blocks = make([][]changelog.CutBlock, len(a.publishes))
	for i, p := range a.publishes {
		a.blocks[i] = changelog.CutBlocks(p.Changes, first, state.ListSize)
		first += uint64(len(p.Changes))
	}
}

// applyAppend assigns positions and datetimes to the publishes, and applies them in one batch. The
// caller waits until a.batch is durable.
func (l *Log) applyAppend(ctx context.Context, a *appendOp) error {
	s := a.set
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.write.Unlock()
	now := l.now()
	if a.refusal == nil && s.tip.Head.Micros > now+l.opts.ClockSkew.Microseconds() {
		a.refusal = feed.NewClockError(s.tip.Head, time.UnixMicro(now))
	}
	a.tip, a.doubtful = s.tip, l.clock.Load().Doubtful(now)
	b := l.db.NewBatch()
	for i := range a.publishes {
		p := &a.publishes[i]
		r, again, err := l.findReceipt(a, b, p, now)
		barred := false
		if err == nil && !again {
			barred, err = l.isBarred(a, p, now)
		}
		if err != nil {
			b.Close()
			return err
		}
		if barred {
			a.appended[i].Err = feed.ErrKeyReused
			continue
		}
		if !again && p.Refused != nil {
			a.appended[i].Err = p.Refused
			continue
		}
		if !again && a.refusal != nil {
			b.Close()
			return a.refusal
		}
		if !again {
			r = a.addLocked(b, i, now)
			a.addReceipt(b, p, r)
			a.appended[i] = r.appended()
			continue
		}
		if r.Hash != p.Hash {
			a.appended[i].Err = feed.ErrKeyReused
			continue
		}
		a.appended[i] = r.appended()
		a.appended[i].Replayed = true
		if r.Cursor.Position > s.state.Load().Head.Position && b.Empty() {
			_ = b.LogData(nil, nil) // the first publish is not durable yet; this makes the caller wait for it
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

// addLocked adds publish i after the tip to the batch, and advances the tip. The caller must hold
// a.set.write.
func (a *appendOp) addLocked(b *pebble.Batch, i int, now int64) receipt {
	p, head := &a.publishes[i], a.tip.Head
	r := receipt{Hash: p.Hash, After: head}
	blocks, size := a.blocks[i], a.set.record.ListSize
	if !changelog.Fit(blocks, head.Position, size) {
		blocks = changelog.CutBlocks(p.Changes, head.Position+1, size)
	}
	at := max(now, head.Micros+1) - 1 // one microsecond before the first entry
	for _, block := range blocks {
		head.Position += uint64(block.Count)
		at += int64(block.Count)
		value := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(block.Block)), uint64(at))
		put(b, logKey(a.set.name, head.Position), append(value, block.Block...))
	}
	head.Micros = at
	r.Cursor = head
	a.tip.Head, a.tip.Latest = head, r.After
	return r
}

// appended returns the Appended of a publish with the receipt.
func (r receipt) appended() changelog.Appended {
	return changelog.Appended{After: r.After, Cursor: r.Cursor, Count: int(r.Cursor.Position - r.After.Position)}
}
