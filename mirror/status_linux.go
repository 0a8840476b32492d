package mirror

import (
	"io/fs"
	"syscall"
	"time"
)

// statusChanged returns when the inode of a file was last changed: a new file with the
// same inode number has another time.
func statusChanged(info fs.FileInfo) time.Time {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(int64(s.Ctim.Sec), int64(s.Ctim.Nsec)) // some platforms have 32 bits
	}
	return time.Time{}
}
