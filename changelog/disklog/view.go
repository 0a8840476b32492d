package disklog

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// A view is a snapshot of a set's log: its state, and an iterator over exactly the blocks between
// its floor and its head. It is not safe for concurrent use.
type view struct {
	state feed.State
	it    *pebble.Iterator

	// Most recently decoded block. A cursor in the middle of a block needs that block twice: to
	// verify the cursor, and to read the entries after it.
	last    feed.Cursor
	entries []feed.Entry
}

// view returns a consistent snapshot of a set. The caller must close it. The iterator is created
// after the state was read, so it has every entry up to the head. Entries after the floor can be
// missing only if they were removed before the iterator was created. Before entries are removed,
// the floor is raised or the set is deleted; so view reads the state again, and retries if the floor
// changed.
func (l *Log) view(s *set) (*view, error) {
	for {
		state := s.state.Load()
		if state == nil {
			return nil, feed.ErrNoSet
		}
		it, err := l.db.NewIter(&pebble.IterOptions{
			LowerBound: logKey(s.name, state.Floor.Position+1),
			UpperBound: logKey(s.name, state.Head.Position+1),
		})
		if err != nil {
			return nil, wrapCorrupt(err)
		}
		if now := s.state.Load(); now != nil && now.Floor == state.Floor {
			return &view{state: *state, it: it}, nil
		}
		if err := it.Close(); err != nil {
			return nil, wrapCorrupt(err)
		}
	}
}

func (v *view) close() error { return wrapCorrupt(v.it.Close()) }

// since verifies the cursor batch.After, and fills in the rest of the batch as
// changelog.Log.Since promises. skew is the clock skew in microseconds.
func (v *view) since(batch *feed.Batch, limit int, skew int64) error {
	ok, err := v.contains(batch.After)
	if err != nil {
		return err
	}
	if !ok {
		// A cursor up to PriorMicros may come from a deleted set, whose entries are unknown.
		if batch.After.Micros < v.state.Floor.Micros || batch.After.Micros <= v.state.PriorMicros {
			return feed.ErrGone
		}
		batch.Diverged = true
		if batch.After, err = v.resumeBefore(batch.After, skew); err != nil {
			return err
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

// contains reports whether the log has the cursor c; see rule 1 of changelog.Log.Since.
func (v *view) contains(c feed.Cursor) (bool, error) {
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

// resumeBefore returns the cursor after which to continue if the log has lost the entry at the cursor
// lost; see rule 2 of changelog.Log.Since. skew is in microseconds.
func (v *view) resumeBefore(lost feed.Cursor, skew int64) (feed.Cursor, error) {
	c, err := v.newest(lost.Micros - skew)
	if err == nil && c.Position >= lost.Position {
		c, err = v.at(max(lost.Position, v.state.Floor.Position+1) - 1)
	}
	return c, err
}

// read returns at most limit entries that follow a position, and fewer if they are large; see
// maxRead and maxSize. It returns at least one if the log has one.
func (v *view) read(position uint64, limit int) ([]feed.Entry, error) {
	head := v.state.Head.Position
	if position >= head {
		return nil, nil
	}
	entries := make([]feed.Entry, 0, min(uint64(limit), head-position))
	read, size := 0, 0
	for v.seek(position + 1); ; v.it.Next() {
		last, err := v.blockEnd(position + 1)
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
		have := len(entries)
		if have == 0 {
			// The position may be in the middle of the first block.
			block, err := v.block(last)
			if err != nil {
				return nil, err
			}
			entries = append(entries, block[max(0, len(block)-n):]...)
		} else if entries, err = changelog.Block(value[8:]).AppendEntries(entries, last); err != nil {
			return nil, v.blockError(last, err)
		}
		if len(entries)-have != n {
			return nil, v.missingError(position+1, last.Position)
		}
		if have > 0 && entries[have].Micros <= entries[have-1].Micros {
			return nil, fmt.Errorf("%w: datetime of set %q does not increase at position %d", changelog.ErrCorrupt, v.state.Set, position+1)
		}
		entries = entries[:min(len(entries), limit)]
		if position = last.Position; position == head || len(entries) >= limit {
			return entries, nil
		}
	}
}

// at returns the cursor of the entry at a position, or the floor at the floor's position.
func (v *view) at(position uint64) (feed.Cursor, error) {
	if position == v.state.Floor.Position {
		return v.state.Floor, nil
	}
	v.seek(position)
	last, err := v.blockEnd(position)
	if err != nil || last.Position == position {
		return last, err
	}
	block, err := v.block(last)
	if err != nil {
		return last, err
	}
	back := last.Position - position
	if back >= uint64(len(block)) {
		return last, v.missingError(position, last.Position-uint64(len(block)))
	}
	return block[uint64(len(block))-1-back].Cursor, nil
}

// newest returns the cursor of the newest entry that is not later than micros, or the floor if the
// log has no such entry. It uses binary search over the positions.
func (v *view) newest(micros int64) (feed.Cursor, error) {
	low, high := v.state.Floor, v.state.Head
	if high.Micros <= micros {
		return high, nil
	}
	for low.Micros <= micros { // and micros < high.Micros
		middle := high.Position - (high.Position-low.Position)/2
		v.seek(middle)
		last, err := v.blockEnd(middle)
		if err != nil {
			return last, err
		}
		if last.Micros <= micros {
			low = last
			continue
		}
		before := v.state.Floor
		if v.it.Prev() {
			if before, err = v.blockEnd(low.Position); err != nil {
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

// seek moves the iterator to the block that contains a position.
func (v *view) seek(position uint64) { v.it.SeekGE(logKey(v.state.Set, position)) }

// blockEnd returns the cursor of the last entry of the iterator's present block. The caller has
// called seek or advanced the iterator to find position, which is in the log; so if there is no
// block, the log is damaged, and the error names position.
func (v *view) blockEnd(position uint64) (feed.Cursor, error) {
	if !v.it.Valid() {
		if err := v.it.Error(); err != nil {
			return feed.Cursor{}, fmt.Errorf("read the block of position %d: %w", position, wrapCorrupt(err))
		}
		return feed.Cursor{}, v.missingError(position, v.state.Head.Position)
	}
	value, err := v.it.ValueAndErr()
	if err != nil {
		return feed.Cursor{}, fmt.Errorf("read the block of position %d: %w", position, wrapCorrupt(err))
	}
	last := feed.Cursor{Position: number(v.it.Key())}
	if len(value) < 8 {
		return last, fmt.Errorf("%w: block of set %q that ends at position %d", changelog.ErrCorrupt, v.state.Set, last.Position)
	}
	last.Micros = int64(binary.BigEndian.Uint64(value))
	return last, nil
}

// block decodes the iterator's present block. last is the cursor of its last entry.
func (v *view) block(last feed.Cursor) ([]feed.Entry, error) {
	if v.last == last && v.entries != nil {
		return v.entries, nil
	}
	entries, err := changelog.Block(v.it.Value()[8:]).Entries(last)
	if err != nil {
		return nil, v.blockError(last, err)
	}
	v.last, v.entries = last, entries
	return entries, nil
}

func (v *view) blockError(last feed.Cursor, err error) error {
	return fmt.Errorf("block of set %q that ends at position %d: %w", v.state.Set, last.Position, err)
}

func (v *view) missingError(from, to uint64) error {
	return fmt.Errorf("%w: set %q: positions %d to %d are missing", changelog.ErrCorrupt, v.state.Set, from, to)
}
