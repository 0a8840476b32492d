package subscribe

import (
	"bytes"
	"io"
	"net/http/httputil"

	"github.com/rshub/rshub/feed"
)

// WithoutPoller makes a server do as on a system that has no poller. It is called before
// the first request.
func WithoutPoller(s *Server) { s.newPoller = func() *poller { return nil } }

// Polled returns how many connections wait in the poller, and so have no goroutine that
// reads.
func Polled(s *Server) (n int) {
	s.mu.Lock()
	p := s.poller
	s.mu.Unlock()
	for _, c := range s.conns() {
		if c.waits(p) {
			n++
		}
	}
	return n
}

// WithoutTakeOver makes a server leave event streams to net/http.
func WithoutTakeOver(s *Server) { s.takesOver = false }

// EventBothWays returns the event of a batch, from the chunk of a stream that was taken
// over, and as it is written to net/http.
func EventBothWays(b *feed.Batch) (fast, slow []byte) {
	fast, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(append(bytes.Clone(b.In(plain.events)), lastChunks(plain, nil)...))))
	if err != nil {
		return []byte(err.Error()), nil
	}
	e := eventWriter{coding: plain}
	e.event(b)
	return fast, e.buf
}
