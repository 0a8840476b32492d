package hubmirror

import "github.com/rshub/rshub/feed"

// diverged returns a batch that ends like b, and continues no mirror.
func diverged(b *feed.Batch) *feed.Batch {
	return &feed.Batch{Set: b.Set, After: b.Cursor, Cursor: b.Cursor, Diverged: true}
}

// merge returns a batch with the changes of a, which may be nil, and then b. If b does not continue
// a, no mirror continues with the batch. merge may modify a.
func merge(a, b *feed.Batch) *feed.Batch {
	switch {
	case a == nil && !b.Diverged:
		return b
	case a == nil, a.Diverged, b.Diverged, a.Cursor != b.After:
		return diverged(b)
	}
	a.Entries, a.Cursor = append(a.Entries, b.Entries...), b.Cursor
	return a
}

// rest returns a batch with the changes of b after the cursor that a mirror has reached, or nil if the
// mirror has them all.
func rest(b *feed.Batch, at feed.Cursor) *feed.Batch {
	switch {
	case b == nil, b.Diverged, b.After == at:
		return b
	case b.Cursor.Position <= at.Position && b.Cursor.Micros <= at.Micros:
		return nil
	}
	for i := range b.Entries {
		if b.Entries[i].Cursor == at {
			return &feed.Batch{Set: b.Set, After: at, Cursor: b.Cursor, Entries: b.Entries[i+1:]}
		}
	}
	return diverged(b)
}

// onlyMoves reports whether a batch has no changes, and only continues another cursor.
func onlyMoves(b *feed.Batch) bool {
	return len(b.Entries) == 0 && !b.Diverged && b.After != b.Cursor
}
