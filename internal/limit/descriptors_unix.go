//go:build unix

package limit

import (
	"math"
	"syscall"
)

// descriptorLimit returns the file descriptor limit of the process. The Go runtime has raised the soft
// limit to the hard one at the start.
func descriptorLimit() (int64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	return int64(min(uint64(l.Cur), math.MaxInt64)), nil
}
