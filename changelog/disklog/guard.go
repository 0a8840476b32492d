package disklog

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A guard watches the write-ahead log. Pebble does not survive that a write to
// it fails, and where the log is just being rotated it ends in a panic that
// nobody can catch. So the process ends here, with words.
//
// It also keeps a marker from reaching the disk before the manifest that it
// names, which a crash of the machine would make a store that does not open
// (https://github.com/cockroachdb/pebble/issues/5825, not mended in v2.1.7).
type guard struct {
	vfs.FS
	failed func(error)
}

func (g guard) Unwrap() vfs.FS { return g.FS }

func (g guard) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(g.PathBase(name), "marker.") {
		if err := syncDir(g.FS, g.PathDir(name)); err != nil {
			return nil, err
		}
	}
	f, err := g.FS.Create(name, c)
	return g.watch(name, f, err)
}

func (g guard) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := g.FS.ReuseForWrite(old, name, c)
	return g.watch(name, f, err)
}

func (g guard) watch(name string, f vfs.File, err error) (vfs.File, error) {
	if filepath.Ext(name) != ".log" {
		return f, err
	}
	w := guarded{f, name, g.failed}
	if err := w.check("create", err); err != nil {
		return nil, err
	}
	return w, nil
}

// guarded is a file of the write-ahead log.
type guarded struct {
	vfs.File
	name   string
	failed func(error)
}

func (f guarded) check(what string, err error) error {
	if err != nil {
		f.failed(fmt.Errorf("%s %s: %w", what, f.name, err))
	}
	return err
}

func (f guarded) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.check("write", err)
}

func (f guarded) Sync() error     { return f.check("sync", f.File.Sync()) }
func (f guarded) SyncData() error { return f.check("sync", f.File.SyncData()) }
func (f guarded) Close() error    { return f.check("close", f.File.Close()) }

func (f guarded) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.check("sync", err)
}

// makeDir makes a directory and what is missing above it, so that they survive
// a crash of the machine.
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
		above = nil // it was there already, and its parent may not be ours to open
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
