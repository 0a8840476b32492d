// Package compressed makes what a hub sends smaller, with Zstandard (RFC 8878), for the
// clients that ask for it. It knows the dictionary that makes short messages small, and it
// reads what it has written.
package compressed

import (
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// withDictionary bounds the text that is compressed with the dictionary, in bytes. It
	// is about 25 changes. For a longer text the dictionary costs a quarter more CPU, and
	// saves less than a tenth.
	withDictionary = 8 << 10

	// window is how far back an encoder looks, in bytes. A change looks like the changes
	// just before it, so more memory finds no more.
	window = 64 << 10

	// maxWindow is the longest window that a reader accepts, in bytes. Every reader of the
	// content coding zstd has to accept 8 MiB (RFC 9659).
	maxWindow = 8 << 20
)

// MaxMessage bounds what Open makes of a message, in bytes. The hub's messages are
// shorter than 1 MB, but for a change that is longer alone.
const MaxMessage = 64 << 20

// Append appends text as one complete frame, which any decoder of Zstandard reads.
func Append(dst, text []byte) []byte { return encoder().EncodeAll(text, dst) }

// AppendWithDictionary appends text as one complete frame. Only a decoder with the
// Dictionary reads it. A long text is compressed without the dictionary, and the same
// decoder reads that, too.
func AppendWithDictionary(dst, text []byte) []byte {
	if len(text) > withDictionary {
		return Append(dst, text)
	}
	return dictionaryEncoder().EncodeAll(text, dst)
}

// Open appends to dst the text of a message: of one frame that says how long its text is,
// with or without the Dictionary. It returns an error if the message is damaged or cut off,
// if anything follows the frame, or if the text is longer than MaxMessage. It takes memory
// for no more text than the frame says.
func Open(dst, message []byte) ([]byte, error) {
	var head zstd.Header
	if err := head.Decode(message); err != nil {
		return dst, fmt.Errorf("a compressed message: %w", err)
	}
	if head.Skippable || !head.HasFCS || head.FrameContentSize > MaxMessage {
		return dst, fmt.Errorf("a compressed message does not say how long its text is, or more than %d bytes", MaxMessage)
	}
	end := len(dst) + int(head.FrameContentSize)
	text, err := decoder().DecodeAll(message, slices.Grow(dst, end-len(dst))[:len(dst):end])
	if err == nil && len(text) != end {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return dst, fmt.Errorf("a compressed message: %w", err)
	}
	return text, nil
}

// A Writer compresses a stream into one frame. Many clients stop after the first frame of
// an answer over HTTP, and do not say so.
type Writer struct {
	encoder *zstd.Encoder
	pool    *sync.Pool
}

// NewWriter returns a Writer to w. If dictionary is true, only a reader with the
// Dictionary can read what it writes. The caller must call Close or Drop.
func NewWriter(w io.Writer, dictionary bool) *Writer {
	z := &Writer{pool: &writers}
	if dictionary {
		z.pool = &dictionaryWriters
	}
	z.encoder = z.pool.Get().(*zstd.Encoder)
	z.encoder.Reset(w)
	return z
}

// Write compresses p, and writes now or later.
func (z *Writer) Write(p []byte) (int, error) { return z.encoder.Write(p) }

// Close writes the rest. It is the last call.
func (z *Writer) Close() error {
	err := z.encoder.Close()
	z.Drop()
	return err
}

// Drop writes nothing more, so that a reader notices that the end is missing. It is the last
// call.
func (z *Writer) Drop() {
	z.encoder.Reset(nil)
	z.pool.Put(z.encoder)
	z.encoder = nil
}

// The encoders and the decoders keep no state between calls. They keep scratch space, so
// all of the process share them. Their options are constant and valid, so the errors are
// dropped. None is made before somebody asks for a compressed form.
var (
	encoder           = sync.OnceValue(func() *zstd.Encoder { return newEncoder(zstd.WithSingleSegment(true)) })
	dictionaryEncoder = sync.OnceValue(func() *zstd.Encoder { return newEncoder(zstd.WithSingleSegment(true), useDictionary()) })

	decoder = sync.OnceValue(func() *zstd.Decoder {
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(MaxMessage), zstd.WithDecoderMaxWindow(maxWindow), readDictionary())
		return d
	})

	writers           = sync.Pool{New: func() any { return newEncoder(zstd.WithEncoderConcurrency(1)) }}
	dictionaryWriters = sync.Pool{New: func() any { return newEncoder(zstd.WithEncoderConcurrency(1), useDictionary()) }}
	readers           = sync.Pool{New: func() any {
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), readDictionary())
		return d
	}}
)

// newEncoder returns an encoder of the fastest level. The higher levels took twice to
// seven times as long for real changes, and saved nothing.
func newEncoder(o ...zstd.EOption) *zstd.Encoder {
	o = append(o, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
	e, _ := zstd.NewWriter(nil, o...)
	return e
}
