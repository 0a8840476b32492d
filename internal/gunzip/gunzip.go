// Package gunzip reads gzip as servers and tools send it in practice: with several members, and
// with zeros after the last one.
//
// Any other data after the end is an error. Hub, client and harvester use it, so that the same file
// is accepted everywhere.
package gunzip

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// An Error describes a fault in gzip data.
type Error struct {
	Rule    string
	Damaged bool // whether the data is truncated or corrupt, so another copy may be intact
}

// Error returns the Rule.
func (e *Error) Error() string { return e.Rule }

// maxTrailer is the maximum number of bytes that are read after the end of the gzip data.
const maxTrailer = 1 << 20

// IsGzip reports whether data that starts with begin is gzip.
func IsGzip(begin []byte) bool { return len(begin) > 1 && begin[0] == 0x1f && begin[1] == 0x8b }

// A Reader decompresses gzip data of one or more members. It ignores zeros after the last one. Its
// errors come from the underlying reader or are of type *Error.
type Reader struct {
	in   source
	gzip *gzip.Reader
	err  error // first error, returned by all further reads
}

// A source is the compressed input. It remembers an error, which compress/flate would replace.
type source struct {
	*bufio.Reader
	err error // first error other than io.EOF
}

// Read reads compressed bytes.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.setErr(err)
	return n, err
}

// ReadByte reads a compressed byte. It prevents compress/flate from reading beyond the end.
func (s *source) ReadByte() (byte, error) {
	b, err := s.Reader.ReadByte()
	s.setErr(err)
	return b, err
}

func (s *source) setErr(err error) {
	if s.err == nil && err != io.EOF {
		s.err = err
	}
}

// NewReader returns a Reader of in. It reads the header of the first member.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{in: source{Reader: bufio.NewReaderSize(in, 32<<10)}}
	var err error
	if r.gzip, err = gzip.NewReader(&r.in); err != nil {
		return nil, r.explain(err)
	}
	r.gzip.Multistream(false)
	return r, nil
}

// Read reads decompressed bytes.
func (r *Reader) Read(p []byte) (n int, err error) {
	for n == 0 && r.err == nil && len(p) > 0 {
		if n, err = r.gzip.Read(p); err == io.EOF {
			err = r.nextMember()
		}
		r.err = r.explain(err)
	}
	if n > 0 {
		return n, nil
	}
	return 0, r.err
}

// nextMember starts the next member. It returns io.EOF if there is none.
func (r *Reader) nextMember() error {
	begin, err := r.in.Peek(2)
	r.in.setErr(err)
	if len(begin) == 0 {
		return err
	}
	if IsGzip(begin) {
		err := r.gzip.Reset(&r.in)
		r.gzip.Multistream(false)
		return err
	}
	for trailer, zeros := 0, true; ; trailer++ {
		b, err := r.in.ReadByte()
		zeros = zeros && (b == 0 || err != nil)
		switch {
		case err == io.EOF && zeros:
			return io.EOF
		case err == io.EOF && trailer == 1:
			return &Error{Rule: "1 byte after the end of the gzip data"}
		case err == io.EOF:
			return &Error{Rule: fmt.Sprintf("%d bytes after the end of the gzip data", trailer)}
		case err != nil:
			return err
		case trailer >= maxTrailer:
			return &Error{Rule: fmt.Sprintf("more than %d bytes after the end of the gzip data", maxTrailer)}
		}
	}
}

// explain returns the error to report for err.
func (r *Reader) explain(err error) error {
	_, corrupt := errors.AsType[flate.CorruptInputError](err)
	rule := "gzip data is damaged"
	switch {
	case err == nil:
		return nil
	case r.in.err != nil:
		return r.in.err
	case err == gzip.ErrHeader && r.gzip == nil:
		rule = "data is not gzip"
	case err == io.ErrUnexpectedEOF || err == io.EOF && r.gzip == nil:
		rule = "gzip data ends early"
	case !corrupt && err != gzip.ErrHeader && err != gzip.ErrChecksum:
		return err
	}
	return &Error{Rule: rule, Damaged: true}
}
