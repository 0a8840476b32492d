package compressed

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// The content codings of this package (RFC 9110 section 8.4.1).
const (
	Zstd = "zstd" // RFC 8878
	DCZ  = "dcz"  // with the Dictionary, RFC 9842 section 5
)

// magic is what a stream of the coding dcz begins with, before the digest of its
// dictionary. Both are a frame that decoders skip.
const magic = "\x5e\x2a\x4d\x18\x20\x00\x00\x00"

// Head returns what a stream of a coding begins with.
func Head(coding string) []byte {
	if coding != DCZ {
		return nil
	}
	d := Digest()
	return append([]byte(magic), d[:]...)
}

// Available returns the value of the header Available-Dictionary of a client that has the
// Dictionary.
func Available() string {
	d := Digest()
	return ":" + base64.StdEncoding.EncodeToString(d[:]) + ":"
}

// HasDictionary reports whether a value of the header Available-Dictionary names the
// Dictionary. The header is an item that is a byte sequence (RFC 8941 section 3.3.5). Its
// parameters do not count. A value that cannot be read names nothing.
func HasDictionary(value string) bool {
	text, ok := strings.CutPrefix(strings.Trim(value, " "), ":")
	text, parameters, ended := strings.Cut(text, ":")
	if !ok || !ended || parameters != "" && !strings.HasPrefix(strings.TrimLeft(parameters, " "), ";") || len(text) > base64.StdEncoding.EncodedLen(sha256.Size) {
		return false
	}
	got, err := base64.StdEncoding.DecodeString(text)
	if err != nil { // some leave out the padding, and a recipient should not refuse that
		got, err = base64.RawStdEncoding.DecodeString(text)
	}
	d := Digest()
	return err == nil && bytes.Equal(got, d[:])
}

// NewReader returns what reads the text of a body with a content coding. Without a coding
// that is the body itself. It takes no more memory than a window of 8 MiB, however long the
// text is, so the caller bounds the text. An error of the body's own is not wrapped away.
// The caller must call Close, which does not close the body.
func NewReader(body io.Reader, coding string) (io.ReadCloser, error) {
	switch coding {
	case "", "identity":
		return io.NopCloser(body), nil
	case Zstd:
	case DCZ:
		head, want := make([]byte, len(magic)+sha256.Size), Head(DCZ)
		if _, err := io.ReadFull(body, head); err != nil {
			return nil, fmt.Errorf("the beginning of a body in the coding %s: %w", DCZ, err)
		}
		if !bytes.Equal(head, want) {
			return nil, fmt.Errorf("a body in the coding %s needs another dictionary than %s", DCZ, Name())
		}
	default:
		return nil, fmt.Errorf("a body has the coding %.40q, which nobody asked for", coding)
	}
	d := readers.Get().(*zstd.Decoder)
	if err := d.Reset(body); err != nil {
		return nil, fmt.Errorf("a compressed body: %w", err)
	}
	return &reader{decoder: d}, nil
}

// A reader reads a compressed body.
type reader struct{ decoder *zstd.Decoder }

func (r *reader) Read(p []byte) (int, error) { return r.decoder.Read(p) }

func (r *reader) Close() error {
	if r.decoder != nil {
		_ = r.decoder.Reset(nil) // forgets the body, and does not fail
		readers.Put(r.decoder)
		r.decoder = nil
	}
	return nil
}
