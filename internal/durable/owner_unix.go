//go:build unix

package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// KeepOwner gives f the owner and the group of the file at path, if it exists. So the users who may
// read the file still may after f replaces it. If the process may not change the owner, it is
// sufficient that f gets the group and that the group may read the file, or that all users may.
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
