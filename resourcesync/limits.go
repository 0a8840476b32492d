package resourcesync

import (
	"fmt"
	"io"
	"math"
	"strconv"
)

// Limits bound what a reader accepts. A field that is 0 or less has its default. Input
// that exceeds a limit is refused with ErrTooLarge.
type Limits struct {
	Bytes   int64 // in a document, default 52,428,800 (50 MiB); in one line of NDJSON, default 1 MiB
	Entries int   // in a document, default 50,000; a stream of NDJSON has no such limit

	// CheckMemory is called with how many bytes of memory the reader needs so far, before it uses
	// them: those of the entries that it has read, and the most that the entry under way may
	// need. It is called often. An error ends the reading; the reader returns it wrapped.
	// Default: memory is not limited. Only ReadXML and ReadJSON call it.
	CheckMemory func(bytes int64) error

	// Check is called with each entry that could be read. Its *Error counts as one of the
	// reader. Default: nothing is checked besides what the reader does. Only ReadXML and
	// ReadJSON call it.
	Check func(*Change) error
}

// maxEntry bounds the text of one entry, which may be longer than the entry by its escapes.
const maxEntry = 2 << 20

// What the text of an entry that is not read to its end may take in memory, for each byte.
// In XML, attributes of two letters take most: the decoder collects them before they can be
// counted.
const (
	jsonBlowUp = 8
	xmlBlowUp  = 32
)

// A room counts the memory that a document takes while it is read. It is the io.Reader that
// the text comes through.
type room struct {
	r      io.Reader
	tell   func(bytes int64) error // nil: only the text of an entry is bounded
	blowUp int64

	read  int64 // bytes that were read
	begun int64 // as many were read when the entry began
	held  int64 // memory of the entries before
	err   error // of the first read that failed; it stays, because what was read then is lost
}

func (l Limits) room(r io.Reader, blowUp int64) *room {
	return &room{r: r, tell: l.CheckMemory, blowUp: blowUp}
}

func (m *room) Read(p []byte) (n int, err error) {
	if m.err != nil {
		return 0, m.err
	}
	if m.read-m.begun > maxEntry {
		return 0, &Error{Err: ErrTooLarge, Msg: "the text of one entry has at most " + group(maxEntry) + " bytes"}
	}
	n, m.err = m.r.Read(p)
	m.read += int64(n)
	if m.tell != nil {
		if err := m.tell(m.held + m.blowUp*(m.read-m.begun)); err != nil {
			n, m.err = 0, err
		}
	}
	return n, m.err
}

// add counts an entry that was read to its end.
func (m *room) add(c *Change) error {
	m.begun = m.read
	m.held += c.Memory()
	if m.tell == nil {
		return nil
	}
	return m.tell(m.held)
}

// What an entry, a link and an attribute take in memory besides their text. They are in
// slices that grow: while one is copied to a larger one, both are there. An entry is
// copied once more, into the changes of a publish.
const (
	entryMemory = 1000
	linkMemory  = 450
	attrMemory  = 120
)

// Memory returns about how many bytes c takes in memory while it is read and published,
// rather too many.
func (c *Change) Memory() int64 {
	n := entryMemory + len(c.Loc) + len(c.Hash) + len(c.Type) + len(c.Encoding) + len(c.Path) + attrsMemory(c.Attrs)
	for i := range c.Links {
		l := &c.Links[i]
		n += linkMemory + len(l.Rel) + len(l.Href) + len(l.Hash) + len(l.Type) + len(l.Encoding) + len(l.Path) + len(l.Profile) + attrsMemory(l.Attrs)
	}
	return int64(n)
}

func attrsMemory(attrs []Attr) int {
	n := 0
	for i := range attrs {
		n += attrMemory + len(attrs[i].Namespace) + len(attrs[i].Name) + len(attrs[i].Value)
	}
	return n
}

const (
	defaultBytes     = 50 << 20
	defaultLineBytes = 1 << 20
	defaultEntries   = 50_000
)

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	if l.Entries <= 0 {
		l.Entries = defaultEntries
	}
	return l
}

// tooMany returns the error for entry number n, the first one over the limit.
func (l Limits) tooMany(n int) *Error {
	return &Error{Err: ErrTooLarge, Entry: n, Msg: fmt.Sprintf("a document has at most %s entries, this is entry %s",
		group(int64(l.Entries)), group(int64(n)))}
}

// A limitReader reads at most max bytes. If there are more, it fails. (An io.LimitedReader
// alone would report the end, and the document would seem complete.)
type limitReader struct {
	io.LimitedReader
	max int64
}

func newLimitReader(r io.Reader, most int64) *limitReader {
	most = min(most, math.MaxInt64-1) // one byte more shows that there are more
	return &limitReader{io.LimitedReader{R: r, N: most + 1}, most}
}

func (l *limitReader) Read(p []byte) (int, error) {
	n, err := l.LimitedReader.Read(p)
	if l.N <= 0 {
		n, err = max(n-1, 0), &Error{Err: ErrTooLarge, Msg: "a document has at most " + group(l.max) + " bytes, unpacked; this one has more"}
	}
	return n, err
}

// group writes n with commas between its thousands, for people.
func group(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
