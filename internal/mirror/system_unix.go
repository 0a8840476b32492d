//go:build !windows

package mirror

import (
	"os"
	"syscall"
)

// interrupt sends SIGTERM to a process.
func interrupt(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
