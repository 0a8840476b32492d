package directory

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A ledger remembers the hash of each file, with what the system said of the file then. It
// is a file of records in the order of the paths, the order in which a Tree is walked. So a
// walk reads the old ledger beside the files, and writes the next one, and needs memory
// for one record of each.
//
// The next ledger replaces the old one when the walk ends. A walk that breaks off leaves
// it behind, and the following walk takes the hashes in it: reading files may have taken
// hours. Records are written in blocks with a checksum, so a block that a crash has torn
// is seen, and only costs reading some files again.
//
//	ledger  magic, then blocks
//	block   length of the records uint32, CRC-32C of the records uint32, records
//	record  path as length uvarint and bytes; size, mtime, ctime varint; inode uvarint; sha-256

const (
	magic      = "rspublish ledger 1\n"
	blockBytes = 32 << 10
	maxBlock   = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A record is what a ledger has of a file.
type record struct {
	path   string
	size   int64
	mtime  int64 // nanoseconds since 1970
	ctime  int64 // as identity returns it
	inode  uint64
	sha256 [32]byte
}

// stat returns the record of a file whose hash is not known.
func stat(path string, info fs.FileInfo) record {
	r := record{path: path, size: info.Size(), mtime: info.ModTime().UnixNano()}
	r.inode, r.ctime = identity(info)
	return r
}

// same reports whether the system says the same of both, which have the same path. Then
// they have the same hash.
func (r *record) same(o *record) bool {
	return r.size == o.size && r.mtime == o.mtime && r.ctime == o.ctime && r.inode == o.inode
}

func (r *record) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(r.path)))
	b = append(b, r.path...)
	b = binary.AppendVarint(b, r.size)
	b = binary.AppendVarint(b, r.mtime)
	b = binary.AppendVarint(b, r.ctime)
	b = binary.AppendUvarint(b, r.inode)
	return append(b, r.sha256[:]...)
}

var errTorn = errors.New("the ledger is torn")

// cut takes a record off b. The path is a part of b.
func (r *record) cut(b []byte) (path, rest []byte, err error) {
	n, l := binary.Uvarint(b)
	if l <= 0 || n > uint64(len(b)-l) {
		return nil, nil, errTorn
	}
	path, b = b[l:l+int(n)], b[l+int(n):]
	for _, v := range []*int64{&r.size, &r.mtime, &r.ctime} {
		if *v, l = binary.Varint(b); l <= 0 {
			return nil, nil, errTorn
		}
		b = b[l:]
	}
	if r.inode, l = binary.Uvarint(b); l <= 0 || len(b)-l < len(r.sha256) {
		return nil, nil, errTorn
	}
	b = b[l:]
	return path, b[copy(r.sha256[:], b):], nil
}

// A ledgerReader reads the records of a ledger, up to its end or to the first block that
// is torn.
type ledgerReader struct {
	file  *os.File
	in    *bufio.Reader
	block []byte // records that are not read yet
	space []byte
	path  []byte // of the next record; good until advance
	next  record // without its path
	ok    bool   // there is a next record
}

// openLedger opens a ledger. One that is not there, or not a ledger, has no records.
func openLedger(name string) *ledgerReader {
	r := &ledgerReader{}
	f, err := os.Open(name)
	if err != nil {
		return r
	}
	r.file, r.in = f, bufio.NewReaderSize(f, 256<<10)
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(r.in, head); err == nil && string(head) == magic {
		r.advance()
	}
	return r
}

// advance goes to the next record.
func (r *ledgerReader) advance() {
	r.ok = false
	for len(r.block) == 0 {
		var head [8]byte
		if _, err := io.ReadFull(r.in, head[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint32(head[:]))
		if n == 0 || n > maxBlock {
			return
		}
		if cap(r.space) < n {
			r.space = make([]byte, n)
		}
		r.block = r.space[:n]
		if _, err := io.ReadFull(r.in, r.block); err != nil || crc32.Checksum(r.block, castagnoli) != binary.BigEndian.Uint32(head[4:]) {
			r.block = nil
			return
		}
	}
	var err error
	if r.path, r.block, err = r.next.cut(r.block); err == nil {
		r.ok = true
	}
}

// find returns the record of a path. Paths must be asked for in order.
func (r *ledgerReader) find(path string) (*record, bool) {
	for r.ok && string(r.path) < path {
		r.advance()
	}
	return &r.next, r.ok && string(r.path) == path
}

// record returns the next record, whole.
func (r *ledgerReader) record() *record {
	r.next.path = string(r.path)
	return &r.next
}

func (r *ledgerReader) close() {
	if r.file != nil {
		_ = r.file.Close() // it was only read
	}
}

// A ledgerWriter writes the next ledger.
type ledgerWriter struct {
	file  *os.File
	block []byte
	err   error // the first
}

func newLedgerWriter(name string) *ledgerWriter {
	w := &ledgerWriter{block: make([]byte, 8, blockBytes+4096)}
	if w.file, w.err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); w.err == nil {
		_, w.err = w.file.WriteString(magic)
	}
	return w
}

