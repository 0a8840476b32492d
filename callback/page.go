package callback

import (
	"container/list"
	"sort"
	"sync"

	"github.com/rshub/rshub/changelog"
)

// A page is a run of a set's entries of which each is encoded once, whoever it
// is delivered to and wherever his cut begins.
type page struct {
	batch *changelog.Batch
	size  int // an estimate, in bytes

	once sync.Once
	text []byte // the entries as XML
	ends []int  // of each entry in text
}

func newPage(b *changelog.Batch) *page { return &page{batch: b, size: 2 * b.Size()} }

// encoded returns the entries as XML, and where each ends.
func (p *page) encoded() (text []byte, ends []int) {
	p.once.Do(func() {
		w := changelog.NewXMLWriter()
		p.text = make([]byte, 0, 400*len(p.batch.Entries))
		p.ends = make([]int, len(p.batch.Entries))
		for i := range p.batch.Entries {
			p.text = w.AppendEntry(p.text, &p.batch.Entries[i])
			p.ends[i] = len(p.text)
		}
	})
	return p.text, p.ends
}

// behind returns the index of the entry that follows a cursor. ok is false when
// the page does not know the cursor, or has nothing behind it.
func (p *page) behind(c changelog.Cursor) (i int, ok bool) {
	entries := p.batch.Entries
	if p.batch.After == c {
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

// What is kept in memory of sets that have subscriptions.
const (
	windowPages = 1024    // of one set, the newest
	windowBytes = 4 << 20 // the same
	allWindows  = 256 << 20
	readBytes   = 32 << 20
)

// A window is the end of a set's log: pages of which each begins where the one
// before ends.
type window struct {
	pages []*page
	bytes int
}

// add adds what is new, and drops what is oldest until at most so many bytes are
// kept, or only what is new.
func (w *window) add(b *changelog.Batch, most int) {
	if n := len(w.pages); n > 0 && w.pages[n-1].batch.Cursor != b.After {
		*w = window{}
	}
	p := newPage(b)
	w.pages, w.bytes = append(w.pages, p), w.bytes+p.size
	for len(w.pages) > 1 && (len(w.pages) > windowPages || w.bytes > most) {
		w.bytes -= w.pages[0].size
		w.pages[0] = nil
		w.pages = w.pages[1:]
	}
}

// behind returns up to n pages from the one that holds what follows the cursor
// on, and the index of that entry in the first.
func (w *window) behind(c changelog.Cursor, n int) (pages []*page, first int) {
	// The last page that begins at the cursor or before it.
	i := sort.Search(len(w.pages), func(i int) bool { return w.pages[i].batch.After.Position > c.Position }) - 1
	if i < 0 {
		return nil, 0
	}
	first, ok := w.pages[i].behind(c)
	if !ok {
		return nil, 0
	}
	end := i
	for got := -first; end < len(w.pages) && got < n; end++ {
		got += len(w.pages[end].batch.Entries)
	}
	return append([]*page(nil), w.pages[i:end]...), first
}

// readings are the pages that were read from the memory, of all sets, up to
// readBytes; the longest unused go first. Subscriptions that are behind by about
// as much read the same page, or what is left of it, and so go on together.
type readings struct {
	mu    sync.Mutex
	bytes int
	used  list.List                  // of *reading, the last used first
	sets  map[string][]*list.Element // the same by set
}

type reading struct {
	set  string
	page *page
}

func (r *readings) behind(set string, c changelog.Cursor) (p *page, first int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.sets[set] {
		p := e.Value.(*reading).page
		if first, ok := p.behind(c); ok {
			r.used.MoveToFront(e)
			return p, first
		}
	}
	return nil, 0
}

func (r *readings) add(set string, p *page) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sets == nil {
		r.sets = map[string][]*list.Element{}
	}
	r.sets[set] = append(r.sets[set], r.used.PushFront(&reading{set, p}))
	r.bytes += p.size
	for r.bytes > readBytes && r.used.Len() > 1 {
		r.drop(r.used.Back())
	}
}

// forget drops the pages of a set.
func (r *readings) forget(set string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range append([]*list.Element(nil), r.sets[set]...) {
		r.drop(e)
	}
}

func (r *readings) drop(e *list.Element) {
	old := r.used.Remove(e).(*reading)
	r.bytes -= old.page.size
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
