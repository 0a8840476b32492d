package callback

import (
	"container/list"
	"sync"

	"github.com/rshub/rshub/feed"
)

// A span is a run of a set's entries that is kept in memory. Each of its entries is
// encoded once, for all subscriptions that it is delivered to, wherever their cuts
// begin.
type span struct {
	batch *feed.Batch   // never changed
	size  int           // bytes that the batch and its text take at most; never changed
	at    *list.Element // in spans.used, which guards it

	// Set under once, never changed after that.
	once sync.Once
	text []byte // the entries as XML
	ends []int  // where each entry ends in text
}

func newSpan(b *feed.Batch) *span { return &span{batch: b, size: 2 * b.Size()} }

// encoded returns the entries as XML, and where each ends.
func (s *span) encoded() (text []byte, ends []int) {
	s.once.Do(func() {
		w := feed.NewXMLWriter()
		s.text = make([]byte, 0, 400*len(s.batch.Entries))
		s.ends = make([]int, len(s.batch.Entries))
		for i := range s.batch.Entries {
			s.text = w.AppendEntry(s.text, &s.batch.Entries[i])
			s.ends[i] = len(s.text)
		}
	})
	return s.text, s.ends
}

// behind returns the index of the entry that follows a cursor. ok is false when
// the span does not know the cursor, or has nothing behind it.
func (s *span) behind(c feed.Cursor) (i int, ok bool) {
	entries := s.batch.Entries
	if s.batch.After == c {
		return 0, len(entries) > 0
	}
	if len(entries) == 0 || c.Position < entries[0].Position {
		return 0, false
	}
	n := c.Position - entries[0].Position
	if n >= uint64(len(entries))-1 || entries[n].Cursor != c {
		return 0, false
	}
	return int(n) + 1, true
}
