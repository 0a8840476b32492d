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

// hash returns the hash in the form of a resource's hash.
func (r *record) hash() string { return "sha-256:" + hex.EncodeToString(r.sha256[:]) }

// value returns the value of the record in the ledger: four numbers of eight bytes, and
// the hash.
func (r *record) value() []byte {
	b := make([]byte, 0, 4*8+len(r.sha256))
	for _, n := range [...]uint64{uint64(r.size), uint64(r.mtime), uint64(r.ctime), r.inode} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return append(b, r.sha256[:]...)
}

// A ledger remembers the hash of each file by its path, with the file's size, times and
// inode. A walk visits the files in the order of their paths, so it reads the ledger in
// parallel, and removes records of files that it does not meet. A walk that breaks off or
// is killed keeps its own records and the old ones that come later, because reading files
// may have taken hours. A damaged ledger is begun anew; then the files are read again.
type ledger struct {
	dir string
	db  *pebble.DB // nil: nothing is remembered
	old *pebble.Iterator
	err error // the first error
}

// openLedger opens the ledger in a directory for a walk. Without a directory nothing is
// remembered.
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
	if l.old, err = db.NewIter(&pebble.IterOptions{LowerBound: []byte(recordPrefix), UpperBound: []byte(recordsEnd)}); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	l.old.First()
	return l, nil
}

// The keys of records: a prefix and the path. No path follows recordsEnd.
const (
	recordPrefix = "file/"
	recordsEnd   = "file0"
)

// find sets the hash of a file, if the ledger has it and the file has not changed since.
// find must be called in the order of the paths.
func (l *ledger) find(r *record) bool {
	if l.db == nil {
		return false
	}
	key := recordPrefix + r.path
	for l.old.Valid() && string(l.old.Key()) < key {
		l.drop()
	}
	if !l.old.Valid() || string(l.old.Key()) != key {
		return false
	}
	v, known := l.old.Value(), r.value()
	stat := len(known) - len(r.sha256)
	if len(v) != len(known) || string(v[:stat]) != string(known[:stat]) {
		l.drop()
		return false
	}
	copy(r.sha256[:], v[stat:])
	l.old.Next()
	return true
}

// drop removes the record that find would look at next.
func (l *ledger) drop() {
	l.note(l.db.Delete(l.old.Key(), pebble.NoSync))
	l.old.Next()
}

// add remembers the hash of a file.
func (l *ledger) add(r *record) {
	if l.db != nil {
		l.note(l.db.Set([]byte(recordPrefix+r.path), r.value(), pebble.NoSync))
	}
}

func (l *ledger) note(err error) {
	if l.err == nil {
		l.err = err
	}
}

// close ends the walk, and makes its records durable. If the walk was whole, close
// forgets files that it has not seen.
func (l *ledger) close(whole bool) error {
	if l.db == nil {
		return nil
	}
	for whole && l.old.Valid() {
		l.drop()
	}
	l.note(l.old.Close())
	l.note(l.db.LogData(nil, pebble.Sync))
	l.note(l.db.Close())
	if pebble.IsCorruptionError(l.err) {
		l.err = os.RemoveAll(l.dir)
	}
	if l.err != nil {
		return fmt.Errorf("remember the hashes: %w", l.err)
	}
	return nil
}
