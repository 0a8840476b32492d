// Package zst compresses and decompresses texts with Zstandard (RFC 8878), with bounds on memory.
//
// It wraps one library for all of rshub. Formats that use it are in package feed and the change
// memory.
package zst

import (
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// maxDecoded bounds what Decode returns, in bytes.
const maxDecoded = 64 << 20

// maxBuffer bounds the buffers that are used again.
const maxBuffer = 1 << 20

// buffers are what texts are decoded into before they are copied. Without them each text
// would take twice its memory.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// The encoder and the decoder keep no state between calls. They keep scratch space, so all
// of the process share them. Their options are constant and valid, so the errors are dropped.
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

// Append appends a text as one frame.
func Append(dst, text []byte) []byte { return encoder().EncodeAll(text, dst) }

// Decode returns the text of frames. It refuses what is damaged, and texts of more than 64 MiB.
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

// Size returns how many bytes the text of a frame has, as the head of the frame says.
func Size(frame []byte) (n int, ok bool) {
	var head zstd.Header
	if err := head.Decode(frame); err != nil || !head.HasFCS {
		return 0, false
	}
	return int(min(head.FrameContentSize, maxDecoded)), true
}

// NewReader returns a reader of the text of the frames in r. It needs little memory. The
// caller closes it, which does not close r.
func NewReader(r io.Reader) (io.ReadCloser, error) {
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxDecoded))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}
