package changelog

import (
	"strconv"
	"sync"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// An Entry is a change as the memory keeps it. Its Datetime is the hub's and in
// the cursor; the one in Change is the source's.
type Entry struct {
	Cursor
	Change resourcesync.Change
}

// A Batch is a run of consecutive entries: what one publish added, or a part of
// it, or several. It is shared by all followers and read-only.
type Batch struct {
	Set      string
	After    Cursor // before the first entry
	Cursor   Cursor // of the last entry, or of the last that was looked at; After when there is none
	Entries  []Entry
	Diverged bool // the log had lost its tail, so After is not the cursor that was asked for

	json, xml encoding
}

// encoding is one form of a batch, made once for everybody.
type encoding struct {
	once  sync.Once
	bytes []byte
}

// NewBatch returns the batch of what a publish added. The changes are shared.
func NewBatch(set string, a Appended, changes []resourcesync.Change) *Batch {
	b := &Batch{Set: set, After: a.After, Cursor: a.Cursor, Entries: make([]Entry, len(changes))}
	for i := range changes {
		back := len(changes) - 1 - i
		b.Entries[i] = Entry{
			Cursor: Cursor{a.Cursor.Position - uint64(back), a.Cursor.Micros - int64(back)},
			Change: changes[i],
		}
	}
	return b
}

// Size estimates what the batch takes in memory and as text, in bytes.
func (b *Batch) Size() int {
	n := 200
	for i := range b.Entries {
		n += size(&b.Entries[i].Change)
	}
	return n
}

// Split cuts b into the parts that are pushed, each of at most MaxBlockEntries
// entries and, unless it is a single entry, about twice MaxBlockBytes of text.
// They share b's entries.
func (b *Batch) Split() []*Batch {
	var parts []*Batch
	after, begin, bytes := b.After, 0, 0
	for i := range b.Entries {
		n := size(&b.Entries[i].Change)
		if i > begin && (i-begin == MaxBlockEntries || bytes+n > 2*MaxBlockBytes) {
			parts = append(parts, b.part(after, begin, i))
			after, begin, bytes = b.Entries[i-1].Cursor, i, 0
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

func (b *Batch) part(after Cursor, begin, end int) *Batch {
	return &Batch{
		Set: b.Set, After: after, Cursor: b.Entries[end-1].Cursor,
		Entries: b.Entries[begin:end:end], Diverged: b.Diverged && begin == 0,
	}
}

// JSON returns the batch as the object that every transport shows:
// {"set", "after", "from", "until", "cursor", "changes": [...]}. One line,
// without a newline at its end. The caller must not change it.
func (b *Batch) JSON() []byte {
	b.json.once.Do(func() {
		b.json.bytes = b.AppendJSON(make([]byte, 0, 160+360*len(b.Entries)), "")
	})
	return b.json.bytes
}

// AppendJSON appends what JSON returns, with a member "next" unless it is empty.
func (b *Batch) AppendJSON(dst []byte, next string) []byte {
	dst = append(dst, `{"set":"`...)
	dst = append(dst, b.Set...) // a set's name needs no escape
	dst = append(dst, `","after":"`...)
	dst = b.After.Append(dst)
	if from, until, ok := b.interval(); ok {
		dst = append(dst, `","from":"`...)
		dst = resourcesync.AppendTimeMicro(dst, from)
		dst = append(dst, `","until":"`...)
		dst = resourcesync.AppendTimeMicro(dst, until)
	}
	dst = append(dst, `","cursor":"`...)
	dst = b.Cursor.Append(dst)
	dst = append(dst, '"')
	if b.Diverged {
		dst = append(dst, `,"diverged":true`...)
	}
	if next != "" {
		dst = append(dst, `,"next":`...)
		dst = strconv.AppendQuote(dst, next) // a URL: nothing that Go and JSON escape differently
	}
	dst = append(dst, `,"changes":[`...)
	for i := range b.Entries {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = b.Entries[i].AppendJSON(dst)
	}
	return append(dst, "]}"...)
}

// AppendJSON appends the entry as a JSON object: the change's own members,
// position, datetime, and the source's own datetime as sourceDatetime.
func (e *Entry) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"position":`...)
	dst = strconv.AppendUint(dst, e.Position, 10)
	dst = append(dst, `,"datetime":"`...)
	dst = resourcesync.AppendTimeMicro(dst, e.Micros)
	dst = append(dst, `",`...)
	c := e.Change
	if !c.Datetime.IsZero() {
		dst = append(dst, `"sourceDatetime":"`...)
		dst = resourcesync.AppendTime(dst, c.Datetime)
		dst = append(dst, `",`...)
		c.Datetime = time.Time{} // the hub's is there already
	}
	dst = resourcesync.AppendJSONMembers(dst, &c)
	return append(dst, '}')
}

// XML returns the batch as a change notification (Change Notification section
// 3). The caller must not change it.
func (b *Batch) XML() []byte {
	b.xml.once.Do(func() {
		w := NewXMLWriter()
		dst := make([]byte, 0, 400+500*len(b.Entries))
		h := b.header()
		dst = w.AppendHeader(dst, h)
		for i := range b.Entries {
			dst = w.AppendEntry(dst, &b.Entries[i])
		}
		b.xml.bytes = resourcesync.AppendXMLFooter(dst, h)
	})
	return b.xml.bytes
}

// header returns what the batch says of itself as a change notification.
func (b *Batch) header() *resourcesync.Header {
	h := &resourcesync.Header{Capability: resourcesync.ChangeNotification}
	from, until, _ := b.interval()
	h.From, h.Until = Cursor{Micros: from}.Time(), Cursor{Micros: until}.Time()
	h.Attrs = placeAttrs(b.After, b.Cursor)
	if b.Diverged {
		h.Attrs = append(h.Attrs, resourcesync.Attr{Namespace: resourcesync.Terms, Name: "diverged", Value: "true"})
	}
	return h
}

// interval returns the times that the batch covers. A log that was not made
// when its follower came has no time at its beginning; it began just before its
// first entry. ok is false while nothing is known.
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
