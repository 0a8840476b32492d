// Package gunzip reads gzip as servers and tools really send it: several members, and zeros after
// the last one.
//
// Anything else after the end is an error that says so. Hub, client and harvester use it, so that
// the same file is accepted everywhere.
package gunzip

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// An Error says what is wrong with a gzip.
type Error struct {
	Rule    string
	Damaged bool // it is cut off or corrupt, so another copy may be whole
}

// Error returns the Rule.
func (e *Error) Error() string { return e.Rule }

// maxTrailer bounds how many bytes after the end of a gzip are read.
const maxTrailer = 1 << 20

// IsGzip reports whether a document that starts with begin is gzip.
func IsGzip(begin []byte) bool { return len(begin) > 1 && begin[0] == 0x1f && begin[1] == 0x8b }

// A Reader unpacks a gzip of one or more members. It ignores zeros after the last one. An
// error is that of the underlying reader or an *Error.
type Reader struct {
	in   source
	gzip *gzip.Reader
	err  error // first error; it stays
}

// A source is the packed input. It remembers an error, which compress/flate would replace.
type source struct {
	*bufio.Reader
	err error // first error other than io.EOF
}

// Read reads packed bytes.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.setErr(err)
	return n, err
}

// ReadByte reads a packed byte. With it, compress/flate reads no byte after the end.
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

// Read reads unpacked bytes.
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

// nextMember continues with the nextMember member. It returns io.EOF if there is none.
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
			return &Error{Rule: "1 byte after the end of the gzip"}
		case err == io.EOF:
			return &Error{Rule: fmt.Sprintf("%d bytes after the end of the gzip", trailer)}
		case err != nil:
			return err
		case trailer >= maxTrailer:
			return &Error{Rule: fmt.Sprintf("more than %d bytes after the end of the gzip", maxTrailer)}
		}
	}
}

// explain returns why reading stopped.
func (r *Reader) explain(err error) error {
	_, corrupt := errors.AsType[flate.CorruptInputError](err)
	rule := "the gzip is damaged"
	switch {
	case err == nil:
		return nil
	case r.in.err != nil:
		return r.in.err
	case err == gzip.ErrHeader && r.gzip == nil:
		rule = "it is not gzip"
	case err == io.ErrUnexpectedEOF || err == io.EOF && r.gzip == nil:
		rule = "the gzip ends early: a part of it is missing at its end"
	case !corrupt && err != gzip.ErrHeader && err != gzip.ErrChecksum:
		return err
	}
	return &Error{Rule: rule, Damaged: true}
}
