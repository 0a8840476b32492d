package resourcesync

import (
	"fmt"
	"io"
	"strconv"
)

// Limits bound what a reader accepts. A field that is 0 or less has its default. Input
// that exceeds a limit is refused with ErrTooLarge.
type Limits struct {
	Bytes   int64 // in a document, default 52,428,800 (50 MiB); in one line of NDJSON, default 1 MiB
	Entries int   // in a document, default 50,000; a stream of NDJSON has no such limit
	Depth   int   // how deep elements, or objects and arrays, may be nested; default 16
}

const (
	defaultBytes     = 50 << 20
	defaultLineBytes = 1 << 20
	defaultEntries   = 50_000
	defaultDepth     = 16
)

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	if l.Entries <= 0 {
		l.Entries = defaultEntries
	}
	if l.Depth <= 0 {
		l.Depth = defaultDepth
	}
	return l
}

// tooMany returns the error for entry number n, the first one over the limit.
func (l Limits) tooMany(n int) *Error {
	return &Error{Err: ErrTooLarge, Entry: n, Rule: fmt.Sprintf("a document has at most %s entries, this is entry %s",
		group(int64(l.Entries)), group(int64(n)))}
}

func (l Limits) tooDeep() *Error {
	return &Error{Err: ErrTooLarge, Rule: fmt.Sprintf("a document nests at most %d levels", l.Depth)}
}

// A limitReader reads at most max bytes from r. If r has more, it fails. (An
// io.LimitReader would report the end, and the document would seem complete.)
type limitReader struct {
	r    io.Reader
	max  int64
	left int64 // negative when r had more
}

func newLimitReader(r io.Reader, max int64) *limitReader {
	return &limitReader{r: r, max: max, left: max}
}

func (l *limitReader) Read(p []byte) (int, error) {
	if l.left < 0 {
		return 0, l.err()
	}
	// Reading one byte more than left shows whether r has more. The comparison cannot
	// overflow, even if left is the largest int64.
	if int64(len(p))-1 > l.left {
		p = p[:l.left+1]
	}
	n, err := l.r.Read(p)
	l.left -= int64(n)
	if l.left < 0 {
		return n - 1, l.err()
	}
	return n, err
}

func (l *limitReader) err() error {
	return &Error{Err: ErrTooLarge, Rule: "a document has at most " + group(l.max) + " bytes, unpacked; here this one has more"}
}

// group writes n with commas between its thousands, for people.
func group(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
