//go:build unix

package durable

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// owner returns the owner and the group of a file.
func owner(t *testing.T, path string) [2]uint32 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	s := info.Sys().(*syscall.Stat_t)
	return [2]uint32{s.Uid, s.Gid}
}

// A file that root replaces keeps its owner and group.
func TestReplaceKeepsOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may change owners")
	}
	for _, tt := range []struct {
		name     string
		uid, gid int
	}{
		{"owner and group", 12345, 23456},
		{"owner", 12345, 0},
		{"group", 0, 23456},
		{"root", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := Replace(written(t, path, "old"), path); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(path, tt.uid, tt.gid); err != nil {
				t.Fatal(err)
			}
			if err := Replace(written(t, path, "new"), path); err != nil {
				t.Fatal(err)
			}
			holds(t, path, "new")
			if got, want := owner(t, path), [2]uint32{uint32(tt.uid), uint32(tt.gid)}; got != want {
				t.Errorf("owner and group after Replace() = %d, want %d", got, want)
			}
		})
	}
}

// If a process may not change the owner, KeepOwner fails if users who could read the file no longer
// can.
func TestKeepOwnerRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may change owners")
	}
	const user = 12345
	for _, tt := range []struct {
		name     string
		uid, gid int
		mode     os.FileMode
		want     bool
	}{
		{"own file", user, 0, 0o600, true},
		{"no file", -1, 0, 0, true},
		{"readable by the group", 0, 0, 0o640, true},
		{"readable by another group", 0, 23456, 0o640, false},
		{"readable by all", 0, 23456, 0o644, true},
		{"readable by the owner", 0, 0, 0o600, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777)); err != nil { // the user makes files there
				t.Fatal(err)
			}
			if tt.uid >= 0 {
				if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, tt.uid, tt.gid), os.Chmod(path, tt.mode)); err != nil {
					t.Fatal(err)
				}
			}
			if err := syscall.Seteuid(user); err != nil {
				t.Skip(err)
			}
			f, opened := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			err := opened
			if opened == nil {
				err = KeepOwner(f, path)
				_ = f.Close()
			}
			if err := errors.Join(syscall.Seteuid(0), opened); err != nil {
				t.Fatal(err)
			}
			if got := err == nil; got != tt.want {
				t.Errorf("KeepOwner() = %v, want success %t", err, tt.want)
			}
		})
	}
}
