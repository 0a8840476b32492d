package outbound

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// A PacedReader reads a response, and cancels the request if data arrives too slowly, so that a
// slow server does not delay others. Only the time spent in Read counts: processing the data may
// take longer. It must not be used concurrently.
type PacedReader struct {
	in       io.Reader
	bytes    int
	interval time.Duration
	timer    *time.Timer
	slow     atomic.Bool // whether data arrived too slowly

	received int           // bytes since the required pace was last met
	elapsed  time.Duration // time spent reading them
}

// NewPacedReader returns a PacedReader of in. It calls cancel, the cancel function of the request's
// context, if fewer than the given number of bytes arrive in an interval. The caller must call
// Stop.
func NewPacedReader(in io.Reader, bytes int, each time.Duration, cancel context.CancelFunc) *PacedReader {
	p := &PacedReader{in: in, bytes: bytes, interval: each}
	p.timer = time.AfterFunc(each, func() {
		p.slow.Store(true)
		cancel()
	})
	p.timer.Stop()
	return p
}

// Read reads data that has arrived. If data arrives too slowly, the error is a *Failure with
// Timeout.
func (p *PacedReader) Read(b []byte) (int, error) {
	if p.slow.Load() {
		return 0, p.failure()
	}
	begin := time.Now()
	p.timer.Reset(p.interval - p.elapsed)
	n, err := p.in.Read(b)
	p.timer.Stop()
	p.elapsed += time.Since(begin)
	if p.received += n; p.received >= p.bytes {
		p.received, p.elapsed = 0, 0
	}
	if err != nil && err != io.EOF && p.slow.Load() {
		err = p.failure()
	}
	return n, err
}

func (p *PacedReader) failure() *Failure {
	return &Failure{Text: fmt.Sprintf("response is too slow: got less than %d KiB in %v", p.bytes>>10, p.interval), Outcome: Timeout}
}

// Stop stops the timer. Read must not be called afterwards.
func (p *PacedReader) Stop() { p.timer.Stop() }
