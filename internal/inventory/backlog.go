package inventory

import (
	"iter"

	"github.com/rshub/rshub/feed"
)

// A Backlog has changes that wait for a commit, the newest of each resource. It packs them into a third of the
// memory of entries, so that a commit can be large. It must not be used concurrently.
type Backlog struct {
	newest map[string]*change
	sorted []*change // the same, ascending by loc; nil after Add
	bytes  int
}

// Add adds the next entries of the log. It does not retain them.
func (b *Backlog) Add(entries []feed.Entry) {
	if b.newest == nil {
		b.newest = map[string]*change{}
	}
	b.sorted = nil
	for i := range entries {
		c := newChange(&entries[i])
		b.bytes += c.bytes()
		if old := b.newest[c.loc()]; old != nil {
			b.bytes -= old.bytes()
		}
		b.newest[c.loc()] = c
	}
}

// Len returns the number of changes.
func (b *Backlog) Len() int { return len(b.newest) }

// Bytes returns the approximate memory of the changes.
func (b *Backlog) Bytes() int { return b.bytes }

// order returns the changes, ascending by loc.
func (b *Backlog) order() []*change {
	if b.sorted == nil {
		b.sorted = byLoc(b.newest)
	}
	return b.sorted
}

// Entries yields the newest entry of each resource, ascending by loc, deletions too. An entry is valid only
// until the next one is yielded.
func (b *Backlog) Entries() iter.Seq[*feed.Entry] {
	return func(yield func(*feed.Entry) bool) {
		var e feed.Entry
		for _, c := range b.order() {
			if c.into(&e); !yield(&e) {
				return
			}
		}
	}
}
