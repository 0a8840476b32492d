package disklog

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rshub/rshub/internal/backoff"
)

// A retrier delays the retries of failed file operations. Pebble does not: it repeats a failed flush
// immediately and forever, with a message each time, and ends the process if it cannot open a new
// file of the write-ahead log.
type retrier struct {
	logger     *slog.Logger
	failures   atomic.Int32 // failed writes of tables since the last success
	lastLogged atomic.Int64 // time of the last message of logOccasionally, in microseconds since 1970
}

const (
	descriptorRetry   = 50 * time.Millisecond // between attempts to open a file while no file descriptor is free
	descriptorTimeout = time.Minute           // time after which openRetrying gives up
	maxErrorDelay     = 5 * time.Second       // maximum delay of an error of a table
)

// openRetrying calls open, and retries it for at most descriptorTimeout while the process or the system
// has no free file descriptor. That is safe, because such a failed call has changed nothing.
func openRetrying(p *retrier, open func() (vfs.File, error)) (vfs.File, error) {
	end := time.Now().Add(descriptorTimeout)
	for {
		f, err := open()
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) || time.Now().After(end) {
			return f, err
		}
		p.logOccasionally("change memory: waiting for a free file descriptor", err)
		time.Sleep(descriptorRetry)
	}
}

// delayError returns err, the result of an operation on a table file. After repeated failures it
// sleeps before it returns, longer each time. Pebble holds no lock during that time.
func (p *retrier) delayError(err error) error {
	if err == nil {
		return nil
	}
	if n := p.failures.Add(1); n > 1 {
		time.Sleep(backoff.Exponential(100*time.Millisecond, maxErrorDelay, int(n-2)))
	}
	return err
}

// logOccasionally logs a message and an error, at most once per minute.
func (p *retrier) logOccasionally(msg string, err error) {
	now := time.Now().UnixMicro()
	if last := p.lastLogged.Load(); now-last >= time.Minute.Microseconds() && p.lastLogged.CompareAndSwap(last, now) {
		p.logger.Error(msg, "err", err)
	}
}

// A tableFile is the file of a table that a flush or a compaction writes.
type tableFile struct {
	vfs.File
	retrier *retrier
}

func (t tableFile) Write(p []byte) (int, error) {
	n, err := t.File.Write(p)
	return n, t.retrier.delayError(err)
}

func (t tableFile) Sync() error {
	err := t.File.Sync()
	if err == nil {
		t.retrier.failures.Store(0)
	}
	return t.retrier.delayError(err)
}
