package inventory

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A page is
//
//	form     1 byte: 1 leaf, 2 inner, 3 list of page numbers
//	count    uvarint: rows
//	rows     see leaf, ref and appendNumbers
//	checksum CRC-32C of the number of the page (8 bytes little endian) and of all before,
//	         4 bytes little endian
//
// So a page that is found under another number than its own is damaged.
const (
	leafForm byte = iota + 1
	innerForm
	listForm
)

const (
	pageBytes = 6128 // of a page: Redis stores it in 6,144
	maxHeight = 32   // of a tree; a damaged head must not make a reader go deeper
	frame     = 1 + 3 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendPage appends a page to dst.
func appendPage(dst []byte, number uint64, form byte, count int, rows []byte) []byte {
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

// openPage checks a page, and returns its count and its rows.
func openPage(number uint64, form byte, b []byte) (count int, rows string, err error) {
	if len(b) < 6 || checksum(number, b[:len(b)-4]) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return 0, "", fmt.Errorf("its checksum is wrong")
	}
	if b[0] != form {
		return 0, "", fmt.Errorf("it has form %d instead of %d", b[0], form)
	}
	n, size := binary.Uvarint(b[1 : len(b)-4])
	if size <= 0 || n > uint64(len(b)) {
		return 0, "", fmt.Errorf("its count is wrong")
	}
	return int(n), string(b[1+size : len(b)-4]), nil
}
