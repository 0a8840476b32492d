package page

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/packed"
	"github.com/rshub/rshub/resourcesync"
)

// A row of a Leaf is a resource, stored as the difference from the row before:
//
//	flags    uvarint, see below; its two lowest bits are the index of the ChangeType in changeTypes
//	loc      bytes shared with the loc before uvarint, the others as a string
//	position varint: from the position before
//	datetime varint: microseconds from the datetime before, less what the position grew by
//	kind     unless sameKind: index uvarint; if it is new: type string, parts of the hash (see kind)
//	lastmod  if hasLastmod: varint, seconds from the lastmod before; if hasNanos: uvarint
//	length   if hasLength: varint
//	hash     the bytes of all parts
//	rest     if hasRest: string, a packed change with what is not above
//
// For the first row, all values before are zero.
const (
	sameKind = 1 << (iota + 2)
	hasLastmod
	hasNanos
	hasLength
	hasRest
)

var changeTypes = [...]resourcesync.ChangeType{"", resourcesync.Created, resourcesync.Updated, resourcesync.Deleted}

// A kind is what many resources of a page have in common: the media type, and the form
// of the hash. A page numbers its kinds in the order of their first use.
//
// A hash is made of parts, each a text and a number of bytes that follow as lower-case
// hex: "md5:" and 16, " sha-256:" and 32. A hash that is not of this form is one part
// without text and bytes, and the row has it as a string.
type kind struct {
	media string
	parts string // number of parts uvarint; of each the text as a string, and bytes uvarint
}

const plainHash = "\x01\x00\x00"

// A leafCoder appends the rows of one leaf.
type leafCoder struct {
	loc      string
	position uint64
	micros   int64
	lastmod  int64
	kinds    []kind
	last     int // the kind of the row before
	parts    []byte
	raw      []byte // the bytes of the hash
	rest     []byte
}

func (c *leafCoder) begin() {
	c.loc, c.position, c.micros, c.lastmod, c.kinds, c.last = "", 0, 0, 0, c.kinds[:0], -1
}

func (c *leafCoder) append(dst []byte, e *feed.Entry) []byte {
	ch := &e.Change
	var flags uint64
	for i, t := range changeTypes {
		if ch.Change == t {
			flags = uint64(i)
		}
	}
	known := c.split(ch)
	if known >= 0 && known == c.last {
		flags |= sameKind
	}
	if !ch.Lastmod.IsZero() {
		flags |= hasLastmod
		if ch.Lastmod.Nanosecond() > 0 {
			flags |= hasNanos
		}
	}
	if ch.Length != nil {
		flags |= hasLength
	}
	rest := resourcesync.Change{Datetime: ch.Datetime, Changefreq: ch.Changefreq, Encoding: ch.Encoding, Path: ch.Path, Links: ch.Links, Attrs: ch.Attrs}
	if !rest.Datetime.IsZero() || rest.Changefreq != "" || rest.Encoding != "" || rest.Path != "" || len(rest.Links) > 0 || len(rest.Attrs) > 0 {
		flags |= hasRest
	}
	dst = binary.AppendUvarint(dst, flags)
	shared := sharedPrefix(c.loc, ch.Loc)
	dst = binary.AppendUvarint(dst, uint64(shared))
	dst = packed.AppendString(dst, ch.Loc[shared:])
	grown := int64(e.Position - c.position)
	dst = binary.AppendVarint(dst, grown)
	dst = binary.AppendVarint(dst, e.Micros-c.micros-grown)
	if flags&sameKind == 0 {
		dst = c.appendKind(dst, known, ch.Type)
	}
	if flags&hasLastmod != 0 {
		seconds := ch.Lastmod.Unix()
		dst = binary.AppendVarint(dst, seconds-c.lastmod)
		c.lastmod = seconds
	}
	if flags&hasNanos != 0 {
		dst = binary.AppendUvarint(dst, uint64(ch.Lastmod.Nanosecond()))
	}
	if flags&hasLength != 0 {
		dst = binary.AppendVarint(dst, *ch.Length)
	}
	if string(c.parts) == plainHash {
		dst = packed.AppendString(dst, ch.Hash)
	} else {
		dst = append(dst, c.raw...)
	}
	if flags&hasRest != 0 {
		c.rest = packed.AppendChange(c.rest[:0], &rest)
		dst = binary.AppendUvarint(dst, uint64(len(c.rest)))
		dst = append(dst, c.rest...)
	}
	c.loc, c.position, c.micros = ch.Loc, e.Position, e.Micros
	return dst
}

