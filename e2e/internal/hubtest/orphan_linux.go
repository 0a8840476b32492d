package hubtest

import "syscall"

// Attributes put a process into a group of its own, and have it killed when the
// tests end without their cleanup, as after go test -timeout.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
