package directory

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rshub/rshub/internal/pebbledb"
)

// A record is the entry of a file in a ledger.
type record struct {
	path   string
	size   int64
	mtime  int64 // Unix time in nanoseconds
	ctime  int64 // as returned by identity
	inode  uint64
	sha256 [32]byte
}

// stat returns the record of a file whose hash is unknown.
func stat(path string, info fs.FileInfo) record {
	r := record{path: path, size: info.Size(), mtime: info.ModTime().UnixNano()}
	r.inode, r.ctime = identity(info)
	return r
}

// hash returns the hash in the form of a resource's hash.
func (r *record) hash() string { return "sha-256:" + hex.EncodeToString(r.sha256[:]) }

// value returns the value of the record in the ledger: four numbers of eight bytes, and the hash.
func (r *record) value() []byte {
	b := make([]byte, 0, 4*8+len(r.sha256))
	for _, n := range [...]uint64{uint64(r.size), uint64(r.mtime), uint64(r.ctime), r.inode} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return append(b, r.sha256[:]...)
}

// A ledger stores the hash of each file by its path, with the file's size, times and inode. A walk
// visits the files in the order of their paths, so it reads the ledger in parallel, and removes
// records of files that it does not find. If a walk is interrupted or killed, its own records and
// the old ones that come later remain, because reading files may have taken hours. A damaged ledger
// is created from scratch; then the files are read again.
type ledger struct {
	dir  string
	db   *pebble.DB // nil if nothing is remembered
	iter *pebble.Iterator
	err  error // first error
}

// openLedger opens the ledger in a directory for a walk. If dir is empty, nothing is remembered.
func openLedger(dir string) (*ledger, error) {
	if dir == "" {
		return &ledger{}, nil
	}
	o := pebbledb.Options{What: "the hashes of the walk before", Format: "1"}
	db, err := pebbledb.Open(dir, o)
	if pebble.IsCorruptionError(err) {
		if err := os.RemoveAll(dir); err != nil {
			return nil, err
		}
		db, err = pebbledb.Open(dir, o)
	}
	if err != nil {
		return nil, err
	}
	l := &ledger{dir: dir, db: db}
	if l.iter, err = db.NewIter(&pebble.IterOptions{LowerBound: []byte(recordPrefix), UpperBound: []byte(recordsEnd)}); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	l.iter.First()
	return l, nil
}

// The keys of records: a prefix and the path. No path follows recordsEnd.
const (
	recordPrefix = "file/"
	recordsEnd   = "file0"
)

// lookUp sets the hash of a file, if the ledger has it and the file has not changed since. It must
// be called in the order of the paths.
func (l *ledger) lookUp(r *record) bool {
	if l.db == nil {
		return false
	}
	key := recordPrefix + r.path
	for l.iter.Valid() && string(l.iter.Key()) < key {
		l.deleteNext()
	}
	if !l.iter.Valid() || string(l.iter.Key()) != key {
		return false
	}
	v, known := l.iter.Value(), r.value()
	stat := len(known) - len(r.sha256)
	if len(v) != len(known) || string(v[:stat]) != string(known[:stat]) {
		l.deleteNext()
		return false
	}
	copy(r.sha256[:], v[stat:])
	l.iter.Next()
	return true
}

// deleteNext removes the record that lookUp would check next.
func (l *ledger) deleteNext() {
	l.noteErr(l.db.Delete(l.iter.Key(), pebble.NoSync))
	l.iter.Next()
}

// add stores the hash of a file.
func (l *ledger) add(r *record) {
	if l.db != nil {
		l.noteErr(l.db.Set([]byte(recordPrefix+r.path), r.value(), pebble.NoSync))
	}
}

func (l *ledger) noteErr(err error) {
	if l.err == nil {
		l.err = err
	}
}

// close ends the walk and makes its records durable. If the walk was complete, close removes the
// records of files that it has not found.
func (l *ledger) close(complete bool) error {
	if l.db == nil {
		return nil
	}
	for complete && l.iter.Valid() {
		l.deleteNext()
	}
	l.noteErr(l.iter.Close())
	l.noteErr(l.db.LogData(nil, pebble.Sync))
	l.noteErr(l.db.Close())
	if pebble.IsCorruptionError(l.err) {
		l.err = os.RemoveAll(l.dir)
	}
	if l.err != nil {
		return fmt.Errorf("store the hashes: %w", l.err)
	}
	return nil
}
