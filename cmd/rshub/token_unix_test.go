//go:build unix

package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestTokenNewKeepsMode checks that the hub's group can still read a tokens file after a token is
// added, regardless of the umask.
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
		t.Errorf("mode = %v (%v), want 0640", info.Mode(), err)
	}
}

// TestTokenNewKeepsOwner checks that a tokens file keeps its owner when root adds a token.
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
		t.Errorf("owner, group and mode = %d, %d, %v, want 12345, 23456, 0640", s.Uid, s.Gid, info.Mode().Perm())
	}
}
