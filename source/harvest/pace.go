package harvest

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/outbound"
)

// An answer is given up if fewer than these bytes come in this time. A slow source must
// not hold up the others.
const (
	paceTime  = 10 * time.Second
	paceBytes = 32 << 10
)

// A paced reads an answer, and cancels the request when too little of it comes. Only the
// time of reading counts: the work on the data may take longer.
type paced struct {
	io.Reader
	timer *time.Timer
	slow  atomic.Bool // too little data came

	// Only the reading goroutine may use these.
	came int           // bytes since the pace was last met
	took time.Duration // time of reading them
}

func newPaced(r io.Reader, cancel context.CancelFunc) *paced {
	p := &paced{Reader: r}
	p.timer = time.AfterFunc(paceTime, func() {
		p.slow.Store(true)
		cancel()
	})
	p.timer.Stop()
	return p
}

// Read reads what has come.
func (p *paced) Read(b []byte) (int, error) {
	if p.slow.Load() {
		return 0, errSlow
	}
	begin := time.Now()
	p.timer.Reset(paceTime - p.took)
	n, err := p.Reader.Read(b)
	p.timer.Stop()
	p.took += time.Since(begin)
	if p.came += n; p.came >= paceBytes {
		p.came, p.took = 0, 0
	}
	if err != nil && err != io.EOF && p.slow.Load() {
		err = errSlow
	}
	return n, err
}

func (p *paced) stop() { p.timer.Stop() }

var errSlow = &outbound.Failure{Text: fmt.Sprintf("it comes too slowly: less than %d KiB in %v", paceBytes>>10, paceTime), Outcome: outbound.Timeout}
