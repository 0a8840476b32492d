package hubtest

import "syscall"

// Attributes puts a process into its own process group, and has it killed if the tests exit
// without their cleanup, as after go test -timeout.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
