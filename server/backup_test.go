package server

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// What a hub that was killed during a backup left is removed, and nothing else:
// least of all a backup that somebody keeps there.
func TestOldBackupsAreRemoved(t *testing.T) {
	data := t.TempDir()
	left := filepath.Join(data, backupPrefix+"123", "changes")
	kept := filepath.Join(data, "backup-2026-11-21", "changes")
	for _, dir := range []string{left, kept} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	start(t, Config{Data: data})
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a backup is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(left)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
