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

// A patience waits before a failed step is tried again. Pebble does not wait: it
// repeats a failed flush at once and for ever, with a message each time, and ends the
// process if it cannot open a new file of the write-ahead log.
type patience struct {
	logger   *slog.Logger
	failures atomic.Int32 // failed writes of tables since the last success
	said     atomic.Int64 // when say last logged, in microseconds
}

const (
	descriptorPause = 50 * time.Millisecond // between two tries to open a file without a free file descriptor
	descriptorWait  = time.Minute           // how long wait tries
	longestPause    = 5 * time.Second       // the longest wait before Pebble gets the error of a failed table
)

// wait opens a file. While the process has no file descriptors left, wait tries again:
// such a failed open has changed nothing.
func wait(p *patience, open func() (vfs.File, error)) (vfs.File, error) {
	end := time.Now().Add(descriptorWait)
	for {
		f, err := open()
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) || time.Now().After(end) {
			return f, err
		}
		p.say("the change memory waits, because there are no file descriptors left", err)
		time.Sleep(descriptorPause)
	}
}

// table returns the result of a step of writing a table. After repeated failures it
// waits before it returns, longer each time. Pebble holds no lock meanwhile.
func (p *patience) table(err error) error {
	if err == nil {
		return nil
	}
	if n := p.failures.Add(1); n > 1 {
		time.Sleep(backoff.Doubled(100*time.Millisecond, longestPause, int(n-2)))
	}
	return err
}

// say logs a message and an error, unless it has done so in the last minute.
func (p *patience) say(msg string, err error) {
	now := time.Now().UnixMicro()
	if last := p.said.Load(); now-last >= time.Minute.Microseconds() && p.said.CompareAndSwap(last, now) {
		p.logger.Error(msg, "err", err)
	}
}

// A table is a file that a flush or a compaction writes.
type table struct {
	vfs.File
	patience *patience
}

func (t table) Write(p []byte) (int, error) {
	n, err := t.File.Write(p)
	return n, t.patience.table(err)
}

func (t table) Sync() error {
	err := t.File.Sync()
	if err == nil {
		t.patience.failures.Store(0)
	}
	return t.patience.table(err)
}
