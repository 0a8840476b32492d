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

// pieceSize is how many bytes a client must take within a write timeout, where a write that
// times out cannot be tried again. It is the size of a TLS record.
const pieceSize = 16 << 10

// write writes a response in pieces, each with a deadline; of an empty p, the head of the
// response. A client may be slow, but it may not stop. At the end write removes the
// deadline, which over HTTP/2 would end a response even while nothing is written.
func (s *Server) write(w http.ResponseWriter, p []byte) (err error) {
	c := http.NewResponseController(w)
	// Not every ResponseWriter has deadlines; then the server's own hold.
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
	if err != nil && !time.Now().Before(deadline) { // over HTTP/2 the error itself does not say so
		err = errors.Join(err, os.ErrDeadlineExceeded)
	}
	return err
}

// A response is the net.Conn of an event stream whose connection cannot be taken over. Its
// handler calls wait, because net/http ends the response when the handler returns.
type response struct {
	net.Conn // nil: what response does not have is not called

	server *Server
	w      http.ResponseWriter
	ctx    context.Context // done when the client has left, and at the end
	cancel context.CancelFunc

	within sync.RWMutex // held while w is used; once ctx is done, it is not used any more
	late   bool         // a write was not taken in time; guarded by within
}

func newResponse(s *Server, w http.ResponseWriter, r *http.Request) *response {
	ctx, cancel := context.WithCancel(r.Context())
	return &response{server: s, w: w, ctx: ctx, cancel: cancel}
}

// wait blocks until the response has ended and w is not used any more.
func (r *response) wait() {
	<-r.ctx.Done()
	r.within.Lock()
	defer r.within.Unlock()
	r.cancel()
}

// Read waits for the end. No client sends anything that a handler can read. A write that
// times out over HTTP/2 looks to net/http as if the client had left, and so Read tells it.
func (r *response) Read([]byte) (int, error) {
	if r.wait(); r.late {
		return 0, errTooSlow
	}
	return 0, io.EOF
}

// use calls do, unless the response has ended.
func (r *response) use(do func() error) error {
	r.within.RLock()
	defer r.within.RUnlock()
	if r.ctx.Err() != nil {
		return net.ErrClosed
	}
	return do()
}

// Write has a deadline of its own, and removes every other one.
func (r *response) Write(p []byte) (n int, err error) {
	err = r.use(func() error {
		err := r.server.write(r.w, p)
		r.late = r.late || errors.Is(err, os.ErrDeadlineExceeded)
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

// CloseWrite ends the response properly.
func (r *response) CloseWrite() error {
	r.cancel()
	return nil
}

// Close also ends a Write that waits.
func (r *response) Close() error {
	defer r.cancel()
	return r.SetWriteDeadline(time.Now())
}
