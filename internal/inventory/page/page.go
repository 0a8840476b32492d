// Package page encodes the pages of an inventory's tree: leaves with resources, and inner pages that
// describe the pages below them. It decides how many rows fit in a page.
//
// Package inventory writes the pages to a Store.
package page

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A page is
//
//	form     1 byte: 1 leaf, 2 inner; old versions also stored 3
//	count    uvarint: number of rows
//	rows     see Leaf and Ref
//	checksum 4 bytes little endian: CRC-32C of the page's number (8 bytes little endian) and the above
//
// Because of the checksum, a page that is stored under a wrong number counts as damaged.
const (
	LeafForm byte = iota + 1
	InnerForm
)

// Frame is the approximate size of a page without its rows, in bytes.
const Frame = 1 + 3 + 4

var errRows = errors.New("invalid rows")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Append appends a page to dst.
func Append(dst []byte, number uint64, form byte, count int, rows []byte) []byte {
	start := len(dst)
	dst = append(dst, form)
	dst = binary.AppendUvarint(dst, uint64(count))
	dst = append(dst, rows...)
	return binary.LittleEndian.AppendUint32(dst, checksum(number, dst[start:]))
}

func checksum(number uint64, b []byte) uint32 {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], number)
	return crc32.Update(crc32.Checksum(n[:], castagnoli), castagnoli, b)
}

// open verifies a page, and returns its count and its rows.
func open(number uint64, form byte, b []byte) (count int, rows string, err error) {
	if len(b) < 6 || checksum(number, b[:len(b)-4]) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return 0, "", errors.New("checksum does not match")
	}
	if b[0] != form {
		return 0, "", fmt.Errorf("format: got %d, want %d", b[0], form)
	}
	n, size := binary.Uvarint(b[1 : len(b)-4])
	if size <= 0 || n > uint64(len(b)) {
		return 0, "", errors.New("count does not match")
	}
	return int(n), string(b[1+size : len(b)-4]), nil
}
