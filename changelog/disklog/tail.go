package disklog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/changelog"
)

// After a power failure, the write-ahead log ends in a torn chunk. Pebble takes the first bad chunk
// for that end, unless a later block of the log proves that the chunk was once complete. It does
// not examine the rest of the same block. So damage in the last 32 KiB of the log would silently
// lose all changes after it. checkTail examines that block.
//
// A chunk of the log has a checksum, the length of its content, a type, the number of the log, and
// the offset up to which the log was synced when the chunk was written.
const (
	walBlock  = 32 << 10
	walHeader = 4 + 2 + 1 + 4 + 8

	walFull, walLast = 9, 12 // first and last type of chunks that have the synced offset
)

// checkTail returns an error if the newest write-ahead log is damaged in the part that Pebble does
// not examine. It returns nil if there is no log.
func checkTail(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	newest, number := "", uint64(0)
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, ".log")
		if n, err := strconv.ParseUint(digits, 10, 64); ok && err == nil && n >= number {
			newest, number = fs.PathJoin(dir, name), n
		}
	}
	if newest == "" {
		return nil
	}
	f, err := fs.Open(newest)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if bad, ok := findDamage(b, uint32(number)); ok {
		return fmt.Errorf("%w: file %s at byte %d; the data after it was written later, so this is not a torn end after a crash", changelog.ErrCorrupt, newest, bad)
	}
	return nil
}

// findDamage returns the offset of the first bad chunk of a log with a number. ok is false if the
// log is whole, or if a crash may have torn it at that offset.
func findDamage(b []byte, number uint32) (bad int, ok bool) {
	for bad < len(b) {
		size := chunkSize(b, bad, number)
		if room := walBlock - bad%walBlock; size == 0 && room < walHeader {
			size = room // padding, too short for a chunk
		}
		if size == 0 {
			break
		}
		bad += size
	}
	for at := bad + 1; at < len(b) && at/walBlock == bad/walBlock; at++ {
		if chunkSize(b, at, number) > 0 && binary.LittleEndian.Uint64(b[at+11:]) > uint64(bad) {
			return bad, true
		}
	}
	return bad, false
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunkSize returns the size in bytes of the valid chunk at an offset of the log with a number, or
// 0 if there is none.
func chunkSize(b []byte, at int, number uint32) int {
	end := min(len(b), at-at%walBlock+walBlock)
	if end-at < walHeader || b[at+6] < walFull || b[at+6] > walLast || binary.LittleEndian.Uint32(b[at+7:]) != number {
		return 0
	}
	size := walHeader + int(binary.LittleEndian.Uint16(b[at+4:]))
	if size > end-at {
		return 0
	}
	sum := crc32.Checksum(b[at+6:at+size], castagnoli)
	if binary.LittleEndian.Uint32(b[at:]) != sum>>15|sum<<17+0xa282ead8 {
		return 0
	}
	return size
}
