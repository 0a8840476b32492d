//go:build linux

package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"unsafe"
)

// feedStart is the beginning of a connection that brings messages to the floor.
const feedStart = "FEED\n"

// A fanoutFloor does the least that a push server can do. It has bare file descriptors, and
// neither a goroutine nor a buffer for each connection. It makes a frame (or an event) of
// each message once, and writes that to each connection with one system call.
type fanoutFloor struct {
	log []byte // what a connection to /replay gets

	mu  sync.Mutex
	fds map[bool][]int // by whether it is an event stream
}

func (s *fanoutFloor) serve(l net.Listener) error {
	s.fds = map[bool][]int{}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_ = s.connection(c.(*net.TCPConn)) // the bench notices by itself
		}()
	}
}

func (s *fanoutFloor) connection(c *net.TCPConn) error {
	in := bufio.NewReader(c)
	if first, err := in.Peek(len(feedStart)); err != nil {
		return err
	} else if string(first) == feedStart {
		_, _ = in.Discard(len(feedStart))
		return s.feed(bufio.NewReaderSize(in, 256<<10))
	}
	req, err := http.ReadRequest(in)
	if err != nil {
		return err
	}
	events := req.Header.Get("Upgrade") == ""
	answer := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
	if events {
		answer = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
	}
	if req.URL.Path == "/replay" {
		return s.replay(c, in, answer)
	}
	s.mu.Lock() // a subscriber that was answered gets every message from then on
	defer s.mu.Unlock()
	if _, err := io.WriteString(c, answer); err != nil {
		return err
	}
	fd, err := dup(c)
	if err != nil {
		return err
	}
	s.fds[events] = append(s.fds[events], fd)
	return nil
}

// replay writes the log, and waits until the client closes.
func (s *fanoutFloor) replay(c *net.TCPConn, in *bufio.Reader, answer string) error {
	if _, err := io.WriteString(c, answer); err != nil {
		return err
	}
	for part := range slices.Chunk(s.log, 256<<10) {
		if _, err := c.Write(part); err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, in) // rshub's pings are in the log, and are answered
	return err
}

// feed writes the messages that in brings.
func (s *fanoutFloor) feed(in *bufio.Reader) error {
	var size [4]byte
	var body, out []byte
	for {
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return err
		}
		body = append(body[:0], make([]byte, binary.BigEndian.Uint32(size[:]))...)
		if _, err := io.ReadFull(in, body); err != nil {
			return err
		}
		s.mu.Lock()
		out = appendFrame(out[:0], opText, body, false)
		s.fds[false] = writeEach(s.fds[false], out)
		out = append(append(append(out[:0], "data: "...), body...), "\n\n"...)
		s.fds[true] = writeEach(s.fds[true], out)
		s.mu.Unlock()
	}
}

// writeEach writes b to every descriptor and returns those that are still open.
func writeEach(fds []int, b []byte) []int {
	open := fds[:0]
	for _, fd := range fds {
		if writeAll(fd, b) {
			open = append(open, fd)
		} else {
			_ = syscall.Close(fd)
		}
	}
	return open
}

// writeAll writes b whole, and waits while the socket is full.
func writeAll(fd int, b []byte) bool {
	for len(b) > 0 {
		n, err := syscall.Write(fd, b)
		switch {
		case err == syscall.EAGAIN:
			waitWritable(fd)
		case err == syscall.EINTR:
		case err != nil:
			return false
		default:
			b = b[n:]
		}
	}
	return true
}

// waitWritable blocks until fd takes more bytes, up to a second.
func waitWritable(fd int) {
	p := struct {
		fd              int32
		events, revents int16
	}{fd: int32(fd), events: 4 /* POLLOUT */}
	timeout := syscall.Timespec{Sec: 1}
	_, _, _ = syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&timeout)), 0, 0, 0)
}

// dup returns a descriptor of c's that Go's runtime knows nothing of. It is
// not blocking. The connection stays open when c is closed.
func dup(c *net.TCPConn) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	var derr error
	err = raw.Control(func(f uintptr) { fd, derr = syscall.Dup(int(f)) })
	if err == nil {
		err = derr
	}
	if err != nil {
		return -1, fmt.Errorf("dup: %w", err)
	}
	syscall.CloseOnExec(fd)
	return fd, nil
}
