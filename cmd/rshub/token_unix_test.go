//go:build unix

package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// If the hub's group can read the tokens file, it still can after a token is added, whatever
// the umask of the user who adds it.
func TestTokenNewKeepsMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	writeFile(t, path, "anyone - follow:*\n")
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	if code, _, stderr := runCommand(t, "token", "new", "-name", "alice", "-rights", "publish:demo", "-file", path); code != 0 {
		t.Fatal(stderr)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode became %v (%v)", info.Mode(), err)
	}
}

// A tokens file of the hub's user stays that user's after root has added a token.
func TestTokenNewKeepsOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may change owners")
	}
	path := filepath.Join(t.TempDir(), "tokens")
	writeFile(t, path, "anyone - follow:*\n")
	if err := errors.Join(os.Chown(path, 12345, 23456), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := runCommand(t, "token", "new", "-name", "alice", "-rights", "publish:demo", "-file", path); code != 0 {
		t.Fatal(stderr)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if s := info.Sys().(*syscall.Stat_t); s.Uid != 12345 || s.Gid != 23456 || info.Mode().Perm() != 0o640 {
		t.Errorf("owner, group and mode became %d, %d and %v, want 12345, 23456 and 0640", s.Uid, s.Gid, info.Mode().Perm())
	}
}
