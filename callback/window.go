package callback

import (
	"sort"

	"github.com/rshub/rshub/feed"
)

// How much of a set with subscriptions is kept in memory.
const (
	windowSpans = 1024      // newest spans of one set
	windowBytes = 4 << 20   // bytes of one set
	allWindows  = 256 << 20 // bytes of all sets
)

// A window is the end of a set's log: spans of which each begins where the one before
// it ends. Engine.mu guards the window of a topic; the spans may be used without it.
//
// The hub has a window of the same batches, and the two share them in memory. But the
// hub's window knows only cursors between batches. Deliveries also begin within a batch,
// and share the text of single entries.
type window struct {
	spans []*span
	bytes int
}

// add adds what is new, and drops the oldest spans until windowSpans and most, in
// bytes, hold, or only the new span is left.
func (w *window) add(p *span, most int) {
	if n := len(w.spans); n > 0 && w.spans[n-1].batch.Cursor != p.batch.After {
		*w = window{}
	}
	w.spans, w.bytes = append(w.spans, p), w.bytes+p.size
	for len(w.spans) > 1 && (len(w.spans) > windowSpans || w.bytes > most) {
		w.bytes -= w.spans[0].size
		w.spans[0] = nil
		w.spans = w.spans[1:]
	}
}

// behind returns the spans that hold the n entries that follow a cursor, or fewer, and
// the index of the first of these entries in the first span. It returns no spans when
// the window does not know the cursor, or has nothing behind it.
func (w *window) behind(c feed.Cursor, n int) (spans []*span, first int) {
	// The last span that begins at the cursor or before it.
	i := sort.Search(len(w.spans), func(i int) bool { return w.spans[i].batch.After.Position > c.Position }) - 1
	if i < 0 {
		return nil, 0
	}
	first, ok := w.spans[i].behind(c)
	if !ok {
		return nil, 0
	}
	end := i
	for got := -first; end < len(w.spans) && got < n; end++ {
		got += len(w.spans[end].batch.Entries)
	}
	return append([]*span(nil), w.spans[i:end]...), first
}
