package outbound

import (
	"bytes"
	"io"
	"net"
	"slices"
)

// NewBody returns a reader of a request's body that is in memory in parts. The parts must not be
// modified while a request may still read them. The connections of a Client write them without
// copying.
func NewBody(parts [][]byte) io.Reader {
	if len(parts) == 1 {
		return bytes.NewReader(parts[0])
	}
	return &partsReader{parts: parts}
}

// A partsReader reads parts one after another.
type partsReader struct {
	parts [][]byte
	off   int // number of bytes of parts[0] that were read
}

// Read implements io.Reader.
func (r *partsReader) Read(p []byte) (n int, err error) {
	for n < len(p) && len(r.parts) > 0 {
		k := copy(p[n:], r.parts[0][r.off:])
		n, r.off = n+k, r.off+k
		if r.off == len(r.parts[0]) {
			r.parts, r.off = r.parts[1:], 0
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// WriteTo writes the remaining parts, with one system call if the connection supports that.
func (r *partsReader) WriteTo(w io.Writer) (int64, error) {
	if len(r.parts) == 0 {
		return 0, nil
	}
	rest := net.Buffers(slices.Clone(r.parts)) // net.Buffers.WriteTo modifies the slice
	rest[0] = rest[0][r.off:]
	r.parts, r.off = nil, 0
	return rest.WriteTo(w)
}
