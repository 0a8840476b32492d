package mirror

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncsAll says that syncAll works on this system.
const syncsAll = true

// syncAll makes everything durable that was written to the file system of a file, also what
// others have written. Since Linux 5.8 it returns the error of a write that failed since
// the file was opened.
func syncAll(f *os.File) error { return os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))) }
