//go:build !linux

package hubtest

import "syscall"

// Attributes puts a process into its own process group.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
