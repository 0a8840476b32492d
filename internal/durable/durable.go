// Package durable makes files, and the names of files, survive a crash of the machine: it syncs
// files and directories in the right order, and replaces a file atomically.
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

// Replace makes f, which was written on the same file system, the file at path. At any time,
// also after a crash, path is either the whole old file or the whole new one. When Replace
// returns nil, it is the new one for good. f keeps its permissions. It gets the owner and the
// group of the old file, as far as the process may change them: see KeepOwner.
//
// Replace closes f. After an error it has removed f, and path is the old file. Only if the
// new name cannot be made durable, path is the new file, and a crash may undo that.
func Replace(f *os.File, path string) error {
	_ = KeepOwner(f, path) // callers that need it call it themselves
	err := errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error says more
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes durable which files a directory has: new, renamed and removed ones.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(SyncOpenDir(dir), dir.Close())
}

// SyncOpenDir is SyncDir for a directory that is open. Both do nothing on Windows, and on a
// file system that cannot sync directories: names are as durable there as they get.
func SyncOpenDir(dir *os.File) error {
	err := dir.Sync()
	if runtime.GOOS == "windows" || errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}
