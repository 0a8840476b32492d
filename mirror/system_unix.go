//go:build !windows

package mirror

import (
	"os"
	"syscall"
)

// interrupt asks a process to end.
func interrupt(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// syncDirectory makes the names in a directory durable.
func syncDirectory(f *os.File) error { return f.Sync() }
