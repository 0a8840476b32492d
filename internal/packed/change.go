// Package packed encodes changes compactly, for the blocks of the change memory and the pages of
// inventories.
//
// The encoding has no checksum and no version: the packages that store it, such as changelog and
// internal/inventory/page, add them.
package packed

import (
	"encoding/binary"
	"time"

	"github.com/rshub/rshub/internal/slab"
	"github.com/rshub/rshub/resourcesync"
)

// The bits of the first number of an encoded change are set for the fields that follow. The
// two lowest bits are the index of its ChangeType in changeTypes.
const (
	hasDatetime = 1 << (iota + 2)
	hasLastmod
	hasChangefreq
	hasHash
	hasLength
	hasType
	hasEncoding
	hasPath
	hasLinks
	hasAttrs
	hasPri
	hasProfile
)

var changeTypes = [...]resourcesync.ChangeType{"", resourcesync.Created, resourcesync.Updated, resourcesync.Deleted}

// AppendChange appends an encoded change: the number with the bits of its fields, then loc, then
// those fields. A string is encoded as its length and its bytes.
func AppendChange(dst []byte, c *resourcesync.Change) []byte {
	var has uint64
	for i, t := range changeTypes {
		if c.Change == t {
			has = uint64(i)
		}
	}
	has |= bit(hasDatetime, !c.Datetime.IsZero()) | bit(hasLastmod, !c.Lastmod.IsZero()) |
		bit(hasChangefreq, c.Changefreq != "") | bit(hasHash, c.Hash != "") | bit(hasLength, c.Length != nil) |
		bit(hasType, c.Type != "") | bit(hasEncoding, c.Encoding != "") | bit(hasPath, c.Path != "") |
		bit(hasLinks, len(c.Links) > 0) | bit(hasAttrs, len(c.Attrs) > 0)
	dst = binary.AppendUvarint(dst, has)
	dst = AppendString(dst, c.Loc)
	dst = appendTime(dst, c.Datetime)
	dst = appendTime(dst, c.Lastmod)
	dst = appendOptional(dst, c.Changefreq)
	dst = appendOptional(dst, c.Hash)
	if c.Length != nil {
		dst = binary.AppendVarint(dst, *c.Length)
	}
	dst = appendOptional(dst, c.Type)
	dst = appendOptional(dst, c.Encoding)
	dst = appendOptional(dst, c.Path)
	if len(c.Links) > 0 {
		dst = binary.AppendUvarint(dst, uint64(len(c.Links)))
		for i := range c.Links {
			dst = appendLink(dst, &c.Links[i])
		}
	}
	return appendAttrs(dst, c.Attrs)
}

func appendLink(dst []byte, l *resourcesync.Link) []byte {
	has := bit(hasLastmod, !l.Modified.IsZero()) | bit(hasHash, l.Hash != "") | bit(hasLength, l.Length != nil) |
		bit(hasType, l.Type != "") | bit(hasEncoding, l.Encoding != "") | bit(hasPath, l.Path != "") |
		bit(hasAttrs, len(l.Attrs) > 0) | bit(hasPri, l.Pri != 0) | bit(hasProfile, l.Profile != "")
	dst = binary.AppendUvarint(dst, has)
	dst = AppendString(dst, l.Rel)
	dst = AppendString(dst, l.Href)
	dst = appendTime(dst, l.Modified)
	dst = appendOptional(dst, l.Hash)
	if l.Length != nil {
		dst = binary.AppendVarint(dst, *l.Length)
	}
	dst = appendOptional(dst, l.Type)
	dst = appendOptional(dst, l.Encoding)
	dst = appendOptional(dst, l.Path)
	if l.Pri != 0 {
		dst = binary.AppendUvarint(dst, uint64(l.Pri))
	}
	dst = appendOptional(dst, l.Profile)
	return appendAttrs(dst, l.Attrs)
}

func appendAttrs(dst []byte, attrs []resourcesync.Attr) []byte {
	if len(attrs) == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(len(attrs)))
	for _, a := range attrs {
		dst = AppendString(dst, a.Namespace)
		dst = AppendString(dst, a.Name)
		dst = AppendString(dst, a.Value)
	}
	return dst
}

func bit(b uint64, set bool) uint64 {
	if set {
		return b
	}
	return 0
}

// AppendString appends the length of a string and its bytes.
func AppendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendOptional(dst []byte, s string) []byte {
	if s == "" {
		return dst
	}
	return AppendString(dst, s)
}

