package callback

import (
	"container/list"
	"sync"

	"github.com/rshub/rshub/feed"
)

// readBytes bounds the readings of all sets, in bytes.
const readBytes = 32 << 20

// readings are the spans that were read from the log, of all sets, up to readBytes;
// the longest unused go first. Subscriptions that are behind by about as much use the
// same span, or the rest of it, and so go on together.
type readings struct {
	mu sync.Mutex

	// Guarded by mu.
	bytes int
	used  list.List                  // of *reading, the last used first
	sets  map[string][]*list.Element // the same elements, by set
}

// A reading is a span that was read from a set's log.
type reading struct {
	set  string
	span *span
}

// behind returns a span of a set that has entries behind a cursor, and the index of
// the first of them. It returns nil when there is none.
func (r *readings) behind(set string, c feed.Cursor) (p *span, first int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.sets[set] {
		p := e.Value.(*reading).span
		if first, ok := p.behind(c); ok {
			r.used.MoveToFront(e)
			return p, first
		}
	}
	return nil, 0
}

// add adds a span, and drops what is too much.
func (r *readings) add(set string, p *span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sets == nil {
		r.sets = map[string][]*list.Element{}
	}
	r.sets[set] = append(r.sets[set], r.used.PushFront(&reading{set, p}))
	r.bytes += p.size
	for r.bytes > readBytes && r.used.Len() > 1 {
		r.dropLocked(r.used.Back())
	}
}

// forget drops the spans of a set.
func (r *readings) forget(set string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range append([]*list.Element(nil), r.sets[set]...) {
		r.dropLocked(e)
	}
}

// dropLocked drops one reading. It needs r.mu held.
func (r *readings) dropLocked(e *list.Element) {
	old := r.used.Remove(e).(*reading)
	r.bytes -= old.span.size
	of := r.sets[old.set]
	for i := range of {
		if of[i] == e {
			of[i] = of[len(of)-1]
			of = of[:len(of)-1]
			break
		}
	}
	if len(of) == 0 {
		delete(r.sets, old.set)
	} else {
		r.sets[old.set] = of
	}
}
