package resourcesync

import (
	"fmt"
	"io"
	"math"
	"strconv"
)

// Limits bound the input of a reader. A number that is 0 or less stands for its
// default. A reader fails with ErrTooLarge when input exceeds a limit.
type Limits struct {
	Bytes   int64 // bytes of a document, by default 50 MiB; of a line of NDJSON, by default 1 MiB
	Entries int   // entries of a document, by default 50,000; ignored for NDJSON

	// CheckMemory, if not nil, is called with an upper bound of the memory that the
	// document needs so far, in bytes, before the reader uses it: the memory of the
	// entries read, plus the most that the current entry may need. It is called often,
	// so it must be fast. If it returns an error, the reader stops and returns that
	// error wrapped. Only ReadXML and ReadJSON call it.
	CheckMemory func(bytes int64) error

	// Check, if not nil, is called with each entry that could be read. The reader treats
	// an *Error that it returns like an error of its own: it sets the position and
	// continues with the next entry. Only ReadXML and ReadJSON call it.
	Check func(*Change) error
}

// maxEntryText is the maximum length in bytes of the text of one entry. Escapes may make
// the text longer than the entry.
const maxEntryText = 2 << 20

// The maximum memory, in bytes per byte of text, that an entry needs until it is read
// completely. The worst case in XML is an element with many attributes of two letters,
// because the decoder collects them before they can be counted.
const (
	jsonExpansion = 8
	xmlExpansion  = 32
)

// A memoryMeter tracks the memory that a document needs while it is read. It is the
// io.Reader through which the reader receives the text.
type memoryMeter struct {
	r         io.Reader
	check     func(bytes int64) error // Limits.CheckMemory; if nil, only the text of an entry is bounded
	expansion int64                   // jsonExpansion or xmlExpansion

	read       int64 // bytes read
	entryStart int64 // value of read at the start of the current entry
	retained   int64 // memory of the complete entries
	err        error // error of the first failed read; permanent, because the bytes of that read are lost
}

// newMeter returns a memoryMeter that reads from r and calls l.CheckMemory.
func (l Limits) newMeter(r io.Reader, expansion int64) *memoryMeter {
	return &memoryMeter{r: r, check: l.CheckMemory, expansion: expansion}
}

// Read implements io.Reader. It fails before it reads more than maxEntryText bytes beyond
// the start of the current entry, give or take one read, and with the error of check.
func (m *memoryMeter) Read(p []byte) (n int, err error) {
	if m.err != nil {
		return 0, m.err
	}
	if m.read-m.entryStart > maxEntryText {
		return 0, &Error{Err: ErrTooLarge, Msg: "entry too large; want at most " + groupDigits(maxEntryText) + " bytes of text"}
	}
	n, m.err = m.r.Read(p)
	m.read += int64(n)
	if m.check != nil {
		if err := m.check(m.retained + m.expansion*(m.read-m.entryStart)); err != nil {
			n, m.err = 0, err
		}
	}
	return n, m.err
}

// addEntry accounts for an entry that was read completely.
func (m *memoryMeter) addEntry(c *Change) error {
	m.entryStart = m.read
	m.retained += c.Memory()
	if m.check == nil {
		return nil
	}
	return m.check(m.retained)
}

// The memory in bytes of an entry, a link and an attribute in addition to their text.
// They are stored in slices that grow, and while a slice is copied to a larger one, both
// exist. An entry is copied once more, to the changes of a publish.
const (
	entryMemory = 1000
	linkMemory  = 450
	attrMemory  = 120
)

// Memory returns an estimate of the memory that c occupies while it is read and
// published, in bytes. It tends to be too high.
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

// withDefaults returns l with its defaults filled in.
func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	if l.Entries <= 0 {
		l.Entries = defaultEntries
	}
	return l
}

// tooMany returns the error for entry n, the first one beyond the limit.
func (l Limits) tooMany(n int) *Error {
	return &Error{Err: ErrTooLarge, Entry: n, Msg: fmt.Sprintf("document: got entry %s, want at most %s entries",
		groupDigits(int64(n)), groupDigits(int64(l.Entries)))}
}

// A limitReader reads up to max bytes and fails if its input has more. An
// io.LimitedReader alone would report io.EOF, and a truncated document could seem
// complete.
type limitReader struct {
	io.LimitedReader
	max int64
}

func newLimitReader(r io.Reader, limit int64) *limitReader {
	limit = min(limit, math.MaxInt64-1) // the reader asks for one more byte to detect excess input
	return &limitReader{io.LimitedReader{R: r, N: limit + 1}, limit}
}

func (l *limitReader) Read(p []byte) (int, error) {
	n, err := l.LimitedReader.Read(p)
	if l.N <= 0 {
		n, err = max(n-1, 0), &Error{Err: ErrTooLarge, Msg: "document too large; want at most " + groupDigits(l.max) + " bytes uncompressed"}
	}
	return n, err
}

// groupDigits formats n with a comma between groups of three digits.
func groupDigits(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