func appendTime(dst []byte, t time.Time) []byte {
	if t.IsZero() {
		return dst
	}
	dst = binary.AppendVarint(dst, t.Unix())
	return binary.AppendUvarint(dst, uint64(t.Nanosecond()))
}

// A Reader decodes values that the functions of this package and of encoding/binary appended, in
// the same order. After an invalid value, all further values are zero. Call Done after the last
// value to detect that.
type Reader struct {
	text    string
	off     int // number of bytes of text that were read
	bad     bool
	lengths slab.Slab[int64]
	links   slab.Slab[resourcesync.Link]
}

// NewReader returns a Reader of text. Every string that the Reader returns is a substring of text
// and keeps all of it in memory.
func NewReader(text string) *Reader { return &Reader{text: text} }

// Done reports whether all of the text was read and was valid.
func (d *Reader) Done() bool { return !d.bad && d.off == len(d.text) }

// Bad reports whether an invalid value was read.
func (d *Reader) Bad() bool { return d.bad }

// Number reads a uvarint.
func (d *Reader) Number() uint64 {
	var v uint64
	for shift := 0; shift < 64 && d.off < len(d.text); shift += 7 {
		c := d.text[d.off]
		d.off++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	d.bad = true
	return 0
}

// Signed reads a varint.
func (d *Reader) Signed() int64 {
	u := d.Number()
	return int64(u>>1) ^ -int64(u&1)
}

// String reads a string: its length, and its bytes.
func (d *Reader) String() string {
	return d.Bytes(d.Number())
}

// Bytes reads n bytes.
func (d *Reader) Bytes(n uint64) string {
	if d.bad || n > uint64(len(d.text)-d.off) {
		d.bad = true
		return ""
	}
	s := d.text[d.off : d.off+int(n)]
	d.off += int(n)
	return s
}

func (d *Reader) optional(has, b uint64) string {
	if has&b == 0 {
		return ""
	}
	return d.String()
}

func (d *Reader) time(has, b uint64) time.Time {
	if has&b == 0 {
		return time.Time{}
	}
	sec := d.Signed()
	return time.Unix(sec, int64(d.Number())).UTC()
}

func (d *Reader) length(has uint64) *int64 {
	if has&hasLength == 0 {
		return nil
	}
	return d.lengths.New(d.Signed())
}

// Change reads a change that AppendChange appended.
func (d *Reader) Change(c *resourcesync.Change) {
	has := d.Number()
	c.Change = changeTypes[has&3]
	c.Loc = d.String()
	c.Datetime = d.time(has, hasDatetime)
	c.Lastmod = d.time(has, hasLastmod)
	c.Changefreq = d.optional(has, hasChangefreq)
	c.Hash = d.optional(has, hasHash)
	c.Length = d.length(has)
	c.Type = d.optional(has, hasType)
	c.Encoding = d.optional(has, hasEncoding)
	c.Path = d.optional(has, hasPath)
	if has&hasLinks != 0 {
		c.Links = d.links.Make(d.count())
		for i := range c.Links {
			d.link(&c.Links[i])
		}
	}
	c.Attrs = d.attrs(has)
}

func (d *Reader) link(l *resourcesync.Link) {
	has := d.Number()
	l.Rel, l.Href = d.String(), d.String()
	l.Modified = d.time(has, hasLastmod)
	l.Hash = d.optional(has, hasHash)
	l.Length = d.length(has)
	l.Type = d.optional(has, hasType)
	l.Encoding = d.optional(has, hasEncoding)
	l.Path = d.optional(has, hasPath)
	if has&hasPri != 0 {
		l.Pri = int(d.Number())
	}
	l.Profile = d.optional(has, hasProfile)
	l.Attrs = d.attrs(has)
}

func (d *Reader) attrs(has uint64) []resourcesync.Attr {
	if has&hasAttrs == 0 {
		return nil
	}
	attrs := make([]resourcesync.Attr, d.count())
	for i := range attrs {
		attrs[i] = resourcesync.Attr{Namespace: d.String(), Name: d.String(), Value: d.String()}
	}
	if len(attrs) == 0 {
		return nil
	}
	return attrs
}

// count reads the number of links or attributes that follow. Each takes at least three bytes. An
// invalid count must not make the caller allocate more memory than the text could need, so count
// rejects larger ones.
func (d *Reader) count() int {
	n := d.Number()
	if n > uint64(len(d.text)-d.off)/3 {
		d.bad = true
		return 0
	}
	return int(n)
}
