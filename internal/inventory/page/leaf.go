package page

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/packed"
	"github.com/rshub/rshub/resourcesync"
)

// A row of a Leaf is a resource, stored as the difference from the previous row:
//
//	flags    uvarint, see below; its two lowest bits are the index of the ChangeType in changeTypes
//	loc      length of the prefix shared with the previous loc uvarint, the rest as a string
//	position varint: difference from the previous position
//	datetime varint: microseconds since the previous datetime, minus the difference of the positions
//	kind     unless sameKind: index uvarint; if it is new: type string, form of the hash (see kind)
//	lastmod  if hasLastmod: varint, seconds since the previous lastmod; if hasNanos: uvarint
//	length   if hasLength: varint
//	hash     the bytes of all parts
//	rest     if hasRest: string, a packed change with the remaining fields
//
// For the first row, all previous values are zero.
const (
	sameKind = 1 << (iota + 2)
	hasLastmod
	hasNanos
	hasLength
	hasRest
)

var changeTypes = [...]resourcesync.ChangeType{"", resourcesync.Created, resourcesync.Updated, resourcesync.Deleted}

// A kind is what many resources of a page have in common: the media type, and the form of the hash.
// A page numbers its kinds in the order of their first use.
//
// A hash consists of parts, each a text and a number of bytes that follow as lower-case hex: "md5:"
// and 16, " sha-256:" and 32. A hash without this form is one part without text and bytes, and the
// row has it as a string.
type kind struct {
	media string
	form  string // number of parts uvarint; for each, the text as a string, and the number of bytes uvarint
}

const (
	plainForm = "\x01\x00\x00"
	maxParts  = 0x7f // so that their number is one byte
	hexDigits = "0123456789abcdef"
)

// A leafEncoder appends the rows of one leaf.
type leafEncoder struct {
	loc      string
	position uint64
	micros   int64
	lastmod  int64
	kinds    []kind
	last     int // index of the previous row's kind; -1 before the first row

	form []byte // form of the current hash
	raw  []byte // bytes of the current hash
	rest []byte
}

func (c *leafEncoder) reset() {
	*c = leafEncoder{kinds: c.kinds[:0], last: -1, form: c.form, raw: c.raw, rest: c.rest}
}

