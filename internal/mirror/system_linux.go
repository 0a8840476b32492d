package mirror

import (
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// syncsAll reports whether syncAll works on this system.
const syncsAll = true

// syncAll makes all writes to the file system of f durable, including the writes of other processes.
// Since Linux 5.8 it also returns the error of a write that failed since f was opened.
func syncAll(f *os.File) error { return os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))) }

// statusChanged returns the time of the last change of the inode of a file. It tells a new file
// from an old one with the same inode number.
func statusChanged(info fs.FileInfo) time.Time {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(int64(s.Ctim.Sec), int64(s.Ctim.Nsec)) // int32 on some platforms
	}
	return time.Time{}
}
