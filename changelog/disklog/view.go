package disklog

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/changelog"
)

// A view is a set's log at one moment: its state, and an iterator over exactly
// the blocks between its floor and its head.
type view struct {
	state changelog.State
	it    *pebble.Iterator

	// The block that was decoded last; a cursor in its middle is verified in it
	// and then read from it.
	last    changelog.Cursor
	entries []changelog.Entry
}

// view makes the two of one moment. The iterator was made after the state was
// read, so it has every entry up to the head. It misses entries behind the
// floor only if they were removed before it was made, and then the floor was
// raised, or the set was deleted, even before: the second look shows it.
func (l *Log) view(s *set) (*view, error) {
	for {
		state := s.state.Load()
		if state == nil {
			return nil, changelog.ErrNoSet
		}
		it, err := l.db.NewIter(&pebble.IterOptions{
			LowerBound: logKey(s.name, state.Floor.Position+1),
			UpperBound: logKey(s.name, state.Head.Position+1),
		})
		if err != nil {
			return nil, damage(err)
		}
		if now := s.state.Load(); now != nil && now.Floor == state.Floor {
			return &view{state: *state, it: it}, nil
		}
		if err := it.Close(); err != nil {
			return nil, damage(err)
		}
	}
}

func (v *view) close() error { return damage(v.it.Close()) }

// since fills in the entries behind batch.After, which it verifies.
func (v *view) since(batch *changelog.Batch, limit int, skew int64) error {
	ok, err := v.knows(batch.After)
	if err != nil {
		return err
	}
	if !ok {
		asked := batch.After
		if asked.Micros < v.state.Floor.Micros {
			return changelog.ErrGone
		}
		batch.Diverged = true
		if batch.After, err = v.newest(asked.Micros - skew); err != nil {
			return err
		}
		if batch.After.Position >= asked.Position {
			if batch.After, err = v.at(max(asked.Position, v.state.Floor.Position+1) - 1); err != nil {
				return err
			}
		}
	}
	batch.Cursor = batch.After
	if batch.Entries, err = v.read(batch.After.Position, limit); err != nil {
		return err
	}
	if n := len(batch.Entries); n > 0 {
		batch.Cursor = batch.Entries[n-1].Cursor
	}
	return nil
}

// knows reports whether c is a cursor of this log.
func (v *view) knows(c changelog.Cursor) (bool, error) {
	floor := v.state.Floor
	switch {
	case c == floor, c.IsZero() && floor.Position == 0:
		return true, nil
	case c.Position <= floor.Position, c.Position > v.state.Head.Position:
		return false, nil
	}
	here, err := v.at(c.Position)
	return here == c, err
}

// read returns up to limit entries behind a position.
func (v *view) read(position uint64, limit int) ([]changelog.Entry, error) {
	head := v.state.Head.Position
	if position >= head {
		return nil, nil
	}
	entries := make([]changelog.Entry, 0, min(uint64(limit), head-position))
	read, size := 0, 0
	for v.seek(position + 1); ; v.it.Next() {
		last, err := v.here(position + 1)
		if err != nil {
			return nil, err
		}
		value := v.it.Value()
		read += len(value)
		size += changelog.Block(value[8:]).Size()
		n := int(last.Position - position)
		if len(entries) > 0 && (n > limit-len(entries) || read > maxRead || size > maxSize) {
			return entries, nil
		}
		block, err := v.block(last)
		if err != nil {
			return nil, err
		}
		if len(block) < n || len(block) > n && len(entries) > 0 {
			return nil, v.hole(position+1, last.Position)
		}
		block = block[len(block)-n:]
		if have := len(entries); have > 0 && block[0].Micros <= entries[have-1].Micros {
			return nil, fmt.Errorf("%w: datetimes of set %q go back at position %d", changelog.ErrCorrupt, v.state.Set, position+1)
		}
		entries = append(entries, block[:min(n, limit)]...)
		if position = last.Position; position == head || len(entries) >= limit {
			return entries, nil
		}
	}
}

// at returns the cursor of the entry at a position, or the floor's.
func (v *view) at(position uint64) (changelog.Cursor, error) {
	if position == v.state.Floor.Position {
		return v.state.Floor, nil
	}
	v.seek(position)
	last, err := v.here(position)
	if err != nil || last.Position == position {
		return last, err
	}
	block, err := v.block(last)
	if err != nil {
		return last, err
	}
	back := last.Position - position
	if back >= uint64(len(block)) {
		return last, v.hole(position, last.Position-uint64(len(block)))
	}
	return block[uint64(len(block))-1-back].Cursor, nil
}

// newest returns the cursor of the newest entry that is not later than micros,
// or the floor's. It halves the positions between the floor and the head.
func (v *view) newest(micros int64) (changelog.Cursor, error) {
	low, high := v.state.Floor, v.state.Head
	if high.Micros <= micros {
		return high, nil
	}
	for low.Micros <= micros { // and micros < high.Micros
		middle := high.Position - (high.Position-low.Position)/2
		v.seek(middle)
		last, err := v.here(middle)
		if err != nil {
			return last, err
		}
		if last.Micros <= micros {
			low = last
			continue
		}
		before := v.state.Floor
		if v.it.Prev() {
			if before, err = v.here(low.Position); err != nil {
				return before, err
			}
		}
		if before.Micros > micros {
			high = before
			continue
		}
		v.seek(middle)
		block, err := v.block(last)
		if err != nil {
			return last, err
		}
		n := sort.Search(len(block), func(i int) bool { return block[i].Micros > micros })
		if n == 0 {
			return before, nil
		}
		return block[n-1].Cursor, nil
	}
	return low, nil
}

// seek goes to the block that holds a position.
func (v *view) seek(position uint64) { v.it.SeekGE(logKey(v.state.Set, position)) }

// here returns the last cursor of the block that the iterator is at. There must
// be one, as position is in the log.
func (v *view) here(position uint64) (changelog.Cursor, error) {
	if !v.it.Valid() {
		if err := v.it.Error(); err != nil {
			return changelog.Cursor{}, fmt.Errorf("read the block of position %d: %w", position, damage(err))
		}
		return changelog.Cursor{}, v.hole(position, v.state.Head.Position)
	}
	value, err := v.it.ValueAndErr()
	if err != nil {
		return changelog.Cursor{}, fmt.Errorf("read the block of position %d: %w", position, damage(err))
	}
	last := changelog.Cursor{Position: number(v.it.Key())}
	if len(value) < 8 {
		return last, fmt.Errorf("%w: the block of set %q that ends at position %d", changelog.ErrCorrupt, v.state.Set, last.Position)
	}
	last.Micros = int64(binary.BigEndian.Uint64(value))
	return last, nil
}

// block decodes the block that the iterator is at.
func (v *view) block(last changelog.Cursor) ([]changelog.Entry, error) {
	if v.last == last && v.entries != nil {
		return v.entries, nil
	}
	entries, err := changelog.Block(v.it.Value()[8:]).Entries(last)
	if err != nil {
		return nil, fmt.Errorf("the block of set %q that ends at position %d: %w", v.state.Set, last.Position, err)
	}
	v.last, v.entries = last, entries
	return entries, nil
}

func (v *view) hole(from, to uint64) error {
	return fmt.Errorf("%w: set %q lacks the positions %d to %d", changelog.ErrCorrupt, v.state.Set, from, to)
}
