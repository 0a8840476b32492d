package mirror

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncsAll says that syncAll works on this system.
const syncsAll = true

// syncAll makes all writes to the file system of f durable, including those of other
// processes. Since Linux 5.8 it also returns the error of a write that failed since f was
// opened.
func syncAll(f *os.File) error { return os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))) }
