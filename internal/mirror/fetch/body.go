package fetch

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
)

// algorithms are the hashes that can be verified, by their names in ResourceSync without
// hyphens.
var algorithms = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha224": sha256.New224, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New,
}

// A Sum computes SHA-256 and the hashes that the source names.
type Sum struct {
	io.Writer
	sha256   hash.Hash
	expected []expectedHash
	size     int64
}

type expectedHash struct {
	name, hex string // from the source
	hash      hash.Hash
}

// NewSum returns a Sum that can verify hashes in the form of resourcesync.Change.Hash. It
// ignores unknown algorithms.
func NewSum(hashes string) *Sum {
	s := &Sum{sha256: sha256.New()}
	to := []io.Writer{s.sha256}
	for text := range strings.FieldsSeq(hashes) {
		name, value, _ := strings.Cut(text, ":")
		key := strings.ReplaceAll(strings.ToLower(name), "-", "")
		w := expectedHash{name: name, hex: strings.ToLower(value), hash: s.sha256}
		if key != "sha256" {
			newHash := algorithms[key]
			if newHash == nil {
				continue
			}
			w.hash = newHash()
			to = append(to, w.hash)
		}
		s.expected = append(s.expected, w)
	}
	s.Writer = io.MultiWriter(to...)
	return s
}

// Write adds bytes to the content. It never fails.
func (s *Sum) Write(b []byte) (int, error) {
	s.size += int64(len(b))
	return s.Writer.Write(b)
}

// reset forgets the content.
func (s *Sum) reset() {
	s.size = 0
	s.sha256.Reset()
	for _, w := range s.expected {
		w.hash.Reset()
	}
}

// Size returns the number of written bytes.
func (s *Sum) Size() int64 { return s.size }

// SHA256 returns the SHA-256 in lower-case hex.
func (s *Sum) SHA256() string { return hex.EncodeToString(s.sha256.Sum(nil)) }

// HasHash reports whether the source names a hash that can be verified.
func (s *Sum) HasHash() bool { return len(s.expected) > 0 }

// Check returns nil if the content has the length, unless that is nil, and all expected hashes.
func (s *Sum) Check(length *int64) error {
	if length != nil && *length != s.size {
		return fmt.Errorf("content: got %d bytes, want %d", s.size, *length)
	}
	for _, w := range s.expected {
		if got := hex.EncodeToString(w.hash.Sum(nil)); got != w.hex {
			return fmt.Errorf("content: got %s:%s, want %s:%.128s", w.name, got, w.name, w.hex)
		}
	}
	return nil
}

// A body is the received part of a content, in a file, with its Sum.
type body struct {
	file *os.File
	*Sum
}

// rehash computes the Sum of the bytes that the file has.
func (b *body) rehash() error {
	b.reset()
	if _, err := b.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.Copy(b.Sum, b.file)
	return err
}

// truncate empties the file and resets the Sum. The file may have bytes that the Sum does not
// have.
func (b *body) truncate() error {
	b.reset()
	if err := b.file.Truncate(0); err != nil {
		return err
	}
	_, err := b.file.Seek(0, io.SeekStart)
	return err
}

// A diskError is an error of the local disk, after which a retry does not help.
type diskError struct{ err error }

func (d *diskError) Error() string { return d.err.Error() }
func (d *diskError) Unwrap() error { return d.err }

// Write writes to the file and to the Sum.
func (b *body) Write(p []byte) (int, error) {
	n, err := b.file.Write(p)
	_, _ = b.Sum.Write(p[:n])
	if err != nil {
		err = &diskError{err}
	}
	return n, err
}
