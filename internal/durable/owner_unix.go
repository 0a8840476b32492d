//go:build unix

package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// KeepOwner gives f the owner and the group of the file at path, if that exists. So whoever
// may read the file still may when f replaces it. If the process may not change the owner,
// it is enough that f has the group, and that the group or all others may read the file.
func KeepOwner(f *os.File, path string) error {
	old, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	is, err := f.Stat()
	if err != nil {
		return err
	}
	want, ok := old.Sys().(*syscall.Stat_t)
	got, ok2 := is.Sys().(*syscall.Stat_t)
	if !ok || !ok2 {
		return nil
	}
	if got.Uid == want.Uid && got.Gid == want.Gid {
		return nil
	}
	err = f.Chown(int(want.Uid), int(want.Gid))
	if err == nil || old.Mode()&0o004 != 0 {
		return nil
	}
	if (got.Gid == want.Gid || f.Chown(-1, int(want.Gid)) == nil) && old.Mode()&0o040 != 0 {
		return nil
	}
	return fmt.Errorf("keep owner %d and group %d: %w", want.Uid, want.Gid, err)
}
