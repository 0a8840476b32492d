package access_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/rshub/rshub/access"
)

// A token that was printed must not be lost when the power fails. So AddLine makes the name of the
// new file durable, too, which begins with opening its directory.
func TestAddLineSyncsTheDirectory(t *testing.T) {
	dir := t.TempDir()
	watch, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(watch) //nolint:errcheck // nothing is written
	if _, err := syscall.InotifyAddWatch(watch, dir, syscall.IN_MOVED_TO|syscall.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	_, line, err := access.NewLine("alice", "follow:a", time.Time{})
	if err == nil {
		err = access.AddLine(filepath.Join(dir, "tokens"), line)
	}
	if err != nil {
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
		t.Errorf("the file was renamed: %t; then its directory was opened: %t", moved, opened)
	}
}
