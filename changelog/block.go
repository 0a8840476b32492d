package changelog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/rshub/rshub/resourcesync"
)

// A Block is the unit of storage and of announcing: up to MaxBlockEntries
// consecutive changes encoded together, compressed from four up, with a
// checksum. It holds neither positions nor absolute datetimes, so it is encoded
// before its place in the log is known, and its bytes are the same everywhere.
//
//	form     1 byte: 1 plain, 2 zstd
//	count    uvarint
//	runs     uvarint, then per run: entries uvarint, gap uvarint
//	body     the entries, see appendChange
//	checksum CRC-32C of all before it, 4 bytes little endian
//
// Entries of a run follow each other by one microsecond. gap is the distance in
// microseconds from the run before to the first entry of this one, 0 for the
// first run. So all datetimes follow from the last one, which is in the key.
type Block []byte

const (
	plainForm byte = 1
	zstdForm  byte = 2

	compressFrom = 4        // entries; below, zstd saves nothing
	maxDecoded   = 64 << 20 // bytes; a lone entry is far smaller
)

// A CutBlock is a block with what its key needs.
type CutBlock struct {
	Block Block
	Count int
}

// CutBlocks encodes changes as the blocks that hold them from position first
// on: none crosses the boundary of a list of listSize entries, nor exceeds
// MaxBlockEntries and MaxBlockBytes.
func CutBlocks(changes []resourcesync.Change, first uint64, listSize int) []CutBlock {
	var blocks []CutBlock
	k := uint64(listSize)
	body := make([]byte, 0, 4096)
	for len(changes) > 0 {
		room := min(MaxBlockEntries, int(k-(first-1)%k), len(changes))
		body = body[:0]
		n := 0
		for ; n < room; n++ {
			before := len(body)
			body = appendChange(body, &changes[n])
			if n > 0 && len(body) > MaxBlockBytes {
				body = body[:before]
				break
			}
		}
		blocks = append(blocks, CutBlock{seal(body, n), n})
		first += uint64(n)
		changes = changes[n:]
	}
	return blocks
}

// MergeBlock encodes consecutive entries, from one publish or from several, as
// one block. That they fit into one is up to the caller: at most
// MaxBlockEntries, of MaxBlockBytes (see Block.Size), and of one list.
func MergeBlock(entries []Entry) Block {
	b, _ := encodeEntries(entries, math.MaxInt)
	return b
}

// FillBlock encodes the first of consecutive entries as one block, as many as
// fit: it does not cross the boundary of a list of listSize entries, nor exceeds
// MaxBlockEntries and MaxBlockBytes. It returns how many.
func FillBlock(entries []Entry, listSize int) (b Block, n int) {
	k := uint64(listSize)
	room := min(MaxBlockEntries, int(k-(entries[0].Position-1)%k), len(entries))
	return encodeEntries(entries[:room], MaxBlockBytes)
}

// encodeEntries encodes entries as one block, as many as have maxBytes, but at
// least one.
func encodeEntries(entries []Entry, maxBytes int) (b Block, n int) {
	var runs []run
	body := make([]byte, 0, 4096)
	for ; n < len(entries); n++ {
		before := len(body)
		body = appendChange(body, &entries[n].Change)
		if n > 0 && len(body) > maxBytes {
			body = body[:before]
			break
		}
		gap := int64(0)
		if n > 0 {
			gap = entries[n].Micros - entries[n-1].Micros
		}
		if n > 0 && gap == 1 {
			runs[len(runs)-1].count++
		} else {
			runs = append(runs, run{1, gap})
		}
	}
	return seal(body, n, runs...), n
}