// split divides the hash of a change into the form, c.parts, and the bytes, c.raw. It
// returns the number of the change's kind in the page, or -1 if the kind is new in the
// page.
func (c *leafCoder) split(ch *resourcesync.Change) int {
	c.parts, c.raw = append(c.parts[:0], 0), c.raw[:0]
	for start := 0; start < len(ch.Hash); {
		end := strings.IndexByte(ch.Hash[start+1:], ' ')
		if end < 0 {
			end = len(ch.Hash)
		} else {
			end += start + 1
		}
		if !c.part(ch.Hash[start:end]) {
			c.parts, c.raw = append(c.parts[:0], plainHash...), c.raw[:0]
			break
		}
		start = end
	}
	if c.last >= 0 && c.is(c.last, ch) {
		return c.last
	}
	for i := range c.kinds {
		if c.is(i, ch) {
			return i
		}
	}
	return -1
}

func (c *leafCoder) is(i int, ch *resourcesync.Change) bool {
	return c.kinds[i].media == ch.Type && c.kinds[i].parts == string(c.parts)
}

// part adds one part of a hash. It returns false if the text is not a part.
func (c *leafCoder) part(text string) bool {
	colon := strings.IndexByte(text, ':')
	hex := text[colon+1:]
	if colon < 0 || len(hex) == 0 || len(hex)%2 != 0 || c.parts[0] == 0x7f {
		return false
	}
	for i := 0; i < len(hex); i += 2 {
		hi, lo := digits[hex[i]], digits[hex[i+1]]
		if hi|lo > 15 {
			return false
		}
		c.raw = append(c.raw, hi<<4|lo)
	}
	c.parts[0]++
	c.parts = packed.AppendString(c.parts, text[:colon+1])
	c.parts = binary.AppendUvarint(c.parts, uint64(len(hex)/2))
	return true
}

// digits has the value of each lower-case hex digit, and 0xff for all other bytes.
var digits = func() (d [256]byte) {
	for i := range d {
		d[i] = 0xff
	}
	for i, c := range []byte(hexDigits) {
		d[c] = byte(i)
	}
	return d
}()

const hexDigits = "0123456789abcdef"

// appendKind appends the number of a kind. If the kind is new in the page, it also
// appends the kind.
func (c *leafCoder) appendKind(dst []byte, known int, media string) []byte {
	if known >= 0 {
		c.last = known
		return binary.AppendUvarint(dst, uint64(known))
	}
	c.last = len(c.kinds)
	c.kinds = append(c.kinds, kind{media, string(c.parts)})
	dst = binary.AppendUvarint(dst, uint64(c.last))
	dst = packed.AppendString(dst, media)
	return append(dst, c.parts...)
}

// sharedPrefix returns how many bytes two texts have in common from their beginning.
func sharedPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// A Leaf is a page of resources whose checksum was verified.
type Leaf struct {
	count int
	rows  string
}

// OpenLeaf verifies a leaf.
func OpenLeaf(number uint64, b []byte) (Leaf, error) {
	count, rows, err := open(number, LeafForm, b)
	return Leaf{count, rows}, err
}

// Size returns about how many bytes of memory the leaf takes.
func (l Leaf) Size() int { return len(l.rows) }

// Find calls found for each loc that the leaf holds. locs must be ascending.
func (l Leaf) Find(locs []string, found func(i int, e *feed.Entry)) error {
	i := 0
	r := l.Read()
	for i < len(locs) && r.Next() {
		for i < len(locs) && locs[i] < string(r.loc) {
			i++
		}
		for ; i < len(locs) && locs[i] == string(r.loc); i++ {
			e := r.Entry()
			found(i, &e)
		}
	}
	return r.Err()
}

// A Reader reads the rows of a leaf one by one.
type Reader struct {
	d     *packed.Reader
	left  int // rows
	kinds []readKind
	row
}

// A row is the row that a Reader has read last. The next row overwrites loc.
type row struct {
	flags    uint64
	loc      []byte
	position uint64
	micros   int64
	kind     int
	lastmod  int64
	nanos    uint64
	length   int64
	hash     string // its bytes; the text if the kind is of plainHash
	rest     string
}

type readKind struct {
	media string
	parts []hashPart
	bytes uint64 // of all parts
	plain bool
}

type hashPart struct {
	text  string
	bytes uint64
}

// Read returns a Reader of the rows.
func (l Leaf) Read() *Reader { return &Reader{d: packed.NewReader(l.rows), left: l.count} }

// Next reads the next row. It returns false at the end, and at damage: see Err.
func (r *Reader) Next() bool {
	if r.left == 0 || r.d.Bad() {
		return false
	}
	r.left--
	d := r.d
	r.flags = d.Number()
	shared := d.Number()
	suffix := d.String()
	if shared > uint64(len(r.loc)) {
		r.damaged()
		return false
	}
	r.loc = append(r.loc[:shared], suffix...)
	grown := d.Signed()
	r.position += uint64(grown)
	r.micros += d.Signed() + grown
	if r.flags&sameKind == 0 {
		r.readKind()
	}
	if r.kind >= len(r.kinds) {
		r.damaged()
		return false
	}
	if r.flags&hasLastmod != 0 {
		r.lastmod += d.Signed()
	}
	r.nanos = 0
	if r.flags&hasNanos != 0 {
		r.nanos = d.Number()
	}
	if r.flags&hasLength != 0 {
		r.length = d.Signed()
	}
	if k := &r.kinds[r.kind]; k.plain {
		r.hash = d.String()
	} else {
		r.hash = d.Bytes(k.bytes)
	}
	r.rest = ""
	if r.flags&hasRest != 0 {
		r.rest = d.String()
	}
	return !d.Bad()
}

