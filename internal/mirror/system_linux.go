package mirror

import (
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// syncsAll says that syncAll works on this system.
const syncsAll = true

// syncAll makes all writes to the file system of f durable, including those of other
// processes. Since Linux 5.8 it also returns the error of a write that failed since f was
// opened.
func syncAll(f *os.File) error { return os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))) }

// statusChanged returns when the inode of a file was last changed: a new file with the
// same inode number has another time.
func statusChanged(info fs.FileInfo) time.Time {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(int64(s.Ctim.Sec), int64(s.Ctim.Nsec)) // some platforms have 32 bits
	}
	return time.Time{}
}
