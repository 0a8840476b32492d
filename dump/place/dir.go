package place

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"strings"
	"time"
)

// A directory is a Place. While a file is written it is in a directory of temporary files.
// What a crash leaves there is removed at a start a day later: other hubs may share the
// directory, and write just now.
type directory struct{ root *os.Root }

const (
	temporaryDir = ".writing"
	temporaryFor = 24 * time.Hour
)

func openDir(dir string) (Place, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the place for content: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the place for content: %w", err)
	}
	if err := root.Mkdir(temporaryDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the place for content: %w", err)
	}
	left, err := fs.ReadDir(root.FS(), temporaryDir)
	if err != nil {
		return nil, fmt.Errorf("open the place for content: %w", err)
	}
	for _, f := range left {
		if info, err := f.Info(); err == nil && time.Since(info.ModTime()) > temporaryFor {
			_ = root.Remove(temporaryDir + "/" + f.Name()) // else at the next start
		}
	}
	return &directory{root}, nil
}

// Create begins a temporary file.
func (d *directory) Create(_ context.Context, name string) (Writer, error) {
	temporary := temporaryDir + "/" + rand.Text()
	file, err := d.root.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	return &dirWriter{d, file, temporary, name}, nil
}

type dirWriter struct {
	dir             *directory
	file            *os.File // nil after the end
	temporary, name string
}

func (w *dirWriter) Write(b []byte) (int, error) { return w.file.Write(b) }

// Commit gives the file its name when its bytes are durable, and then makes the name durable.
func (w *dirWriter) Commit() error {
	if err := w.file.Sync(); err != nil {
		return w.failed(err)
	}
	if err := w.file.Close(); err != nil {
		return w.failed(err)
	}
	dir := path.Dir(w.name)
	var err error
	for range 10 { // Remove may just take an empty directory away
		if err = w.dir.root.MkdirAll(dir, 0o700); err == nil {
			err = w.dir.root.Rename(w.temporary, w.name)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return w.failed(err)
	}
	w.file = nil
	for ; ; dir = path.Dir(dir) { // those above may be new, too
		if err := w.dir.sync(dir); err != nil {
			return fmt.Errorf("write %s: %w", w.name, err)
		}
		if dir == "." {
			return nil
		}
	}
}

func (w *dirWriter) failed(err error) error {
	w.Abort()
	return fmt.Errorf("write %s: %w", w.name, err)
}

// Abort removes the temporary file.
func (w *dirWriter) Abort() {
	if w.file != nil {
		_ = w.file.Close() // nobody wants what is in it
		_ = w.dir.root.Remove(w.temporary)
		w.file = nil
	}
}

func (d *directory) sync(dir string) error {
	f, err := d.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Open opens a file.
func (d *directory) Open(_ context.Context, name string) (File, error) {
	f, err := d.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrAbsent, name)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", name, err), f.Close())
	}
	return &dirFile{f, info.Size()}, nil
}

type dirFile struct {
	*os.File
	size int64
}

func (f *dirFile) Size() int64 { return f.size }

// Remove removes a file, and the directories that are empty then.
func (d *directory) Remove(_ context.Context, name string) error {
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if d.root.Remove(dir) != nil {
			break // it is not empty
		}
	}
	return nil
}

// List walks through the directory of the prefix.
func (d *directory) List(_ context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		at := strings.TrimSuffix(prefix, "/")
		if at == "" {
			at = "."
		}
		err := fs.WalkDir(d.root.FS(), at, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist): // it was removed meanwhile
				return nil
			case err != nil:
				return err
			case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
				return fs.SkipDir
			case entry.IsDir():
				return nil
			}
			info, err := entry.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && !yield(Info{name, info.ModTime()}, nil) {
				return fs.SkipAll
			}
			return err
		})
		if err != nil {
			yield(Info{}, fmt.Errorf("list %s in the place for content: %w", prefix, err))
		}
	}
}

// Close closes the directory.
func (d *directory) Close() error { return d.root.Close() }
