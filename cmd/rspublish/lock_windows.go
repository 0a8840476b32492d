package main

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/windows"
)

// lock takes f for this process until it is closed, or the process ends in any
// way. A file system without locks lets everybody through.
func lock(f *os.File) error {
	// Who locks a range keeps others from reading it, so it is one that no file reaches.
	far := &windows.Overlapped{OffsetHigh: math.MaxInt32}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, far)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errInUse
	}
	return nil
}
