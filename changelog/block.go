package changelog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/packed"
	"github.com/rshub/rshub/internal/zst"
	"github.com/rshub/rshub/resourcesync"
)

// A Block is the unit of storage and of announcements: up to MaxBlockEntries consecutive changes
// encoded together, with a checksum. Blocks of four or more changes are compressed. A block has
// neither positions nor absolute datetimes, so it can be encoded before its position in the log
// is known, and its bytes are the same in every store.
//
//	form     1 byte: 1 plain, 2 zstd
//	count    uvarint
//	runs     uvarint, then per run: entries uvarint, gap uvarint
//	body     the entries, see packed.AppendChange
//	checksum CRC-32C of the preceding bytes, 4 bytes little endian
//
// The entries of a run are one microsecond apart. The gap of a run is the time in microseconds
// from the last entry of the previous run to its first entry, and 0 for the first run. So the
// datetime of the last entry, which stores record together with the block, determines all others.
type Block []byte

const (
	plainForm byte = 1
	zstdForm  byte = 2

	compressFrom = 4 // minimum number of entries; with fewer, zstd saves nothing
)

// A CutBlock is a block with its number of entries.
type CutBlock struct {
	Block Block
	Count int
}

// CutBlocks encodes changes as blocks for a log in which the first change gets the position
// first. No block crosses the boundary of a list of listSize entries, or has more than
// MaxBlockEntries entries or, unless it has only one, more than MaxBlockBytes bytes before
// compression.
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
			body = packed.AppendChange(body, &changes[n])
			if n > 0 && len(body) > MaxBlockBytes {
				body = body[:before]
				break
			}
			if n == 0 && room > 1 { // the changes of a publish have similar lengths
				body = slices.Grow(body, min((room-1)*len(body), MaxBlockBytes))
			}
		}
		blocks = append(blocks, CutBlock{seal(body, n), n})
		first += uint64(n)
		changes = changes[n:]
	}
	return blocks
}

// Fit reports whether the blocks, appended after a position, cross no boundary of a list of
// listSize entries.
func Fit(blocks []CutBlock, position uint64, listSize int) bool {
	k := uint64(listSize)
	for _, b := range blocks {
		if position%k+uint64(b.Count) > k {
			return false
		}
		position += uint64(b.Count)
	}
	return true
}

// MergeBlock encodes consecutive entries, from one or more publishes, as one block. They must fit
// into one: at most MaxBlockEntries entries of one list, with at most MaxBlockBytes bytes in
// total (see Block.Size).
func MergeBlock(entries []feed.Entry) Block {
	b, _ := encodeEntries(entries, math.MaxInt)
	return b
}

// FillBlock encodes the first n of consecutive entries as one block. n is as large as the limits
// of CutBlocks allow, and at least 1.
func FillBlock(entries []feed.Entry, listSize int) (b Block, n int) {
	k := uint64(listSize)
	room := min(MaxBlockEntries, int(k-(entries[0].Position-1)%k), len(entries))
	return encodeEntries(entries[:room], MaxBlockBytes)
}

