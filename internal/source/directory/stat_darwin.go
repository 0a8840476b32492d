package directory

import (
	"io/fs"
	"syscall"
)

// identity returns the inode of a file, and the Unix time in nanoseconds when its inode last
// changed. Tools can set the mtime of a file to what it was before a change, but not this time.
func identity(info fs.FileInfo) (inode uint64, changed int64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino, st.Ctimespec.Nano()
	}
	return 0, 0
}
