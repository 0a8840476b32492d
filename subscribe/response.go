package subscribe

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// pieceSize is the number of bytes that a client must accept within a write timeout if a write
// that timed out cannot be retried. It is the size of a TLS record.
const pieceSize = 16 << 10

// write writes p to a response in pieces, each with a deadline. If p is empty, it writes the
// header of the response. At the end write clears the deadline, which over HTTP/2 would end a
// response even while nothing is written.
func (s *Server) write(w http.ResponseWriter, p []byte) (err error) {
	c := http.NewResponseController(w)
	// Not every ResponseWriter has deadlines; the server's own then apply.
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }()
	var deadline time.Time
	for more := true; more && err == nil; more = len(p) > 0 {
		n := min(len(p), pieceSize)
		deadline = time.Now().Add(s.opts.WriteTimeout)
		_ = c.SetWriteDeadline(deadline)
		_, err = w.Write(p[:n])
		p = p[n:]
	}
	if err == nil {
		err = c.Flush()
	}
	if err != nil && !time.Now().Before(deadline) { // over HTTP/2 the error itself does not tell
		err = errors.Join(err, os.ErrDeadlineExceeded)
	}
	return err
}

// A response is the net.Conn of an event stream whose connection cannot be hijacked. Its handler
// calls wait, because net/http ends the response when the handler returns.
type response struct {
	net.Conn // nil; the methods that response lacks are not called

	server *Server
	w      http.ResponseWriter
	ctx    context.Context // done when the client leaves, or the response ends
	cancel context.CancelFunc

	useMu    sync.RWMutex // held while w is used; w is no longer used once ctx is done
	timedOut bool         // a write timed out; guarded by within
}

func newResponse(s *Server, w http.ResponseWriter, r *http.Request) *response {
	ctx, cancel := context.WithCancel(r.Context())
	return &response{server: s, w: w, ctx: ctx, cancel: cancel}
}

// wait blocks until the response has ended and w is no longer used.
func (r *response) wait() {
	<-r.ctx.Done()
	r.useMu.Lock()
	defer r.useMu.Unlock()
	r.cancel()
}

// Read blocks until the response has ended, because no client sends anything that a handler can
// read. A write that times out over HTTP/2 looks to net/http as if the client had left, so Read
// returns errTooSlow.
func (r *response) Read([]byte) (int, error) {
	if r.wait(); r.timedOut {
		return 0, errTooSlow
	}
	return 0, io.EOF
}

// use calls do unless the response has ended.
func (r *response) use(do func() error) error {
	r.useMu.RLock()
	defer r.useMu.RUnlock()
	if r.ctx.Err() != nil {
		return net.ErrClosed
	}
	return do()
}

// Write sets a deadline of its own, and clears any other.
func (r *response) Write(p []byte) (n int, err error) {
	err = r.use(func() error {
		err := r.server.write(r.w, p)
		r.timedOut = r.timedOut || errors.Is(err, os.ErrDeadlineExceeded)
		return err
	})
	if err == nil {
		n = len(p)
	}
	return n, err
}

func (r *response) SetWriteDeadline(t time.Time) error {
	return r.use(func() error { return http.NewResponseController(r.w).SetWriteDeadline(t) })
}

func (r *response) SetDeadline(t time.Time) error { return r.SetWriteDeadline(t) }

// CloseWrite ends the response cleanly.
func (r *response) CloseWrite() error {
	r.cancel()
	return nil
}

// Close ends the response and unblocks a Write.
func (r *response) Close() error {
	defer r.cancel()
	return r.SetWriteDeadline(time.Now())
}
