//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A subscriber is a connection that receives. It has no goroutine and no buffer
// of its own: the reader reads for all of them.
type subscriber struct {
	fd   int
	rest []byte        // the beginning of a message that is not all there
	last [feeds]uint32 // of each publisher, the number of its message that came last
	told string        // in a catch-up, the cursor of the last message
}

// A reader reads many subscribers from one goroutine with epoll.
type reader struct {
	split  splitter
	handle func(s *subscriber, body []byte, at int64) (deliveries int)
	header string        // of each subscriber's request besides, whole lines
	tee    *bufio.Writer // gets all bytes too, where there is only one subscriber; may be nil

	ep        int
	delivered atomic.Int64
	moved     *sync.Cond // something may have been delivered
	quit      atomic.Bool
	ended     chan struct{} // closed when the loop is over

	mu        sync.Mutex // guards what the loop writes
	subs      map[int32]*subscriber
	latencies []uint32 // µs
	disorder  int      // deliveries that did not follow the one before
	closed    []string // why the server closed a connection, for each
	buf       []byte
}

func newReader(split splitter) (*reader, error) {
	ep, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	r := &reader{split: split, ep: ep, moved: sync.NewCond(&sync.Mutex{}), ended: make(chan struct{}),
		subs: map[int32]*subscriber{}, buf: make([]byte, 1<<20)}
	r.handle = r.mark
	return r, nil
}

// run reads until close.
func (r *reader) run() {
	defer close(r.ended)
	events := make([]syscall.EpollEvent, 512)
	for !r.quit.Load() {
		n, err := syscall.EpollWait(r.ep, events, 100)
		if err != nil && err != syscall.EINTR {
			break // who waits for deliveries finds none
		}
		r.mu.Lock()
		for _, ev := range events[:max(n, 0)] {
			if s := r.subs[ev.Fd]; s != nil {
				if err := r.read(s); err != nil {
					r.closed = append(r.closed, err.Error())
					delete(r.subs, ev.Fd)
					_ = syscall.Close(s.fd)
				}
			}
		}
		r.mu.Unlock()
		r.moved.Broadcast()
	}
}

// close ends the loop and the connections.
func (r *reader) close() {
	r.quit.Store(true)
	<-r.ended
	for _, s := range r.subs {
		_ = syscall.Close(s.fd)
	}
	_ = syscall.Close(r.ep)
}

// add takes over a connection, of which rest was read already.
func (r *reader) add(fd int, rest []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &subscriber{fd: fd}
	r.subs[int32(fd)] = s
	if r.tee != nil {
		_, _ = r.tee.Write(rest) // it keeps its error
	}
	if err := r.took(s, rest); err != nil {
		return err
	}
	return syscall.EpollCtl(r.ep, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})
}

// read reads once. An error means that the connection is closed.
func (r *reader) read(s *subscriber) error {
	if len(s.rest) > len(r.buf)/2 {
		r.buf = make([]byte, 2*len(r.buf))
	}
	have := copy(r.buf, s.rest)
	n, err := syscall.Read(s.fd, r.buf[have:])
	switch {
	case n > 0:
		if r.tee != nil {
			_, _ = r.tee.Write(r.buf[have : have+n])
		}
		return r.took(s, r.buf[:have+n])
	case err == syscall.EAGAIN, err == syscall.EINTR:
		return nil
	case err == nil:
		return io.EOF
	}
	return err
}

// took handles the whole messages in b, and keeps the rest.
func (r *reader) took(s *subscriber, b []byte) error {
	at := now()
	deliveries := 0
	for {
		m, rest, ok := r.split(b)
		if !ok {
			break
		}
		b = rest
		switch m.op {
		case opPing:
			_, _ = syscall.Write(s.fd, appendFrame(nil, opPong, m.body, true))
		case opClose:
			return fmt.Errorf("close frame %q", m.body)
		default:
			deliveries += r.handle(s, m.body, at)
		}
	}
	s.rest = append(s.rest[:0], b...)
	r.delivered.Add(int64(deliveries))
	return nil
}

// mark handles a message with marks: one for each publish in the message. It does not count
// messages without marks: the first message only says where the following begins.
func (r *reader) mark(s *subscriber, body []byte, at int64) (deliveries int) {
	for {
		seq, sent, rest, ok := readMark(body)
		if !ok {
			return deliveries
		}
		body = rest
		last := &s.last[seq>>feedShift%feeds]
		if seq = seq << (32 - feedShift) >> (32 - feedShift); seq != *last+1 {
			r.disorder++
		}
		*last = seq
		r.latencies = append(r.latencies, uint32(max(0, at-sent)/1000))
		deliveries++
	}
}

// reset forgets what was measured so far.
func (r *reader) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latencies = r.latencies[:0]
	r.delivered.Store(0)
}

// stall is how long nothing may arrive while something is missing.
const stall = 15 * time.Second

// await returns nil when that many messages were delivered, and an error when no more come.
func (r *reader) await(ctx context.Context, want int64) error {
	r.moved.L.Lock()
	defer r.moved.L.Unlock()
	last, since := r.delivered.Load(), time.Now()
	for last < want {
		r.moved.Wait() // not longer than the loop waits for events
		if n := r.delivered.Load(); n != last {
			last, since = n, time.Now()
		} else if time.Since(since) > stall {
			return fmt.Errorf("LOST: %d of %d deliveries did not come", want-last, want)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// check returns what was wrong besides losses.
func (r *reader) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.disorder > 0:
		return fmt.Errorf("%d deliveries were lost, repeated or OUT OF ORDER", r.disorder)
	case len(r.closed) > 0:
		return fmt.Errorf("%d connections were CLOSED, the first with: %s", len(r.closed), r.closed[0])
	}
	return nil
}

// dialers is how many subscribers connect at a time.
const dialers = 32

// always is the path of each subscriber, for connect.
func always(path string) func(i int) string { return func(int) string { return path } }

// connect adds n subscribers. The i-th of them asks for the URL path path(i).
func (r *reader) connect(addr string, path func(i int) string, events bool, n int) error {
	var wg sync.WaitGroup
	errs := make(chan error, dialers)
	for i := range dialers {
		wg.Go(func() {
			for j := i; j < n; j += dialers {
				fd, rest, err := dial(addr, path(j), r.header, events)
				if err == nil {
					err = r.add(fd, rest)
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// dial opens a WebSocket or an event stream. rest is what came with the answer.
func dial(addr, path, header string, events bool) (fd int, rest []byte, err error) {
	conn, err := net.DialTimeout("tcp", addr, answerTime)
	if err != nil {
		return -1, nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(answerTime))
	head, want := "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", http.StatusSwitchingProtocols
	if events {
		head, want = "Accept: text/event-stream\r\n", http.StatusOK
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%s%s\r\n", path, addr, header, head); err != nil {
		return -1, nil, err
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return -1, nil, err
	}
	if resp.StatusCode != want {
		return -1, nil, fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	rest = make([]byte, in.Buffered())
	if _, err := io.ReadFull(in, rest); err != nil {
		return -1, nil, err
	}
	fd, err = dup(conn.(*net.TCPConn))
	return fd, rest, err
}
