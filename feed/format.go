package feed

import (
	"slices"
	"sync"
)

// A Format is a way to write batches. Batches tell formats apart by their
// address, so a Format must not be copied, and not be changed after its first
// use.
type Format struct {
	Name      string // the WebSocket subprotocol for it; empty when a WebSocket cannot speak it
	MediaType string

	// Zstd says that what Append appends is a frame of Zstandard (RFC 8878). A WebSocket
	// message of such a format is binary.
	Zstd bool

	// Single says that a message, or an event of an event stream, has one entry. Append is
	// then called with what Batch.Singles yields.
	Single bool

	// Append appends a batch to dst. If b is a page of changes, next is the URL
	// of the page that follows; a format without a place for it leaves it to the
	// Link header. If b is pushed, next is empty.
	Append func(dst []byte, b *Batch, next string) []byte

	// Parts appends a page in parts, so that neither its entries nor its text have to be in
	// memory as a whole. Every format of pages has it.
	Parts *Parts

	// Baseline returns what writes one part of a baseline. Nil: the format cannot show
	// baselines.
	Baseline func() *BaselineWriter
}

// Parts write a page of a batch piece by piece. Together they write the same as
// Format.Append.
type Parts struct {
	Head  func(dst []byte, b *Batch, next string) []byte            // what stands before the first entry; of its entries b needs only the first
	Entry func(dst []byte, set string, e *Entry, first bool) []byte // an entry of a set, after what separates it from the previous one; first: there is none
	Tail  func(dst []byte) []byte                                   // what stands behind the last entry
}

// The formats of changes.
var (
	// JSON is the object that every transport shows: {"set", "after", "from",
	// "until", "cursor", "changes": [...]}. It is one line. A page also has a
	// member "next", and a newline at its end.
	JSON = &Format{Name: "rs.json", MediaType: "application/json", Append: func(dst []byte, b *Batch, next string) []byte {
		dst = b.appendJSON(slices.Grow(dst, 160+360*len(b.Entries)), next)
		if next != "" {
			dst = append(dst, '\n')
		}
		return dst
	}, Parts: &Parts{
		Head:  func(dst []byte, b *Batch, next string) []byte { return b.appendJSONHead(dst, next) },
		Entry: func(dst []byte, _ string, e *Entry, first bool) []byte { return appendMember(dst, e, first) },
		Tail:  func(dst []byte) []byte { return append(dst, "]}\n"...) },
	}, Baseline: func() *BaselineWriter { return baselineJSON }}

	// XML is a change notification (Change Notification section 3).
	XML = &Format{Name: "rs.xml", MediaType: "application/xml", Append: func(dst []byte, b *Batch, _ string) []byte {
		return b.appendXML(slices.Grow(dst, 400+500*len(b.Entries)))
	}, Baseline: baselineXML}

	// NDJSON has a JSON object on each line, one for each entry. It has no
	// place for the cursors of the batch, so it is only for pages, whose
	// headers carry them.
	NDJSON = &Format{MediaType: "application/x-ndjson", Append: func(dst []byte, b *Batch, _ string) []byte {
		dst = slices.Grow(dst, 360*len(b.Entries))
		for i := range b.Entries {
			dst = append(b.Entries[i].AppendJSON(dst), '\n')
		}
		return dst
	}, Parts: &Parts{
		Head:  func(dst []byte, _ *Batch, _ string) []byte { return dst },
		Entry: func(dst []byte, _ string, e *Entry, first bool) []byte { return appendLine(dst, e, first) },
		Tail:  func(dst []byte) []byte { return dst },
	}, Baseline: func() *BaselineWriter { return baselineNDJSON }}
)

// Messages returns the formats of text that a WebSocket speaks. The first is the
// default.
func Messages() []*Format { return []*Format{JSON, XML} }

// Pages returns the formats of a page of changes. The first is the default. A
// client that accepts one of their media types asks for changes instead of the
// latest notification. The notification is application/xml, so that cannot be
// one of them.
func Pages() []*Format { return []*Format{JSON, NDJSON} }

// An encoding is a batch in one format. It is made once and shared by all
// followers. A batch links its encodings; it has one or two, as many as there
// are formats that its followers ask for.
type encoding struct {
	format *Format
	next   *encoding

	once sync.Once
	text []byte
}

// In returns the batch as it is pushed in a format. The first caller makes the
// text, and callers at the same time wait for it. Nobody may change it.
func (b *Batch) In(f *Format) []byte {
	e := b.encoding(f)
	e.once.Do(func() { e.text = f.Append(nil, b, "") })
	return e.text
}

// encoding returns the batch's encoding in a format. Its text may not be made
// yet.
func (b *Batch) encoding(f *Format) *encoding {
	for {
		first := b.encodings.Load()
		for e := first; e != nil; e = e.next {
			if e.format == f {
				return e
			}
		}
		e := &encoding{format: f, next: first}
		if b.encodings.CompareAndSwap(first, e) {
			return e
		}
	}
}

// JSON returns In(JSON).
func (b *Batch) JSON() []byte { return b.In(JSON) }

// XML returns In(XML).
func (b *Batch) XML() []byte { return b.In(XML) }
