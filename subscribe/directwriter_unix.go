//go:build unix

package subscribe

import (
	"errors"
	"syscall"
)

// A directWriter writes to sockets without waiting. It is not safe for concurrent use. It caches
// the closure that each write needs, so that a write does not allocate.
type directWriter struct {
	buf  []byte
	n    int
	err  error
	call func(fd uintptr) bool
}

// write writes as much of buf as the socket accepts immediately. A short count is not an error.
// If raw is nil, because the connection is not a socket, write writes nothing.
func (w *directWriter) write(raw syscall.RawConn, buf []byte) (int, error) {
	if raw == nil {
		return 0, nil
	}
	if w.call == nil {
		w.call = w.once
	}
	w.buf, w.n = buf, 0
	err := raw.Write(w.call)
	w.buf = nil
	if err == nil {
		err = w.err
	}
	return w.n, err
}

func (w *directWriter) once(fd uintptr) bool {
	for {
		w.n, w.err = syscall.Write(int(fd), w.buf)
		switch {
		case errors.Is(w.err, syscall.EINTR):
			continue
		case errors.Is(w.err, syscall.EAGAIN):
			w.err = nil
		}
		w.n = max(w.n, 0)
		return true // never wait
	}
}
