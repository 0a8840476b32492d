package outbound

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// A Paced reads an answer, and cancels the request when too little of it comes: a slow server
// must not hold up the others. Only the time of reading counts: the work on the data may take
// longer. One goroutine may use it.
type Paced struct {
	in    io.Reader
	bytes int
	each  time.Duration
	timer *time.Timer
	slow  atomic.Bool // too little data came

	came int           // bytes since the pace was last met
	took time.Duration // time of reading them
}

// NewPaced returns a Paced that reads from in. It calls cancel, the cancel function of the
// request's context, when fewer bytes come in the time each. The caller must call Stop.
func NewPaced(in io.Reader, bytes int, each time.Duration, cancel context.CancelFunc) *Paced {
	p := &Paced{in: in, bytes: bytes, each: each}
	p.timer = time.AfterFunc(each, func() {
		p.slow.Store(true)
		cancel()
	})
	p.timer.Stop()
	return p
}

// Read reads what has come. After too little it returns a *Failure with Timeout.
func (p *Paced) Read(b []byte) (int, error) {
	if p.slow.Load() {
		return 0, p.failure()
	}
	begin := time.Now()
	p.timer.Reset(p.each - p.took)
	n, err := p.in.Read(b)
	p.timer.Stop()
	p.took += time.Since(begin)
	if p.came += n; p.came >= p.bytes {
		p.came, p.took = 0, 0
	}
	if err != nil && err != io.EOF && p.slow.Load() {
		err = p.failure()
	}
	return n, err
}

func (p *Paced) failure() *Failure {
	return &Failure{Text: fmt.Sprintf("it comes too slowly: less than %d KiB in %v", p.bytes>>10, p.each), Outcome: Timeout}
}

// Stop ends the pace. Nothing may be read afterwards.
func (p *Paced) Stop() { p.timer.Stop() }
