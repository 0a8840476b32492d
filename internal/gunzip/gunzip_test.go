package gunzip

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func pack(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.String()
}

func unpack(in io.Reader) (string, error) {
	r, err := NewReader(in)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(r)
	if n, again := r.Read(make([]byte, 1)); n > 0 || again == nil || err != nil && again != err {
		return "", errors.New("another error at the second read")
	}
	return string(b), err
}

func TestReader(t *testing.T) {
	text := strings.Repeat("a line\n", 10_000)
	whole := pack(text)
	corrupt := []byte(whole)
	corrupt[len(corrupt)/2] ^= 0xff
	for _, tt := range []struct{ name, in, want, err string }{
		{"one member", whole, text, ""},
		{"two members", whole + pack("x"), text + "x", ""},
		{"empty members", pack("") + pack("x") + pack(""), "x", ""},
		{"zeros", whole + strings.Repeat("\x00", 512), text, ""},
		{"many zeros", whole + strings.Repeat("\x00", maxTrailer), text, ""},
		{"too many zeros", whole + strings.Repeat("\x00", maxTrailer+1), text, "more than 1048576 bytes after the end of the gzip data"},
		{"text after many zeros", whole + strings.Repeat("\x00", maxTrailer) + strings.Repeat("x", maxTrailer), text, "more than 1048576 bytes after the end of the gzip data"},
		{"newline", whole + "\n", text, "1 byte after the end of the gzip data"},
		{"text", whole + "<html>", text, "6 bytes after the end of the gzip data"},
		{"text after zeros", whole + "\x00\x00x", text, "3 bytes after the end of the gzip data"},
		{"much text", whole + strings.Repeat("x", 2*maxTrailer), text, "more than 1048576 bytes after the end of the gzip data"},
		{"half a header", whole + "\x1f\x8b\x08", text, "ends early"},
		{"other magic", whole + "\x1f\x8c\x08", text, "3 bytes after"},
		{"half", whole[:len(whole)-20], "", "ends early"},
		{"no checksum", whole[:len(whole)-8], text, "ends early"},
		{"wrong checksum", whole[:len(whole)-8] + "12345678", text, "damaged"},
		{"corrupt", string(corrupt), "", "damaged"},
		{"magic only", "\x1f\x8b", "", "ends early"},
		{"no gzip", "0123456789", "", "data is not gzip"},
		{"nothing", "", "", "ends early"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, in := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in)), iotest.DataErrReader(strings.NewReader(tt.in))} {
				got, err := unpack(in)
				e, ok := errors.AsType[*Error](err)
				if ok != (tt.err != "") || ok && (!strings.Contains(e.Rule, tt.err) || e.Damaged == strings.Contains(tt.err, "after")) || !ok && err != nil {
					t.Errorf("got error %+v, want %q", err, tt.err)
				}
				if tt.want != "" && got != tt.want {
					t.Errorf("got %d bytes, want %d", len(got), len(tt.want))
				}
			}
		})
	}
}

// An error of the underlying reader is not mistaken for a damaged gzip.
func TestReaderError(t *testing.T) {
	whole := pack("text") + pack("more")
	for _, lost := range []error{errors.New("connection lost"), io.ErrUnexpectedEOF} {
		for n := range len(whole) + 1 {
			if _, err := unpack(io.MultiReader(strings.NewReader(whole[:n]), iotest.ErrReader(lost))); err != lost {
				t.Errorf("after %d bytes: got %v, want %v", n, err, lost)
			}
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(pack("a")))
	f.Add([]byte(pack("a") + "\x00\x00"))
	f.Add([]byte(pack("a") + "x"))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := unpack(bytes.NewReader(in))
		slow, slowErr := unpack(iotest.OneByteReader(bytes.NewReader(in)))
		if got != slow || (err == nil) != (slowErr == nil) {
			t.Errorf("got %q, %v; byte by byte %q, %v", got, err, slow, slowErr)
		}
		z, headErr := gzip.NewReader(bytes.NewReader(in))
		if headErr != nil {
			return
		}
		if want, wantErr := io.ReadAll(z); wantErr == nil && (err != nil || got != string(want)) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	})
}
