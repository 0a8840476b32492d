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

// A patience waits before something is tried again that failed. Pebble does not: it
// begins a failed flush again at once and for ever, with a message each time, and a new
// file of the write-ahead log that cannot be opened ends the process.
type patience struct {
	logger   *slog.Logger
	failures atomic.Int32 // of writing tables, since one was written
	said     atomic.Int64 // when say last said something, in microseconds
}

const (
	descriptorPause = 50 * time.Millisecond // between two tries to open a file when there is no file descriptor
	descriptorWait  = time.Minute           // how long it is tried
	longestPause    = 5 * time.Second       // before a table that failed again and again is given back to Pebble
)

// wait opens a file. While the process has no file descriptors left, wait tries again:
// an open that failed for that reason has changed nothing.
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

// table takes the outcome of a step of writing a table, and returns it. If tables fail
// again and again, it waits before that, longer each time. Pebble holds no lock
// meanwhile.
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
