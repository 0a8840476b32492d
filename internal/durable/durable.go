// Package durable makes files and their names survive a crash of the machine: it syncs files and
// directories in the right order, and replaces files atomically.
//
// It does not lock: package internal/filelock does.
package durable

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// Replace renames f, which must be on the same file system, to path. At any time, even after a
// crash, path is either the complete old file or the complete new one. When Replace returns nil,
// the new file is durable. f keeps its permissions. It gets the owner and the group of the old
// file, as far as the process may change them: see KeepOwner.
//
// Replace closes f. After an error f has been removed, and path is the old file. There is one
// exception: if the new name cannot be made durable, path is the new file, and a crash may undo
// that.
func Replace(f *os.File, path string) error {
	_ = KeepOwner(f, path) // callers that depend on it call it themselves
	err := errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is more specific
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the directory entries of path durable: new, renamed and removed files.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(SyncOpenDir(dir), dir.Close())
}

// SyncOpenDir is SyncDir for an open directory. Both do nothing on Windows, and on file systems
// that cannot sync directories: names there are as durable as they can be.
func SyncOpenDir(dir *os.File) error {
	err := dir.Sync()
	if runtime.GOOS == "windows" || errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}
