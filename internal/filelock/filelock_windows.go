package filelock

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/windows"
)

// Lock locks f for this process until f is closed or the process ends. It returns false if another
// process holds the lock. On a file system without locks it returns true.
func Lock(f *os.File) bool {
	// Other processes cannot read a locked range, so the range is beyond the end of any file.
	far := &windows.Overlapped{OffsetHigh: math.MaxInt32}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, far)
	return !errors.Is(err, windows.ERROR_LOCK_VIOLATION)
}
