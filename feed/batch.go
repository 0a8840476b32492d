package feed

import (
	"iter"
	"sync/atomic"

	"github.com/rshub/rshub/resourcesync"
)

// An Entry is a change as the memory keeps it. The hub's datetime of it is
// part of the Cursor; the datetime in Change is the source's own.
type Entry struct {
	Cursor
	Change resourcesync.Change
}

// Clone returns a copy of e that shares no memory with it: see resourcesync.Change.Clone.
// A caller that keeps an entry longer than the page, block or answer from which it was
// decoded clones it.
func (e *Entry) Clone() Entry { return Entry{e.Cursor, e.Change.Clone()} }

// A Batch is a run of consecutive entries: what one publish added, a part of
// that, or several publishes. All followers share one Batch, so nobody may
// change it.
type Batch struct {
	Set      string
	After    Cursor // the cursor before the first entry
	Cursor   Cursor // the cursor to go on from: of the last entry, or of the last entry that a filter left out; equal to After when the batch covers no entry
	Entries  []Entry
	Diverged bool // the log had lost its tail, so After is not the cursor that the follower asked for

	encodings atomic.Pointer[encoding] // the newest of the batch's encodings; see In
}

// NewBatch returns the batch that one publish added. Its last entry is at last,
// and each entry is one position and one microsecond after the one before. The
// batch keeps the slices in changes; the caller must not change them any more.
func NewBatch(set string, after, last Cursor, changes []resourcesync.Change) *Batch {
	b := &Batch{Set: set, After: after, Cursor: last, Entries: make([]Entry, len(changes))}
	for i := range changes {
		back := len(changes) - 1 - i
		b.Entries[i] = Entry{
			Cursor: Cursor{last.Position - uint64(back), last.Micros - int64(back)},
			Change: changes[i],
		}
	}
	return b
}

// batchSize is what a batch takes besides its entries: in memory, or as the beginning
// and the end of its text. A page's URL of the next page is not in it.
const batchSize = 900

// Size returns how many bytes the batch takes at most: as JSON, as XML, or in memory.
// Its encodings come on top of what it takes in memory.
func (b *Batch) Size() int {
	n := batchSize
	for i := range b.Entries {
		n += b.Entries[i].Change.Size()
	}
	return n
}

// A part of a batch that is pushed has at most this size, in every format. A part
// with a single entry may be larger.
const (
	splitEntries = 1_000
	splitBytes   = 512_000
)

// Split cuts b into the parts that are pushed to followers. They share b's
// entries.
func (b *Batch) Split() []*Batch {
	var parts []*Batch
	after, begin, bytes := b.After, 0, batchSize
	for i := range b.Entries {
		n := b.Entries[i].Change.Size()
		if i > begin && (i-begin == splitEntries || bytes+n > splitBytes) {
			parts = append(parts, b.part(after, begin, i))
			after, begin, bytes = b.Entries[i-1].Cursor, i, batchSize
		}
		bytes += n
	}
	if begin == 0 {
		return []*Batch{b}
	}
	last := b.part(after, begin, len(b.Entries))
	last.Cursor = b.Cursor
	return append(parts, last)
}

// Singles yields b as batches of one entry each. Where b has none, or is diverged, the first
// of them has no entry.
func (b *Batch) Singles() iter.Seq[*Batch] {
	return func(yield func(*Batch) bool) {
		if len(b.Entries) == 0 {
			yield(b)
			return
		}
		if b.Diverged && !yield(&Batch{Set: b.Set, After: b.After, Cursor: b.After, Diverged: true}) {
			return
		}
		for i, after := 0, b.After; i < len(b.Entries); i++ {
			one := &Batch{Set: b.Set, After: after, Cursor: b.Entries[i].Cursor, Entries: b.Entries[i : i+1 : i+1]}
			if !yield(one) {
				return
			}
			after = one.Cursor
		}
	}
}

func (b *Batch) part(after Cursor, begin, end int) *Batch {
	return &Batch{
		Set: b.Set, After: after, Cursor: b.Entries[end-1].Cursor,
		Entries: b.Entries[begin:end:end], Diverged: b.Diverged && begin == 0,
	}
}

// Header returns the header of the batch as a change notification (Change
// Notification section 3), or as a framework notification (section 3 of that standard).
func (b *Batch) Header() *resourcesync.Header {
	h := &resourcesync.Header{Capability: Capability(b.Set)}
	from, until, _ := b.interval()
	h.From, h.Until = Cursor{Micros: from}.Time(), Cursor{Micros: until}.Time()
	h.Attrs = CursorAttrs(b.After, b.Cursor)
	if b.Diverged {
		h.Attrs = append(h.Attrs, resourcesync.Attr{Namespace: resourcesync.Terms, Name: "diverged", Value: "true"})
	}
	return h
}

// interval returns the interval that the batch covers, in microseconds since
// 1970. A follower that came before the log was made has the zero cursor, which
// has no time. The log's own beginning is not known here, so the interval
// begins just before the first entry. ok is false when no time is known.
func (b *Batch) interval() (from, until int64, ok bool) {
	from, until = b.After.Micros, b.Cursor.Micros
	if from == 0 && len(b.Entries) > 0 {
		from = b.Entries[0].Micros - 1
	}
	if from == 0 {
		from = until
	}
	return from, until, until != 0
}
