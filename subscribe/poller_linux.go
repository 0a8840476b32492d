package subscribe

import (
	"os"
	"sync"
	"syscall"
	"time"
)

// A poller waits for input of all connections whose clients say nothing. It is good for
// the memory of idle connections: a goroutine that waits for input takes 4.5 KB.
//
// A poller reads nothing. When there is input of a connection, the connection gets a
// goroutine that reads (conn.read). The connection comes back when that goroutine has
// read whole frames. Without a poller, each connection has that goroutine all the time.
// All else is the same.
type poller struct {
	fd    int             // an epoll
	file  *os.File        // fd, so that Go's runtime waits for it without a thread
	raw   syscall.RawConn // of file
	ended chan struct{}   // closed when run has ended

	mu      sync.Mutex // is taken after conn.mu
	waiting []*conn    // by file descriptor; nil: nobody waits for its input here
}

// newPoller returns a poller that runs, or nil if the system has none. The caller
// closes it.
func newPoller() *poller {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	_ = syscall.SetNonblock(fd, true) // otherwise os takes it for a file that nobody can wait for
	p := &poller{fd: fd, file: os.NewFile(uintptr(fd), "epoll"), ended: make(chan struct{})}
	if p.raw, err = p.file.SyscallConn(); err != nil || p.file.SetReadDeadline(time.Time{}) != nil { // os cannot wait for it
		_ = p.file.Close()
		return nil
	}
	go p.run()
	return p
}

// run hands out connections that have input, until close.
func (p *poller) run() {
	defer close(p.ended)
	events := make([]syscall.EpollEvent, 128)
	_ = p.raw.Read(func(uintptr) bool {
		for {
			n, err := syscall.EpollWait(p.fd, events, 0)
			if n <= 0 && err != syscall.EINTR {
				return false // it is called again when there is input
			}
			p.mu.Lock()
			for _, e := range events[:max(n, 0)] {
				p.handOutLocked(int(e.Fd))
			}
			p.mu.Unlock()
		}
	})
}

// close ends the poller, and waits for its end. No connection may be left to it then.
func (p *poller) close() {
	_ = p.file.Close()
	<-p.ended
}

// oneShot means that epoll tells of a socket once, and then again only after the next
// call of wait.
const oneShot = 1 << 30 // EPOLLONESHOT, which package syscall lacks

// wait leaves it to the poller to wait for c's input. It reports whether it did. If so,
// the caller, which is c's reader, must not read any more.
func (p *poller) wait(c *conn) (waits bool) {
	if p == nil {
		return false
	}
	_ = c.raw.Control(func(fd uintptr) { // which fails if the socket is closed
		p.mu.Lock()
		defer p.mu.Unlock()
		if c.unpolled {
			return
		}
		op := syscall.EPOLL_CTL_MOD
		if !c.polled {
			op = syscall.EPOLL_CTL_ADD
		}
		if syscall.EpollCtl(p.fd, op, int(fd), &syscall.EpollEvent{Events: syscall.EPOLLIN | oneShot, Fd: int32(fd)}) != nil {
			return
		}
		for len(p.waiting) <= int(fd) {
			p.waiting = append(p.waiting, nil)
		}
		c.server.wg.Add(1) // it counts as a goroutine
		c.polled, c.fd, p.waiting[fd], waits = true, int32(fd), c, true
	})
	return waits
}

// leave gives c a goroutine that reads, if it has none, and c does not wait here any
// more. It is called before c's socket is closed, because epoll forgets a closed socket
// without a word, and its file descriptor is soon another connection's. And it is called
// when there is a deadline for input, which only a goroutine that reads meets.
func (p *poller) leave(c *conn) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c.unpolled = true
	if p.hasLocked(c) {
		p.handOutLocked(int(c.fd))
	}
}

// hasLocked reports whether c waits.
func (p *poller) hasLocked(c *conn) bool { return int(c.fd) < len(p.waiting) && p.waiting[c.fd] == c }

// handOutLocked gives the connection that waits for input of a file descriptor a
// goroutine that reads.
func (p *poller) handOutLocked(fd int) {
	c := p.waiting[fd]
	if c == nil {
		return // it was handed out meanwhile
	}
	p.waiting[fd] = nil
	go func() {
		defer c.server.wg.Done()
		c.read()
	}()
}
