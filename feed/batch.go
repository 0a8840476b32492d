package feed

import (
	"iter"
	"sync/atomic"

	"github.com/rshub/rshub/resourcesync"
)

// An Entry is a change in the log of a set. The embedded Cursor has the hub's datetime; the
// datetime of Change is the source's.
type Entry struct {
	Cursor
	Change resourcesync.Change
}

// Clone returns a copy of e that shares no memory with it, see resourcesync.Change.Clone. To retain
// an entry longer than the page, block or response from which it was decoded, clone it.
func (e *Entry) Clone() Entry { return Entry{e.Cursor, e.Change.Clone()} }

// A Batch is a run of consecutive entries: all or some changes of one publish, or of several publishes.
// All followers share the same Batch, so it must not be modified.
type Batch struct {
	Set    string
	After  Cursor // cursor before the first entry
	Cursor Cursor // cursor to resume from; equal to After if the batch covers no entry
	// Entries after After up to Cursor that pass the follower's filter, in log order. If the filter
	// omits the last entries, Cursor is beyond the last of these.
	Entries  []Entry
	Diverged bool // whether the log has lost its tail, so that After is not the cursor that was asked for

	encodings atomic.Pointer[encoding] // newest of the linked encodings; see Encode
}

// NewBatch returns the batch of one publish. Its last entry is at last, and consecutive entries are
// one position and one microsecond apart. The batch retains the slices in changes; the caller must
// not modify them afterwards.
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

// batchSize bounds the size of a batch without entries: in memory, or as the start and the end of
// its text. It does not include the URL of the next page.
const batchSize = 900

// Size returns an upper bound of the size of the batch in bytes: as JSON, as XML, or in memory. In
// memory, its encodings add to it.
func (b *Batch) Size() int {
	n := batchSize
	for i := range b.Entries {
		n += b.Entries[i].Change.Size()
	}
	return n
}

// Limits of a part that Split returns, in every format. A part with a single entry may exceed
// splitBytes.
const (
	splitEntries = 1_000
	splitBytes   = 512_000
)

// Split splits b into the parts that are pushed to followers, each with at most 1,000 entries and
// 512,000 bytes. A part with a single entry may be larger. The parts share b's entries.
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

// Singles yields b as batches of one entry each. If b has no entries or is diverged, the first
// batch has no entry.
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

// part returns the part of b with the entries from begin up to end, exclusive. after is the cursor
// before them.
func (b *Batch) part(after Cursor, begin, end int) *Batch {
	return &Batch{
		Set: b.Set, After: after, Cursor: b.Entries[end-1].Cursor,
		Entries: b.Entries[begin:end:end], Diverged: b.Diverged && begin == 0,
	}
}

// Header returns the header of the batch as a change notification (Change Notification section 3)
// or a framework notification (section 3 of that standard), depending on its set.
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

// interval returns the interval that the batch covers, in microseconds since 1970. A follower that
// joined before the log was created has the zero cursor, which has no time. The start of the log is
// not known here, so the interval then starts just before the first entry. ok is false if no time
// is known.
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
