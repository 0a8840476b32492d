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

// A Sum computes the hashes of a content: SHA-256, and those that the source
// names.
type Sum struct {
	io.Writer
	sha256 hash.Hash
	wanted []wanted
	size   int64
}

type wanted struct {
	name, hex string // from the source
	hash      hash.Hash
}

// NewSum returns a Sum that can verify hashes in the form of resourcesync.Change.Hash. It
// leaves out algorithms that it does not know.
func NewSum(hashes string) *Sum {
	s := &Sum{sha256: sha256.New()}
	to := []io.Writer{s.sha256}
	for text := range strings.FieldsSeq(hashes) {
		name, value, _ := strings.Cut(text, ":")
		key := strings.ReplaceAll(strings.ToLower(name), "-", "")
		w := wanted{name: name, hex: strings.ToLower(value), hash: s.sha256}
		if key != "sha256" {
			make := algorithms[key]
			if make == nil {
				continue
			}
			w.hash = make()
			to = append(to, w.hash)
		}
		s.wanted = append(s.wanted, w)
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
	for _, w := range s.wanted {
		w.hash.Reset()
	}
}

// Size returns how many bytes were written.
func (s *Sum) Size() int64 { return s.size }

// SHA256 returns the SHA-256 in lower-case hex.
func (s *Sum) SHA256() string { return hex.EncodeToString(s.sha256.Sum(nil)) }

// Verified reports whether the source names a hash that could be verified.
func (s *Sum) Verified() bool { return len(s.wanted) > 0 }

// Check returns nil if the content has the length (unless that is nil) and the hashes.
// The error says both what the content is and what it should be.
func (s *Sum) Check(length *int64) error {
	if length != nil && *length != s.size {
		return fmt.Errorf("the content has %d bytes, and the source says %d", s.size, *length)
	}
	for _, w := range s.wanted {
		if got := hex.EncodeToString(w.hash.Sum(nil)); got != w.hex {
			return fmt.Errorf("the content has %s:%s, and the source says %s:%.128s", w.name, got, w.name, w.hex)
		}
	}
	return nil
}

// A body is the part of a content that was received so far, in a file, with its
// Sum.
type body struct {
	file *os.File
	*Sum
}

// load adds the present bytes of the file to the Sum.
func (b *body) load() error {
	b.reset()
	if _, err := b.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.Copy(b.Sum, b.file)
	return err
}

// clear drops everything, to begin again. The file may have bytes that the Sum does not have.
func (b *body) clear() error {
	b.reset()
	if err := b.file.Truncate(0); err != nil {
		return err
	}
	_, err := b.file.Seek(0, io.SeekStart)
	return err
}

// diskError is an error of the local disk. Trying again does not help.
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
