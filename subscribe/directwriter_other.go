//go:build !unix

package subscribe

import "syscall"

// A directWriter writes to sockets without waiting. On this system that is not possible, so it
// writes nothing, and every connection has an output goroutine that does all the writing.
type directWriter struct{}

func (*directWriter) write(syscall.RawConn, []byte) (int, error) { return 0, nil }
