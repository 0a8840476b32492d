package main

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/windows"
)

// lock locks f for this process until f is closed or the process ends. If another
// process has it, lock returns errInUse. On a file system without locks it returns nil.
func lock(f *os.File) error {
	// Others cannot read a locked range, so the range lies behind the end of any file.
	far := &windows.Overlapped{OffsetHigh: math.MaxInt32}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, far)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errInUse
	}
	return nil
}
