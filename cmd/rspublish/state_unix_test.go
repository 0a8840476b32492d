//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestStorePreservesOwner checks that a state file keeps its owner when root stores it, and that a
// symbolic link at the name of a temporary file is not followed.
func TestStorePreservesOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may change owners")
	}
	path := filepath.Join(t.TempDir(), "state")
	other := filepath.Join(t.TempDir(), "other")
	for _, name := range []string{path, other} {
		if err := os.WriteFile(name, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(path, 12345, 23456); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, path+".new"); err != nil {
		t.Fatal(err)
	}
	if err := storeJSON(path, "state"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path, text string
		uid, gid   uint32
	}{
		{path, "\"state\"\n", 12345, 23456},
		{other, "text", 0, 0},
	} {
		text, err := os.ReadFile(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		if s := info.Sys().(*syscall.Stat_t); string(text) != tt.text || s.Uid != tt.uid || s.Gid != tt.gid || !info.Mode().IsRegular() {
			t.Errorf("%s has mode %v, content %q and owner %d:%d, want a regular file with %q and %d:%d", tt.path, info.Mode(), text, s.Uid, s.Gid, tt.text, tt.uid, tt.gid)
		}
	}
}