// encodeEntries encodes as many of the first entries as fit into maxBytes bytes before
// compression, and at least one, as one block.
func encodeEntries(entries []feed.Entry, maxBytes int) (b Block, n int) {
	var runs []run
	body := make([]byte, 0, 4096)
	for ; n < len(entries); n++ {
		before := len(body)
		body = packed.AppendChange(body, &entries[n].Change)
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

// A run has entries that are one microsecond apart; see Block.
type run struct {
	count int
	gap   int64 // microseconds since the previous run
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal returns the block of count encoded entries. Without runs, the entries are one run.
func seal(body []byte, count int, runs ...run) Block {
	if len(runs) == 0 {
		runs = []run{{count, 0}}
	}
	form, room := plainForm, len(body)
	if count >= compressFrom {
		form, room = zstdForm, len(body)/4 // an estimate; append grows the buffer if necessary
	}
	b := make([]byte, 0, room+16+4*len(runs))
	b = append(b, form)
	b = binary.AppendUvarint(b, uint64(count))
	b = binary.AppendUvarint(b, uint64(len(runs)))
	for _, r := range runs {
		b = binary.AppendUvarint(b, uint64(r.count))
		b = binary.AppendUvarint(b, uint64(r.gap))
	}
	if form == zstdForm {
		b = zst.Append(b, body)
	} else {
		b = append(b, body...)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Entries decodes the block. last is the cursor of the block's last entry. An error wraps
// ErrCorrupt and names the damaged part, but not the block, which the caller adds.
func (b Block) Entries(last feed.Cursor) ([]feed.Entry, error) { return b.AppendEntries(nil, last) }

// AppendEntries appends the entries of the block to dst. It returns the same errors as Entries,
// with a nil slice.
func (b Block) AppendEntries(dst []feed.Entry, last feed.Cursor) ([]feed.Entry, error) {
	if len(b) < 4 || crc32.Checksum(b[:len(b)-4], castagnoli) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return nil, fmt.Errorf("%w: checksum of a block", ErrCorrupt)
	}
	d := headDecoder{b: b[:len(b)-4]}
	form := d.byte()
	count := d.uvarint()
	if count == 0 || count > 64*MaxBlockEntries || count > last.Position {
		return nil, fmt.Errorf("%w: block of %d entries", ErrCorrupt, count)
	}
	dst = slices.Grow(dst, int(count))[:len(dst)+int(count)]
	entries := dst[len(dst)-int(count):]
	clear(entries)
	if err := d.cursors(entries, last); err != nil {
		return nil, err
	}
	var body string // the strings of the changes are parts of body
	switch form {
	case plainForm:
		body = string(d.b)
	case zstdForm:
		var err error
		if body, err = zst.Decode(d.b); err != nil {
			return nil, fmt.Errorf("%w: decompress a block: %w", ErrCorrupt, err)
		}
	default:
		return nil, fmt.Errorf("%w: block of unknown form %d", ErrCorrupt, form)
	}
	changes := packed.NewReader(body)
	for i := range entries {
		changes.Change(&entries[i].Change)
	}
	if !changes.Done() {
		return nil, fmt.Errorf("%w: entries of a block", ErrCorrupt)
	}
	return dst, nil
}

// Count returns the number of entries in the header of the block, without verifying it, or 0 if
// there is no header.
func (b Block) Count() uint64 {
	if len(b) == 0 {
		return 0
	}
	d := headDecoder{b: b[1:]}
	return d.uvarint()
}

// Size returns the size of the encoded entries in bytes before compression. It reads only the
// header of the block, and does not verify it.
func (b Block) Size() int {
	if len(b) == 0 || b[0] != zstdForm {
		return len(b)
	}
	d := headDecoder{b: b[1:]}
	d.uvarint() // number of entries
	for range d.uvarint() {
		if d.uvarint(); d.bad {
			break
		}
		d.uvarint()
	}
	n, ok := zst.Size(d.b)
	if !ok {
		return len(b)
	}
	return n
}

// A headDecoder reads the header of a block. bad is sticky: it stays true after the first missing
// number.
type headDecoder struct {
	b   []byte // unread bytes
	bad bool
}

func (d *headDecoder) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *headDecoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// cursors sets the positions and datetimes of all entries, from the cursor of the last one and the
// gaps between the runs.
func (d *headDecoder) cursors(entries []feed.Entry, last feed.Cursor) error {
	runs := d.uvarint()
	if runs == 0 || runs > uint64(len(entries)) {
		return fmt.Errorf("%w: block of %d runs", ErrCorrupt, runs)
	}
	i, micros := 0, int64(0)
	for run := range runs {
		n, gap := d.uvarint(), d.uvarint()
		if n == 0 || n > uint64(len(entries)-i) || gap > feed.MaxNumber || micros > feed.MaxNumber || (gap == 0) != (run == 0) {
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
