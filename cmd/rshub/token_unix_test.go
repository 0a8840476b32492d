//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// If the hub's group can read the tokens file, it still can after a token is added, whatever
// the umask of the user who adds it.
func TestTokenNewKeepsMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, "anyone - follow:*\n")
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	if code, _, stderr := command(t, "token", "new", "-name", "alice", "-rights", "publish:demo", "-file", path); code != 0 {
		t.Fatal(stderr)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode became %v (%v)", info.Mode(), err)
	}
}
