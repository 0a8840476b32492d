package feed

import (
	"slices"
	"sync"
)

// A Format is an encoding of batches. Batches identify a format by its address, so a Format must
// not be copied, and must not be modified after its first use.
type Format struct {
	Name      string // WebSocket subprotocol; empty if the format is not available over WebSocket
	MediaType string // media type, without parameters

	// Whether Append returns Zstandard frames (RFC 8878). WebSocket messages of such a format are
	// binary.
	Zstd bool

	// Whether a WebSocket message or an event of an event stream has at most one entry. If so,
	// Append is called with the batches that Batch.Singles yields.
	Single bool

	// Append appends a batch to dst and returns the extended slice. next is the URL of the next
	// page, or empty if b is pushed and not a page. A format without a place for next relies on the
	// Link header.
	Append func(dst []byte, b *Batch, next string) []byte

	// Page encodes a page piece by piece, so that neither its entries nor its text have to be in
	// memory as a whole. It is required of formats of pages, and nil in others.
	Page *PageWriter

	// Baseline returns a writer for one part of a baseline. It is nil if the format does not
	// support baselines.
	Baseline func() *BaselineWriter
}

// A PageWriter encodes a page of a batch piece by piece. The concatenated pieces equal the result
// of Format.Append. Each function appends to dst and returns the extended slice.
type PageWriter struct {
	Head  func(dst []byte, b *Batch, next string) []byte            // appends the text before the first entry; b need not have entries other than the first
	Entry func(dst []byte, set string, e *Entry, first bool) []byte // appends an entry of a set, after the separator unless it is the first
	Tail  func(dst []byte) []byte                                   // appends the text after the last entry
}

// Formats of changes.
var (
	// JSON is the JSON object that all transports use: {"set", "after", "from", "until", "cursor",
	// "changes": [...]}. It is one line. A page also has a member "next", and ends with a newline.
	JSON = &Format{Name: "rs.json", MediaType: "application/json", Append: func(dst []byte, b *Batch, next string) []byte {
		dst = b.appendJSON(slices.Grow(dst, 160+360*len(b.Entries)), next)
		if next != "" {
			dst = append(dst, '\n')
		}
		return dst
	}, Page: &PageWriter{
		Head:  func(dst []byte, b *Batch, next string) []byte { return b.appendJSONHead(dst, next) },
		Entry: func(dst []byte, _ string, e *Entry, first bool) []byte { return appendMember(dst, e, first) },
		Tail:  func(dst []byte) []byte { return append(dst, "]}\n"...) },
	}, Baseline: func() *BaselineWriter { return baselineJSON }}

	// XML is a change notification (Change Notification section 3).
	XML = &Format{Name: "rs.xml", MediaType: "application/xml", Append: func(dst []byte, b *Batch, _ string) []byte {
		return b.appendXML(slices.Grow(dst, 400+500*len(b.Entries)))
	}, Baseline: baselineXML}

	// NDJSON has one JSON object per line for each entry. It omits the cursors of the batch, so it
	// is available only for pages, which have them in headers.
	NDJSON = &Format{MediaType: "application/x-ndjson", Append: func(dst []byte, b *Batch, _ string) []byte {
		dst = slices.Grow(dst, 360*len(b.Entries))
		for i := range b.Entries {
			dst = append(b.Entries[i].AppendJSON(dst), '\n')
		}
		return dst
	}, Page: &PageWriter{
		Head:  func(dst []byte, _ *Batch, _ string) []byte { return dst },
		Entry: func(dst []byte, _ string, e *Entry, first bool) []byte { return appendLine(dst, e, first) },
		Tail:  func(dst []byte) []byte { return dst },
	}, Baseline: func() *BaselineWriter { return baselineNDJSON }}
)

// MessageFormats returns the textual formats of WebSocket messages. The first is the default.
func MessageFormats() []*Format { return []*Format{JSON, XML} }

// PageFormats returns the formats of a page of changes. The first is the default. A client that
// accepts one of their media types asks for changes instead of the latest notification. The
// notification is application/xml, so no format of a page may have this type.
func PageFormats() []*Format { return []*Format{JSON, NDJSON} }

// An encoding is a batch in one format. It is encoded once and shared by all followers. The
// encodings of a batch form a linked list; it has one or two elements, one for each format in use.
type encoding struct {
	format *Format
	next   *encoding

	once sync.Once
	text []byte
}

// Encode returns the batch in format f, as it is pushed. The first call encodes it, and concurrent
// calls wait for that. The result must not be modified. Encode is safe for concurrent use.
func (b *Batch) Encode(f *Format) []byte {
	e := b.encoding(f)
	e.once.Do(func() { e.text = f.Append(nil, b, "") })
	return e.text
}

// encoding returns b's encoding in format f. Its text may not be set yet.
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

// JSON returns b.Encode(JSON).
func (b *Batch) JSON() []byte { return b.Encode(JSON) }

// XML returns b.Encode(XML).
func (b *Batch) XML() []byte { return b.Encode(XML) }
