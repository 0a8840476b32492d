package callback

import (
	"cmp"
	"container/list"
	"slices"
	"sync"

	"github.com/rshub/rshub/feed"
)

// How much of all sets is kept in memory.
const (
	mostSpans  = 16 << 10
	spansBytes = 128 << 20
)

// spans are runs of the logs of sets that are kept for subs which are behind: what was
// published, and what was read from the log. The longest unused go first. Subs that are
// behind by about as much use the same span, or the rest of it, and so go on together.
//
// The hub has a window of what was published, too, and the two share it in memory. But the
// hub's window knows only cursors between batches. Deliveries also begin within a batch, and
// share the text of single entries.
type spans struct {
	mu sync.Mutex

	// Guarded by mu.
	bytes int
	used  list.List          // of *span, the last used first
	sets  map[string][]*span // the same, by set, ascending by where they begin
}

// A part is a span from one of its entries on.
type part struct {
	*span
	first int // index of the entry
}

// behind returns parts that hold the n entries that follow a cursor of a set, or fewer:
// none, when nothing that is kept follows the cursor.
func (all *spans) behind(set string, c feed.Cursor, n int) (parts []part) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for n > 0 {
		of := all.sets[set]
		i, ok := slices.BinarySearchFunc(of, c, startsAt)
		if !ok {
			i-- // the last that begins before the cursor
		}
		if i < 0 {
			break
		}
		first, ok := of[i].behind(c)
		if !ok {
			break
		}
		all.used.MoveToFront(of[i].at)
		parts = append(parts, part{of[i], first})
		n -= len(of[i].batch.Entries) - first
		c = of[i].batch.Cursor
	}
	return parts
}

func startsAt(p *span, c feed.Cursor) int { return cmp.Compare(p.batch.After.Position, c.Position) }

// add keeps a batch, in place of what begins where it does, and drops what is too much.
func (all *spans) add(b *feed.Batch) *span {
	p := newSpan(b)
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.sets == nil {
		all.sets = map[string][]*span{}
	}
	i, ok := slices.BinarySearchFunc(all.sets[b.Set], b.After, startsAt)
	if ok {
		all.dropLocked(all.sets[b.Set][i])
	}
	all.sets[b.Set] = slices.Insert(all.sets[b.Set], i, p)
	p.at = all.used.PushFront(p)
	all.bytes += p.size
	for all.used.Len() > 1 && (all.used.Len() > mostSpans || all.bytes > spansBytes) {
		all.dropLocked(all.used.Back().Value.(*span))
	}
	return p
}

// forget drops what is kept of a set.
func (all *spans) forget(set string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, p := range all.sets[set] {
		all.used.Remove(p.at)
		all.bytes -= p.size
	}
	delete(all.sets, set)
}

// dropLocked drops a span. It needs all.mu held.
func (all *spans) dropLocked(p *span) {
	set := p.batch.Set
	all.used.Remove(p.at)
	all.bytes -= p.size
	i, _ := slices.BinarySearchFunc(all.sets[set], p.batch.After, startsAt) // no two begin at one position
	if all.sets[set] = slices.Delete(all.sets[set], i, i+1); len(all.sets[set]) == 0 {
		delete(all.sets, set)
	}
}
