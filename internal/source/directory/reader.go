package directory

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// ErrBusy means that a file is being written. It is not listed until it has settled.
var ErrBusy = errors.New("file is being written; it is left for the next list")

// errNoFile means that the path is no longer a regular file.
var errNoFile = errors.New("no such file")

// racyAge is the minimum age of a file's times before its hash is remembered. Within the resolution
// of the times, two seconds at worst, a file can change without new times.
const racyAge = 2 * time.Second

// readTries is how often a file is read if it changes during the reading.
const readTries = 3

// A reader hashes files. It opens no file outside of the directory, even if symbolic links are put
// there in the meantime.
type reader struct {
	tree *Tree
	root *os.Root
	sum  hash.Hash
	buf  []byte
}

func newReader(t *Tree) (*reader, error) {
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return nil, err
	}
	return &reader{tree: t, root: root, sum: sha256.New(), buf: make([]byte, 256<<10)}, nil
}

func (r *reader) close() { _ = r.root.Close() } // it was only read from

// read hashes a file whose Lstat is info. It waits until the file has settled, and subtracts the
// wait from patience. trusted reports whether a later file with the same info has the same hash.
func (r *reader) read(ctx context.Context, path string, info fs.FileInfo, patience *time.Duration) (rec record, trusted bool, err error) {
	for range readTries {
		if err = r.settle(ctx, path, info, patience); err != nil {
			return rec, false, err
		}
		now := r.tree.opts.Now()
		rec, err = r.hash(ctx, path)
		if err == nil {
			young := now.Add(-racyAge).UnixNano()
			return rec, rec.mtime < young && rec.ctime < young, nil
		}
		if !errors.Is(err, ErrBusy) {
			return rec, false, err
		}
		if info, err = os.Lstat(r.tree.join(path)); err != nil || !info.Mode().IsRegular() {
			return rec, false, noFile(err)
		}
	}
	return rec, false, ErrBusy
}

// noFile returns the error for a file that Lstat does not find, or that is not regular.
func noFile(err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return errNoFile
	}
	return err
}

// settle waits until a file has not changed for Settle. It returns ErrBusy if that takes longer
// than the remaining patience.
func (r *reader) settle(ctx context.Context, path string, info fs.FileInfo, patience *time.Duration) error {
	for {
		left := r.tree.settleTime(info)
		if left <= 0 {
			return nil
		}
		if left > *patience {
			return ErrBusy
		}
		*patience -= left
		err := r.tree.opts.Sleep(ctx, left)
		if err != nil {
			return err
		}
		if info, err = os.Lstat(r.tree.join(path)); err != nil || !info.Mode().IsRegular() {
			return noFile(err)
		}
	}
}

// settleTime returns how long it takes until a file has settled, if it does not change. It ignores
// times in the future.
func (t *Tree) settleTime(info fs.FileInfo) time.Duration {
	age := t.opts.Now().Sub(info.ModTime())
	if age < 0 {
		return 0
	}
	return t.opts.Settle - age
}

// hash hashes a file. It returns ErrBusy if the file changes during the reading.
func (r *reader) hash(ctx context.Context, path string) (rec record, err error) {
	f, err := openFile(r.root, path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errNoFile
		}
		return rec, err
	}
	defer f.Close() // it is only read
	before, err := f.Stat()
	if err != nil {
		return rec, err
	}
	if !before.Mode().IsRegular() {
		return rec, errNoFile
	}
	rec = stat(path, before)
	r.sum.Reset()
	n, err := r.copy(ctx, io.LimitReader(f, rec.size+1)) // the file may grow faster than it is read
	if err != nil {
		return rec, fmt.Errorf("read file: %w", err)
	}
	after, err := f.Stat()
	if err != nil {
		return rec, err
	}
	if now := stat(path, after); n != rec.size || now.size != rec.size || now.mtime != rec.mtime {
		return rec, ErrBusy
	}
	r.sum.Sum(rec.sha256[:0])
	return rec, nil
}

func (r *reader) copy(ctx context.Context, from io.Reader) (n int64, err error) {
	for ctx.Err() == nil {
		k, err := from.Read(r.buf)
		r.sum.Write(r.buf[:k])
		n += int64(k)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, ctx.Err()
}