// add writes a record. Records must come in the order of the paths.
func (w *ledgerWriter) add(r *record) {
	if w.block = r.append(w.block); len(w.block) >= blockBytes {
		w.flush()
	}
}

// flush hands what was added to the system.
func (w *ledgerWriter) flush() {
	if records := w.block[8:]; len(records) > 0 && w.err == nil {
		binary.BigEndian.PutUint32(w.block, uint32(len(records)))
		binary.BigEndian.PutUint32(w.block[4:], crc32.Checksum(records, castagnoli))
		_, w.err = w.file.Write(w.block)
	}
	w.block = w.block[:8]
}

// close writes what is left. After the sync the ledger outlasts a crash of the machine.
func (w *ledgerWriter) close(sync bool) error {
	w.flush()
	if w.file == nil {
		return w.err
	}
	if sync && w.err == nil {
		w.err = w.file.Sync()
	}
	return errors.Join(w.err, w.file.Close())
}

// nextSuffix is behind the name of a ledger that is being written.
const nextSuffix = ".next"

// A pair is the ledger of the walk before, and that of this one.
type pair struct {
	name string // empty: there is none
	old  *ledgerReader
	next *ledgerWriter
}

// openPair opens the ledger with a name, for a walk.
func openPair(name string) (*pair, error) {
	p := &pair{name: name, old: &ledgerReader{}}
	if name == "" {
		return p, nil
	}
	if err := recoverLedger(name); err != nil {
		return nil, fmt.Errorf("the ledger of the walk before: %w", err)
	}
	p.old, p.next = openLedger(name), newLedgerWriter(name+nextSuffix)
	if p.next.err != nil {
		p.old.close()
		return nil, fmt.Errorf("write the ledger: %w", p.next.err)
	}
	return p, nil
}

// recoverLedger puts what a walk that was killed has written in front of what the old
// ledger has behind that.
func recoverLedger(name string) error {
	broken := openLedger(name + nextSuffix)
	defer broken.close()
	if broken.file == nil {
		return nil
	}
	if !broken.ok {
		return os.Remove(name + nextSuffix)
	}
	merged := newLedgerWriter(name + ".merged")
	last := ""
	for ; broken.ok; broken.advance() {
		last = broken.record().path
		merged.add(&broken.next)
	}
	old := openLedger(name)
	defer old.close()
	merged.rest(old, last)
	if err := merged.close(true); err != nil {
		return err
	}
	if err := os.Rename(name+".merged", name); err != nil {
		return err
	}
	return os.Remove(name + nextSuffix)
}

// rest adds what a ledger has behind a path.
func (w *ledgerWriter) rest(old *ledgerReader, last string) {
	for ; old.ok; old.advance() {
		if string(old.path) > last {
			w.add(old.record())
		}
	}
}

// find returns what the old ledger has of a file, if the file has not changed since.
func (p *pair) find(r *record) bool {
	old, ok := p.old.find(r.path)
	if !ok || !old.same(r) {
		return false
	}
	r.sha256 = old.sha256
	return true
}

// add puts a file into the next ledger.
func (p *pair) add(r *record) {
	if p.next != nil {
		p.next.add(r)
	}
}

// flush hands what was added to the system, because to find it out again would take long.
func (p *pair) flush() {
	if p.next != nil {
		p.next.flush()
	}
}

// close ends the walk at a path: what the old ledger has behind it stays. The path is
// empty if the walk has seen all files.
func (p *pair) close(last string, whole bool) error {
	defer p.old.close()
	if p.next == nil {
		return nil
	}
	if !whole {
		p.next.rest(p.old, last)
	}
	if err := p.next.close(true); err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	if err := os.Rename(p.name+nextSuffix, p.name); err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	if dir, err := os.Open(filepath.Dir(p.name)); err == nil {
		_ = dir.Sync() // not every file system can; then the rename is as durable as it gets
		_ = dir.Close()
	}
	return nil
}

// hash returns the hash as a resource has it.
func (r *record) hash() string { return "sha-256:" + hex.EncodeToString(r.sha256[:]) }
