package durable

import (
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"
)

// The new name is durable, too: the directory is opened after the file has been renamed.
func TestReplaceSyncsTheDirectory(t *testing.T) {
	dir := t.TempDir()
	watch, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(watch) //nolint:errcheck // nothing is written
	if _, err := syscall.InotifyAddWatch(watch, dir, syscall.IN_MOVED_TO|syscall.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "file")
	if err := Replace(written(t, path, "text"), path); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, err := syscall.Read(watch, b)
	if err != nil {
		t.Fatal(err)
	}
	moved, opened := false, false
	for b = b[:n]; len(b) > 0; {
		e := (*syscall.InotifyEvent)(unsafe.Pointer(&b[0]))
		moved = moved || e.Mask&syscall.IN_MOVED_TO != 0
		opened = opened || moved && e.Mask&syscall.IN_OPEN != 0 && e.Mask&syscall.IN_ISDIR != 0
		b = b[syscall.SizeofInotifyEvent+e.Len:]
	}
	if !moved || !opened {
		t.Errorf("file renamed: %t; directory opened afterwards: %t", moved, opened)
	}
}

// On a file system that cannot sync directories, SyncDir succeeds.
func TestSyncDirUnsupported(t *testing.T) {
	if err := SyncDir("/proc"); err != nil {
		t.Error(err)
	}
}