// A run is a run of entries in a block, see Block.
type run struct {
	count int
	gap   int64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The codecs hold no state between calls, only scratch space that is worth
// sharing. Their options cannot fail.
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

// seal makes the block of count entries, which are one run if it is not told.
func seal(body []byte, count int, runs ...run) Block {
	if len(runs) == 0 {
		runs = []run{{count, 0}}
	}
	b := make([]byte, 0, len(body)+16+4*len(runs))
	form := plainForm
	if count >= compressFrom {
		form = zstdForm
	}
	b = append(b, form)
	b = binary.AppendUvarint(b, uint64(count))
	b = binary.AppendUvarint(b, uint64(len(runs)))
	for _, r := range runs {
		b = binary.AppendUvarint(b, uint64(r.count))
		b = binary.AppendUvarint(b, uint64(r.gap))
	}
	if form == zstdForm {
		b = encoder().EncodeAll(body, b)
	} else {
		b = append(b, body...)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Entries decodes the block whose last entry is last. An error wraps ErrCorrupt
// and says what is wrong; the caller names the block.
func (b Block) Entries(last Cursor) ([]Entry, error) {
	if len(b) < 4 || crc32.Checksum(b[:len(b)-4], castagnoli) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return nil, fmt.Errorf("%w: checksum of a block", ErrCorrupt)
	}
	d := blockDecoder{b: b[:len(b)-4]}
	form := d.byte()
	count := d.uvarint()
	if count == 0 || count > 64*MaxBlockEntries || count > last.Position {
		return nil, fmt.Errorf("%w: block of %d entries", ErrCorrupt, count)
	}
	entries := make([]Entry, count)
	if err := d.places(entries, last); err != nil {
		return nil, err
	}
	switch form {
	case plainForm:
	case zstdForm:
		body, err := decoder().DecodeAll(d.b, nil)
		if err != nil {
			return nil, fmt.Errorf("%w: decompress a block: %w", ErrCorrupt, err)
		}
		d.b = body
	default:
		return nil, fmt.Errorf("%w: block of unknown form %d", ErrCorrupt, form)
	}
	d.text = string(d.b) // one copy; every string of the changes is a part of it
	d.b, d.off = nil, 0
	for i := range entries {
		d.change(&entries[i].Change)
	}
	if d.bad || d.off != len(d.text) {
		return nil, fmt.Errorf("%w: entries of a block", ErrCorrupt)
	}
	return entries, nil
}

// Size returns how many bytes the entries have as they were encoded, before
// compression. It looks at the head only and trusts it.
func (b Block) Size() int {
	if len(b) == 0 || b[0] != zstdForm {
		return len(b)
	}
	d := blockDecoder{b: b[1:]}
	d.uvarint() // how many entries
	for range d.uvarint() {
		if d.uvarint(); d.bad {
			break
		}
		d.uvarint()
	}
	var head zstd.Header
	if err := head.Decode(d.b); err != nil || !head.HasFCS {
		return len(b)
	}
	return int(min(head.FrameContentSize, maxDecoded))
}

// places fills in the cursors: positions count down from the last, datetimes
// are resolved from the gaps between runs.
func (d *blockDecoder) places(entries []Entry, last Cursor) error {
	runs := d.uvarint()
	if runs == 0 || runs > uint64(len(entries)) {
		return fmt.Errorf("%w: block of %d runs", ErrCorrupt, runs)
	}
	i, micros := 0, int64(0)
	for run := range runs {
		n, gap := d.uvarint(), d.uvarint()
		if n == 0 || n > uint64(len(entries)-i) || gap > maxNumber || micros > maxNumber || (gap == 0) != (run == 0) {
			return fmt.Errorf("%w: runs of a block", ErrCorrupt)
		}
		micros += int64(gap)
		for range n {
			entries[i].Micros = micros
			micros++
			i++
		}
		micros--
	}
	if d.bad || i != len(entries) {
		return fmt.Errorf("%w: runs of a block", ErrCorrupt)
	}
	shift := last.Micros - micros
	for i := range entries {
		entries[i].Micros += shift
		entries[i].Position = last.Position - uint64(len(entries)-1-i)
	}
	return nil
}

// What an encoded change has, as bits of its first number; the two lowest are
// its ChangeType.
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

// appendChange appends a change: a number of bits that say which fields follow,
// then loc and those fields, a string as its length and bytes.
func appendChange(dst []byte, c *resourcesync.Change) []byte {
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
	dst = appendString(dst, c.Loc)
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
	dst = appendString(dst, l.Rel)
	dst = appendString(dst, l.Href)
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
		dst = appendString(dst, a.Namespace)
		dst = appendString(dst, a.Name)
		dst = appendString(dst, a.Value)
	}
	return dst
}

func bit(b uint64, set bool) uint64 {
	if set {
		return b
	}
	return 0
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendOptional(dst []byte, s string) []byte {
	if s == "" {
		return dst
	}
	return appendString(dst, s)
}

func appendTime(dst []byte, t time.Time) []byte {
	if t.IsZero() {
		return dst
	}
	dst = binary.AppendVarint(dst, t.Unix())
	return binary.AppendUvarint(dst, uint64(t.Nanosecond()))
}

// A blockDecoder reads what the functions above wrote, from b while it reads
// the head of a block and from text then. bad is sticky: damage is reported
// once, at the end.
type blockDecoder struct {
	b    []byte
	text string
	off  int
	bad  bool
}

func (d *blockDecoder) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *blockDecoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// number reads a uvarint from text.
func (d *blockDecoder) number() uint64 {
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

// signed reads a varint from text.
func (d *blockDecoder) signed() int64 {
	u := d.number()
	return int64(u>>1) ^ -int64(u&1)
}

func (d *blockDecoder) string() string {
	n := d.number()
	if d.bad || n > uint64(len(d.text)-d.off) {
		d.bad = true
		return ""
	}
	s := d.text[d.off : d.off+int(n)]
	d.off += int(n)
	return s
}

func (d *blockDecoder) optional(has, b uint64) string {
	if has&b == 0 {
		return ""
	}
	return d.string()
}

func (d *blockDecoder) time(has, b uint64) time.Time {
	if has&b == 0 {
		return time.Time{}
	}
	sec := d.signed()
	return time.Unix(sec, int64(d.number())).UTC()
}

func (d *blockDecoder) length(has uint64) *int64 {
	if has&hasLength == 0 {
		return nil
	}
	n := d.signed()
	return &n
}

func (d *blockDecoder) change(c *resourcesync.Change) {
	has := d.number()
	c.Change = changeTypes[has&3]
	c.Loc = d.string()
	c.Datetime = d.time(has, hasDatetime)
	c.Lastmod = d.time(has, hasLastmod)
	c.Changefreq = d.optional(has, hasChangefreq)
	c.Hash = d.optional(has, hasHash)
	c.Length = d.length(has)
	c.Type = d.optional(has, hasType)
	c.Encoding = d.optional(has, hasEncoding)
	c.Path = d.optional(has, hasPath)
	if has&hasLinks != 0 {
		if n := d.count(); n > 0 {
			c.Links = make([]resourcesync.Link, n)
			for i := range c.Links {
				d.link(&c.Links[i])
			}
		}
	}
	c.Attrs = d.attrs(has)
}

func (d *blockDecoder) link(l *resourcesync.Link) {
	has := d.number()
	l.Rel, l.Href = d.string(), d.string()
	l.Modified = d.time(has, hasLastmod)
	l.Hash = d.optional(has, hasHash)
	l.Length = d.length(has)
	l.Type = d.optional(has, hasType)
	l.Encoding = d.optional(has, hasEncoding)
	l.Path = d.optional(has, hasPath)
	if has&hasPri != 0 {
		l.Pri = int(d.number())
	}
	l.Profile = d.optional(has, hasProfile)
	l.Attrs = d.attrs(has)
}

func (d *blockDecoder) attrs(has uint64) []resourcesync.Attr {
	if has&hasAttrs == 0 {
		return nil
	}
	attrs := make([]resourcesync.Attr, d.count())
	for i := range attrs {
		attrs[i] = resourcesync.Attr{Namespace: d.string(), Name: d.string(), Value: d.string()}
	}
	if len(attrs) == 0 {
		return nil
	}
	return attrs
}

// count reads how many things follow, each of at least three bytes; damage must
// not ask for more memory than there is text.
func (d *blockDecoder) count() int {
	n := d.number()
	if n > uint64(len(d.text)-d.off)/3 {
		d.bad = true
		return 0
	}
	return int(n)
}
