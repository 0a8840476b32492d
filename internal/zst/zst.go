// Package zst compresses and decompresses data with Zstandard (RFC 8878), with bounded memory.
//
// It wraps one library for all of rshub. Formats that use it are in package feed and the change
// memory.
package zst

import (
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// maxDecoded is the maximum size of the result of Decode in bytes.
const maxDecoded = 64 << 20

// maxBuffer is the maximum size of a reused buffer in bytes.
const maxBuffer = 1 << 20

// buffers are temporary buffers for decoding, from which the text is copied. Without them each text
// would take twice its memory.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// The encoder and the decoder have no state between calls, only scratch space, so the
// whole process shares them. Their options are constant and valid, so errors are ignored.
var (
	encoder = sync.OnceValue(func() *zstd.Encoder {
		e, _ := zstd.NewWriter(nil, zstd.WithEncoderCRC(false), zstd.WithEncoderLevel(zstd.SpeedFastest))
		return e
	})
	decoder = sync.OnceValue(func() *zstd.Decoder {
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxDecoded))
		return d
	})
)

// Append appends a text as one compressed frame.
func Append(dst, text []byte) []byte { return encoder().EncodeAll(text, dst) }

// Decode decompresses frames. It returns an error if they are damaged or larger than 64 MiB
// decompressed.
func Decode(frames []byte) (string, error) {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	text, err := decoder().DecodeAll(frames, (*b)[:0])
	if err != nil {
		return "", err
	}
	if cap(text) <= maxBuffer {
		*b = text
	}
	return string(text), nil
}

// Size returns the decompressed size of a frame according to its header. ok is false if the header
// does not contain it.
func Size(frame []byte) (n int, ok bool) {
	var head zstd.Header
	if err := head.Decode(frame); err != nil || !head.HasFCS {
		return 0, false
	}
	return int(min(head.FrameContentSize, maxDecoded)), true
}

// NewReader returns a reader that decompresses the frames in r. It uses little memory. The caller
// must close it, which does not close r.
func NewReader(r io.Reader) (io.ReadCloser, error) {
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxDecoded))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}
