package filelock

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// A file that is opened twice is locked once, until it is closed.
func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	first, second := open(), open()
	if !Lock(first) {
		t.Fatal("Lock() of an unlocked file = false, want true")
	}
	if runtime.GOOS == "linux" && Lock(second) {
		t.Error("two have the lock")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if !Lock(second) {
		t.Error("it is closed, and still locked")
	}
}
