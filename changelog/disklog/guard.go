package disklog

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A guard is a file system that watches the write-ahead log and the directory of a store. Pebble
// cannot continue after a failed write to that log. During a rotation of the log, it panics in a
// goroutine of its own, where the panic cannot be recovered. So the guard ends the process before
// that, with a message.
//
// The guard also syncs the directory before it creates a marker file. A marker names a manifest. If
// the machine crashed when only the marker was on disk, the store could not be opened again
// (https://github.com/cockroachdb/pebble/issues/5825, not fixed in v2.1.7).
//
// Finally, the guard delays retries, see retrier.
//
// All this applies only to files in the store's own directory, except for the wait for file
// descriptors. Pebble also writes checkpoints through the guard, and a failed copy must not end the
// process.
type guard struct {
	vfs.FS
	dir       string      // directory of the store
	walFailed func(error) // called after a failed operation on the write-ahead log
	dirFailed func(error) // called after a failed sync of the directory
	retrier   *retrier
}

func (g guard) Unwrap() vfs.FS { return g.FS }

func (g guard) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if g.owns(name) && strings.HasPrefix(g.PathBase(name), "marker.") {
		if err := syncDir(g.FS, g.PathDir(name)); err != nil {
			return nil, err
		}
	}
	f, err := openRetrying(g.retrier, func() (vfs.File, error) { return g.FS.Create(name, c) })
	return g.watchFile(name, f, err)
}

func (g guard) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := openRetrying(g.retrier, func() (vfs.File, error) { return g.FS.ReuseForWrite(old, name, c) })
	return g.watchFile(name, f, err)
}

func (g guard) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	return openRetrying(g.retrier, func() (vfs.File, error) { return g.FS.Open(name, o...) })
}

func (g guard) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return openRetrying(g.retrier, func() (vfs.File, error) { return g.FS.OpenReadWrite(name, c, o...) })
}

// OpenDir also watches the syncs of the directory. If a sync fails after a marker has moved, Pebble
// panics in a goroutine of its own, even while the store is being opened. So a failed sync always
// ends the process.
func (g guard) OpenDir(name string) (vfs.File, error) {
	f, err := openRetrying(g.retrier, func() (vfs.File, error) { return g.FS.OpenDir(name) })
	if err != nil || !g.owns(g.PathJoin(name, "x")) {
		return f, err
	}
	return watchedDir{f, watchedFile{f, name, g.dirFailed}}, nil
}

// owns reports whether a file is in the store's own directory.
func (g guard) owns(name string) bool {
	return g.PathDir(name) == g.PathDir(g.PathJoin(g.dir, "x"))
}

// watchFile wraps f, the result of creating a file, if it belongs to the write-ahead log or a table.
func (g guard) watchFile(name string, f vfs.File, err error) (vfs.File, error) {
	if !g.owns(name) {
		return f, err
	}
	switch filepath.Ext(name) {
	case ".sst":
		if g.retrier.delayError(err) != nil {
			return nil, err
		}
		return tableFile{f, g.retrier}, nil
	case ".log":
	default:
		return f, err
	}
	w := &walFile{watchedFile: watchedFile{f, name, g.walFailed}}
	if err := w.check("create", err); err != nil {
		return nil, err
	}
	return w, nil
}

// A walFile is a file of the write-ahead log that is being written. For each such file, Pebble
// preallocates the disk space of a full memtable, 18 MB, although most files stay much smaller. A
// walFile reserves the space in steps instead.
type walFile struct {
	watchedFile
	written, reserved, requested int64 // bytes
}

// reserveStep is the number of bytes to reserve at a time. It is large, so that reserving is cheap
// compared with writing.
const reserveStep = 1 << 20

func (j *walFile) Preallocate(offset, length int64) error {
	j.requested = offset + length
	return nil
}

func (j *walFile) Write(p []byte) (int, error) {
	if end := j.written + int64(len(p)); end > j.reserved && j.reserved < j.requested {
		step := min(max(reserveStep, end-j.reserved), j.requested-j.reserved)
		if err := j.check("reserve space for", j.File.Preallocate(j.reserved, step)); err != nil {
			return 0, err
		}
		j.reserved += step
	}
	n, err := j.watchedFile.Write(p)
	j.written += int64(n)
	return n, err
}

// A watchedFile is a file of the write-ahead log, or a directory, and reports its failed writes.
type watchedFile struct {
	vfs.File
	name      string
	onFailure func(error)
}

// check calls onFailure if err is not nil, and returns err. what is the failed operation.
func (f watchedFile) check(what string, err error) error {
	if err != nil {
		f.onFailure(fmt.Errorf("%s %s: %w", what, f.name, err))
	}
	return err
}

func (f watchedFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.check("write", err)
}

func (f watchedFile) Sync() error     { return f.check("sync", f.File.Sync()) }
func (f watchedFile) SyncData() error { return f.check("sync", f.File.SyncData()) }
func (f watchedFile) Close() error    { return f.check("close", f.File.Close()) }

func (f watchedFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.check("sync", err)
}

// A watchedDir is a directory that reports its failed syncs.
type watchedDir struct {
	vfs.File
	guarded watchedFile
}

func (d watchedDir) Sync() error { return d.guarded.Sync() }

// makeDir creates a directory and its missing parents. It syncs them, so that they survive a crash
// of the machine.
func makeDir(fs vfs.FS, dir string) error {
	above := []string{fs.PathDir(dir)}
	for {
		d := above[len(above)-1]
		if _, err := fs.Stat(d); err == nil || fs.PathDir(d) == d {
			break
		}
		above = append(above, fs.PathDir(d))
	}
	if _, err := fs.Stat(dir); err == nil {
		above = nil // the directory exists: nothing to sync, and we may have no right to open its parent
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range above {
		if err := syncDir(fs, d); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	if err := d.Sync(); err != nil {
		_ = d.Close()
		return err
	}
	return d.Close()
}