func (c *leafEncoder) appendRow(dst []byte, e *feed.Entry) []byte {
	ch := &e.Change
	c.splitHash(ch.Hash)
	known := c.findKind(ch.Type)
	rest := resourcesync.Change{Datetime: ch.Datetime, Changefreq: ch.Changefreq, Encoding: ch.Encoding, Path: ch.Path, Links: ch.Links, Attrs: ch.Attrs}
	flags := rowFlags(ch, &rest)
	if known >= 0 && known == c.last {
		flags |= sameKind
	}
	dst = binary.AppendUvarint(dst, flags)
	dst = appendShared(dst, c.loc, ch.Loc)
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
	if string(c.form) == plainForm {
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

// rowFlags returns the flags of a row, without sameKind.
func rowFlags(c, rest *resourcesync.Change) (flags uint64) {
	for i, t := range changeTypes {
		if c.Change == t {
			flags = uint64(i)
		}
	}
	if !c.Lastmod.IsZero() {
		flags |= hasLastmod
		if c.Lastmod.Nanosecond() > 0 {
			flags |= hasNanos
		}
	}
	if c.Length != nil {
		flags |= hasLength
	}
	if !rest.Datetime.IsZero() || rest.Changefreq != "" || rest.Encoding != "" || rest.Path != "" || len(rest.Links) > 0 || len(rest.Attrs) > 0 {
		flags |= hasRest
	}
	return flags
}

// splitHash splits a hash into c.form and c.raw.
func (c *leafEncoder) splitHash(hash string) {
	c.form, c.raw = append(c.form[:0], 0), c.raw[:0]
	for hash != "" {
		end := 1 + strings.IndexByte(hash[1:], ' ') // a space starts the next part
		if end == 0 {
			end = len(hash)
		}
		if !c.addHashPart(hash[:end]) {
			c.form, c.raw = append(c.form[:0], plainForm...), c.raw[:0]
			return
		}
		hash = hash[end:]
	}
}

// addHashPart returns false if the text does not have the form of a part.
func (c *leafEncoder) addHashPart(text string) bool {
	colon := strings.IndexByte(text, ':')
	hex := text[colon+1:]
	if colon < 0 || len(hex) == 0 || len(hex)%2 != 0 || c.form[0] == maxParts {
		return false
	}
	for i := 0; i < len(hex); i += 2 {
		hi, lo := hexValues[hex[i]], hexValues[hex[i+1]]
		if hi|lo > 15 {
			return false
		}
		c.raw = append(c.raw, hi<<4|lo)
	}
	c.form[0]++
	c.form = packed.AppendString(c.form, text[:colon+1])
	c.form = binary.AppendUvarint(c.form, uint64(len(hex)/2))
	return true
}

// hexValues has the value of each lower-case hex digit, and 0xff for all other bytes.
var hexValues = func() (values [256]byte) {
	for i := range values {
		values[i] = 0xff
	}
	for i, c := range []byte(hexDigits) {
		values[c] = byte(i)
	}
	return values
}()

// findKind returns the index of the current kind, or -1 if it is new in the page.
func (c *leafEncoder) findKind(media string) int {
	same := func(k kind) bool { return k.media == media && k.form == string(c.form) }
	if c.last >= 0 && same(c.kinds[c.last]) {
		return c.last
	}
	return slices.IndexFunc(c.kinds, same)
}

// appendKind appends the index of a kind. If known is negative, it also appends the kind.
func (c *leafEncoder) appendKind(dst []byte, known int, media string) []byte {
	if c.last = known; known >= 0 {
		return binary.AppendUvarint(dst, uint64(known))
	}
	c.last = len(c.kinds)
	c.kinds = append(c.kinds, kind{media, string(c.form)})
	dst = binary.AppendUvarint(dst, uint64(c.last))
	dst = packed.AppendString(dst, media)
	return append(dst, c.form...)
}

// appendShared appends a string as its difference from the previous one.
func appendShared(dst []byte, previous, s string) []byte {
	shared := sharedPrefix(previous, s)
	return packed.AppendString(binary.AppendUvarint(dst, uint64(shared)), s[shared:])
}

// readShared reads the output of appendShared into previous. It returns false if the page is damaged.
func readShared(d *packed.Reader, previous []byte) ([]byte, bool) {
	shared, suffix := d.Number(), d.String()
	if d.Bad() || shared > uint64(len(previous)) {
		return previous, false
	}
	return append(previous[:shared], suffix...), true
}

// sharedPrefix returns the length of the common prefix of two strings.
func sharedPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// A Leaf is a page of resources with a valid checksum.
type Leaf struct {
	count int
	rows  string
}

// OpenLeaf verifies the checksum of a leaf.
func OpenLeaf(number uint64, b []byte) (Leaf, error) {
	count, rows, err := open(number, LeafForm, b)
	return Leaf{count, rows}, err
}

// Size returns the approximate memory of the leaf in bytes.
func (l Leaf) Size() int { return len(l.rows) }

// Find calls found for each loc in the leaf. locs must be ascending.
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
	d       *packed.Reader
	left    int  // number of rows left
	damaged bool // whether an invalid row was found
	kinds   []decodedKind

	// The current row.
	flags    uint64
	loc      []byte // overwritten by the next row
	position uint64
	micros   int64
	kind     int // index in kinds
	lastmod  int64
	nanos    uint64
	length   int64
	hash     string // bytes; the text if the kind is plain
	rest     string
}

type decodedKind struct {
	media string
	parts []hashPart
	bytes uint64 // of all parts
	plain bool   // whether the form is plainForm
}

type hashPart struct {
	text  string
	bytes uint64
}

// Read returns a Reader of the rows.
func (l Leaf) Read() *Reader { return &Reader{d: packed.NewReader(l.rows), left: l.count} }

// Next reads the next row. It returns false at the end and at damage: see Err.
func (r *Reader) Next() bool {
	if r.left == 0 || r.damaged {
		return false
	}
	r.left--
	r.damaged = !r.readRow() || r.d.Bad()
	return !r.damaged
}

func (r *Reader) readRow() (ok bool) {
	d := r.d
	r.flags = d.Number()
	if r.loc, ok = readShared(d, r.loc); !ok {
		return false
	}
	grown := d.Signed()
	r.position += uint64(grown)
	r.micros += d.Signed() + grown
	if r.flags&sameKind == 0 && !r.readKind() || r.kind >= len(r.kinds) {
		return false
	}
	if r.flags&hasLastmod != 0 {
		r.lastmod += d.Signed()
	}
	r.nanos, r.rest = 0, ""
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
	if r.flags&hasRest != 0 {
		r.rest = d.String()
	}
	return true
}

// readKind reads the index of a kind, and the kind if it is new.
func (r *Reader) readKind() bool {
	n := r.d.Number()
	if n < uint64(len(r.kinds)) {
		r.kind = int(n)
		return true
	}
	k := decodedKind{media: r.d.String()}
	count := r.d.Number()
	if n > uint64(len(r.kinds)) || count > maxParts {
		return false
	}
	for range count {
		p := hashPart{r.d.String(), r.d.Number()}
		if p.bytes > 1<<40 { // the sum of maxParts smaller numbers cannot overflow
			return false
		}
		k.parts = append(k.parts, p)
		k.bytes += p.bytes
	}
	k.plain = count == 1 && k.parts[0] == hashPart{}
	r.kind = len(r.kinds)
	r.kinds = append(r.kinds, k)
	return true
}

// Err returns the error of a damaged page. Call it after Next has returned false.
func (r *Reader) Err() error {
	if r.damaged || r.left == 0 && !r.d.Done() {
		return errRows
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

// decodeInto sets the entry of the row, except its loc, hash and length.
func (r *Reader) decodeInto(e *feed.Entry) {
	*e = feed.Entry{Cursor: feed.Cursor{Position: r.position, Micros: r.micros}}
	if r.rest != "" {
		rest := packed.NewReader(r.rest)
		rest.Change(&e.Change)
		r.damaged = r.damaged || !rest.Done()
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
	r.decodeInto(&e)
	e.Change.Loc = string(r.loc)
	e.Change.Hash = string(r.appendHash(nil))
	if r.flags&hasLength != 0 {
		e.Change.Length = new(r.length)
	}
	return e
}

// A Decoder decodes whole leaves, and reuses its memory.
type Decoder struct {
	text []byte // locs and hashes of all entries
	ends []int  // ends of each loc and each hash in text
}

// Decode appends the entries of a leaf to dst. Their strings are substrings of one text, which each
// of them keeps in memory.
func (d *Decoder) Decode(dst []feed.Entry, l Leaf) ([]feed.Entry, error) {
	first := len(dst)
	d.text, d.ends = d.text[:0], d.ends[:0]
	var lengths []int64
	r := l.Read()
	for r.Next() {
		dst = append(dst, feed.Entry{})
		e := &dst[len(dst)-1]
		r.decodeInto(e)
		if r.flags&hasLength != 0 {
			if len(lengths) == cap(lengths) {
				lengths = make([]int64, 0, r.left+1)
			}
			lengths = append(lengths, r.length)
			e.Change.Length = &lengths[len(lengths)-1]
		}
		d.text = append(d.text, r.loc...)
		d.ends = append(d.ends, len(d.text))
		d.text = r.appendHash(d.text)
		d.ends = append(d.ends, len(d.text))
	}
	if err := r.Err(); err != nil {
		return dst[:first], err
	}
	text, start := string(d.text), 0
	for i := range dst[first:] {
		c := &dst[first+i].Change
		loc, hash := d.ends[2*i], d.ends[2*i+1]
		c.Loc, c.Hash = text[start:loc], text[loc:hash]
		start = hash
	}
	return dst, nil
}