// damaged makes the reader fail.
func (r *Reader) damaged() { r.d.Bytes(1 << 62) }

func (r *Reader) readKind() {
	n := r.d.Number()
	if n < uint64(len(r.kinds)) {
		r.kind = int(n)
		return
	}
	k := readKind{media: r.d.String()}
	count := r.d.Number()
	if n > uint64(len(r.kinds)) || count > 0x7f {
		r.damaged()
		return
	}
	for range count {
		p := hashPart{r.d.String(), r.d.Number()}
		k.parts = append(k.parts, p)
		if p.bytes > 1<<40 { // a sum of 0x7f smaller numbers cannot overflow
			r.damaged()
			return
		}
		k.bytes += p.bytes
	}
	k.plain = count == 1 && k.parts[0] == hashPart{}
	r.kind = len(r.kinds)
	r.kinds = append(r.kinds, k)
}

// Err returns what is wrong with the page. Call it after Next has returned
// false.
func (r *Reader) Err() error {
	if r.d.Bad() || r.left == 0 && !r.d.Done() {
		return fmt.Errorf("invalid rows")
	}
	return nil
}

// appendHash appends the text of the row's hash.
func (r *Reader) appendHash(dst []byte) []byte {
	k := &r.kinds[r.kind]
	if k.plain {
		return append(dst, r.hash...)
	}
	raw := r.hash
	for _, p := range k.parts {
		dst = append(dst, p.text...)
		for i := range int(p.bytes) {
			dst = append(dst, hexDigits[raw[i]>>4], hexDigits[raw[i]&15])
		}
		raw = raw[p.bytes:]
	}
	return dst
}

// fill sets the entry of the row, except its loc, hash and length.
func (r *Reader) fill(e *feed.Entry) {
	*e = feed.Entry{Cursor: feed.Cursor{Position: r.position, Micros: r.micros}}
	if r.rest != "" {
		rest := packed.NewReader(r.rest)
		if rest.Change(&e.Change); !rest.Done() {
			r.damaged()
		}
	}
	e.Change.Change = changeTypes[r.flags&3]
	e.Change.Type = r.kinds[r.kind].media
	if r.flags&hasLastmod != 0 {
		e.Change.Lastmod = time.Unix(r.lastmod, int64(r.nanos)).UTC()
	}
}

// Loc returns the loc of the row. It is valid until the next row.
func (r *Reader) Loc() []byte { return r.loc }

// Entry returns the entry of the row.
func (r *Reader) Entry() feed.Entry {
	var e feed.Entry
	r.fill(&e)
	e.Change.Loc = string(r.loc)
	e.Change.Hash = string(r.appendHash(nil))
	if r.flags&hasLength != 0 {
		length := r.length
		e.Change.Length = &length
	}
	return e
}

// A Decoder makes the entries of whole leaves, and reuses its memory.
type Decoder struct {
	text []byte
	ends []int
}

// Decode appends the entries of a leaf to dst. Their strings are parts of one text,
// which stays in memory as long as one of them.
func (s *Decoder) Decode(dst []feed.Entry, l Leaf) ([]feed.Entry, error) {
	first := len(dst)
	s.text, s.ends = s.text[:0], s.ends[:0]
	var lengths []int64
	r := l.Read()
	for r.Next() {
		dst = append(dst, feed.Entry{})
		e := &dst[len(dst)-1]
		r.fill(e)
		if r.flags&hasLength != 0 {
			if len(lengths) == cap(lengths) {
				lengths = make([]int64, 0, r.left+1)
			}
			lengths = append(lengths, r.length)
			e.Change.Length = &lengths[len(lengths)-1]
		}
		s.text = append(s.text, r.loc...)
		s.ends = append(s.ends, len(s.text))
		s.text = r.appendHash(s.text)
		s.ends = append(s.ends, len(s.text))
	}
	if err := r.Err(); err != nil {
		return dst[:first], err
	}
	text, from := string(s.text), 0
	for i := range dst[first:] {
		c := &dst[first+i].Change
		c.Loc = text[from:s.ends[2*i]]
		c.Hash = text[s.ends[2*i]:s.ends[2*i+1]]
		from = s.ends[2*i+1]
	}
	return dst, nil
}
