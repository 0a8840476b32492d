// Package digest computes digests of many resources, which are equal if two ends have the same.
//
// Each resource has an element, a hash of its loc and its version. A Tally has the sums of the
// elements, so the tallies of neighboring ranges can be added and subtracted. docs/audit.md defines
// the digest for other implementations. Package audit uses it to find differences.
package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// By selects the version of resources that a digest covers.
type By string

const (
	// ByPosition is the position of the newest change, in decimal. Equal digests prove that every
	// change was applied.
	ByPosition By = "position"

	// ByContent is the Version of the newest change. Equal digests prove that two ends are equal, even
	// if one of them was made without the log.
	ByContent By = "content"
)

// A Sum is the sum of elements, as a little-endian integer of 256 bits modulo 2^256.
type Sum [32]byte

// Add adds an element or another sum.
func (s *Sum) Add(e *Sum) {
	var carry uint64
	for i := 0; i < 32; i += 8 {
		var v uint64
		v, carry = bits.Add64(binary.LittleEndian.Uint64(s[i:]), binary.LittleEndian.Uint64(e[i:]), carry)
		binary.LittleEndian.PutUint64(s[i:], v)
	}
}

// Sub subtracts an element or another sum.
func (s *Sum) Sub(e *Sum) {
	var borrow uint64
	for i := 0; i < 32; i += 8 {
		var v uint64
		v, borrow = bits.Sub64(binary.LittleEndian.Uint64(s[i:]), binary.LittleEndian.Uint64(e[i:]), borrow)
		binary.LittleEndian.PutUint64(s[i:], v)
	}
}

// Element returns e = SHA-256(loc, 0x0A, version).
func Element(loc, version string) Sum {
	b := make([]byte, 0, 256)
	b = append(append(append(b, loc...), '\n'), version...)
	return sha256.Sum256(b)
}

// A Digest is the digest of a range of resources: 16 bytes.
type Digest [16]byte

// Make returns the digest of a sum of count elements: the first 16 bytes of SHA-256(sum, then count
// as a varint: base 128, most significant digit first, high bit set on all bytes but the last).
func Make(sum *Sum, count uint64) Digest {
	b := append(make([]byte, 0, 42), sum[:]...)
	for shift := (bits.Len64(count|1) - 1) / 7 * 7; shift > 0; shift -= 7 {
		b = append(b, byte(count>>shift)|0x80)
	}
	h := sha256.Sum256(append(b, byte(count)&0x7f))
	return Digest(h[:16])
}

// String returns the digest in lower-case hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Parse reads the text form of a digest.
func Parse(s string) (d Digest, err error) {
	if _, err := hex.Decode(d[:], []byte(s[:min(len(s), 32)])); err != nil || len(s) != 32 || strings.ToLower(s) != s {
		return d, resourcesync.Invalidf("invalid digest %q; want 32 lower-case hex digits", resourcesync.Shorten(s))
	}
	return d, nil
}

// MarshalText returns the sum in hex.
func (s Sum) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(s[:])), nil }

// UnmarshalText parses the output of MarshalText.
func (s *Sum) UnmarshalText(b []byte) error {
	if len(b) != 2*len(s) {
		return fmt.Errorf("sum: got %d hex digits, want %d", len(b), 2*len(s))
	}
	_, err := hex.Decode(s[:], b)
	return err
}

// A Tally has the number and the sums of a range of resources.
type Tally struct {
	Count    uint64 `json:"count"`
	Weak     uint64 `json:"weak"`     // number of resources with a weak Version
	Position Sum    `json:"position"` // sum of the elements by position
	Content  Sum    `json:"content"`  // sum of the elements by content
}

// Add adds another tally.
func (t *Tally) Add(o *Tally) {
	t.Count, t.Weak = t.Count+o.Count, t.Weak+o.Weak
	t.Position.Add(&o.Position)
	t.Content.Add(&o.Content)
}

// Sub subtracts another tally.
func (t *Tally) Sub(o *Tally) {
	t.Count, t.Weak = t.Count-o.Count, t.Weak-o.Weak
	t.Position.Sub(&o.Position)
	t.Content.Sub(&o.Content)
}

// Digest returns the digest of the tally.
func (t *Tally) Digest(by By) Digest {
	if by == ByContent {
		return Make(&t.Content, t.Count)
	}
	return Make(&t.Position, t.Count)
}

// TallyOf returns the tally of one resource by its newest change.
func TallyOf(e *feed.Entry) Tally {
	var space [512]byte
	h := Hasher{space[:0]}
	return h.Tally(e)
}

// A Hasher computes the tallies of resources one by one, and reuses its memory.
type Hasher struct{ text []byte }

// Tally returns the tally of one resource by its newest change.
func (h *Hasher) Tally(e *feed.Entry) Tally {
	h.text = append(append(h.text[:0], e.Change.Loc...), '\n')
	loc := len(h.text)
	h.text = strconv.AppendUint(h.text, e.Position, 10)
	t := Tally{Count: 1, Position: sha256.Sum256(h.text)}
	text, weak := appendVersion(h.text[:loc], &e.Change)
	t.Content, h.text = sha256.Sum256(text), text
	if weak {
		t.Weak = 1
	}
	return t
}

// Version describes the content of a resource as one text: "sha-256:hex" if the change has such a
// hash; otherwise the bytewise smallest "alg:hex"; otherwise "lastmod;length", which is weak: lastmod
// in UTC, with Z and without trailing zeros of the fraction, length in decimal, and an absent value as
// an empty string. Algorithm and hex are in lower case.
func Version(c *resourcesync.Change) (version string, weak bool) {
	b, weak := appendVersion(nil, c)
	return string(b), weak
}

// plainSHA256 returns the first sha-256 of a hash in the usual form, lower case with single spaces. For
// another form it returns "". It is faster than to split the hash.
func plainSHA256(hash string) string {
	start := 0
	for i := range len(hash) {
		switch c := hash[i]; {
		case c == ' ':
			if strings.HasPrefix(hash[start:i], "sha-256:") {
				return hash[start:i]
			}
			start = i + 1
		case c < ' ' || c >= 'A' && c <= 'Z' || c >= 0x7f:
			return ""
		}
	}
	if strings.HasPrefix(hash[start:], "sha-256:") {
		return hash[start:]
	}
	return ""
}

func appendVersion(b []byte, c *resourcesync.Change) (version []byte, weak bool) {
	if h := plainSHA256(c.Hash); h != "" {
		return append(b, h...), false
	}
	best := ""
	for h := range strings.FieldsSeq(c.Hash) {
		h = strings.ToLower(h)
		if strings.HasPrefix(h, "sha-256:") {
			return append(b, h...), false
		}
		if best == "" || h < best {
			best = h
		}
	}
	if best != "" {
		return append(b, best...), false
	}
	if !c.Lastmod.IsZero() {
		b = c.Lastmod.UTC().AppendFormat(b, "2006-01-02T15:04:05.999999999Z")
	}
	b = append(b, ';')
	if c.Length != nil {
		b = strconv.AppendInt(b, *c.Length, 10)
	}
	return b, true
}
