package trail

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/internal/backoff"
)

const (
	writeInterval = 200 * time.Millisecond // time between two writes of queued records
	checkInterval = time.Second            // time between two checks whether the file is still at its path, and between writes of the flood lines
	maxQueue      = 16_384                 // maximum number of queued records
	maxSingle     = 20                     // maximum number of unsuccessful requests per second that get a line each
	maxFloods     = 100                    // maximum number of lines per second that count further unsuccessful requests by client
)

// Stderr is the name of standard error, in place of a file's path.
const Stderr = "stderr"

// A Log writes Records to a file or to standard error. If the file is renamed or removed, the Log
// creates a new one within a second. A failed write is counted, logged, and retried with the next
// records; it blocks no request. If Records arrive too fast, some are lost, and a line in their
// place has their number. It is safe for concurrent use.
type Log struct {
	path string // empty for standard error
	log  *slog.Logger

	mu     sync.Mutex
	queue  []Record
	single int              // lines of unsuccessful requests in this second
	floods map[flood]uint64 // further unsuccessful requests in this second
	lost   uint64           // lost records since the last line that reported them
	err    error            // error of the last write or open
	closed bool

	lines, missing atomic.Uint64 // numbers of written and of missing lines

	reopen     backoff.Wakeup
	stop, done chan struct{}

	// Accessed only by the goroutine of run.
	out     io.Writer
	file    *os.File // nil for standard error, or if the file could not be opened
	spare   []Record
	buf     []byte
	partial bool  // whether the file ends with an incomplete line
	openErr error // why the file at the path could not be opened; nil if it is open
}

// A flood identifies requests that share a line.
type flood struct {
	action Action
	status int
	from   netip.Addr // for IPv6 the first address of the /64; the zero Addr for any client
}

// Open opens the audit log at a path, which may be Stderr, and starts writing. It creates the file
// if necessary, readable by its owner only. The caller must close the Log.
func Open(path string, log *slog.Logger) (*Log, error) {
	l := &Log{path: path, log: log, floods: map[flood]uint64{}, reopen: backoff.NewWakeup(), stop: make(chan struct{}), done: make(chan struct{})}
	if path == Stderr {
		l.path, l.out = "", os.Stderr
	} else if err := l.openFile(); err != nil {
		return nil, err
	}
	go l.run()
	return l, nil
}

// Add queues the record of a request. status is the status of the response, zero if there was none.
// Add does not block.
func (l *Log) Add(r *Record, status int) {
	r.status = status
	outcome := r.outcome()
	if outcome == "" {
		return
	}
	r.at = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if outcome != done {
		if l.single >= maxSingle {
			l.countLocked(r)
			return
		}
		l.single++
	}
	if len(l.queue) >= maxQueue || l.closed {
		l.lost++
		l.missing.Add(1)
		return
	}
	l.queue = append(l.queue, *r)
}

// countLocked counts a request in a line that it shares with others. The caller must hold l.mu.
func (l *Log) countLocked(r *Record) {
	key := flood{cmp.Or(r.Action, Request), r.status, r.Client}
	if r.Client.Is6() {
		network, _ := r.Client.Prefix(64) // cannot fail: 64 is valid for IPv6
		key.from = network.Addr()
	}
	if _, ok := l.floods[key]; !ok && len(l.floods) >= maxFloods {
		key.from, key.action = netip.Addr{}, Request
	}
	l.floods[key]++
}

// Reopen makes the Log reopen its file soon, for example after the file was renamed.
func (l *Log) Reopen() {
	l.reopen.Wake()
}

// Close writes the queued records and closes the file.
func (l *Log) Close() {
	close(l.stop)
	<-l.done
}

// Lines returns the number of lines written.
func (l *Log) Lines() uint64 { return l.lines.Load() }

// Lost returns the number of records that were not written, because too many arrived or a write
// failed.
func (l *Log) Lost() uint64 { return l.missing.Load() }

// Err returns the error of the last write, or nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// run writes until Close is called.
func (l *Log) run() {
	defer close(l.done)
	write, look := time.NewTicker(writeInterval), time.NewTicker(checkInterval)
	defer write.Stop()
	defer look.Stop()
	for {
		select {
		case <-write.C:
		case <-look.C:
			l.checkFile()
			l.queueFloods()
		case <-l.reopen:
			l.write() // to the old file
			l.setErr(l.openFile())
		case <-l.stop:
			l.queueFloods()
			l.mu.Lock()
			l.closed = true
			l.mu.Unlock()
			l.write()
			if l.file != nil {
				l.setErr(errors.Join(l.file.Sync(), l.file.Close()))
			}
			return
		}
		l.write()
	}
}

// queueFloods queues records of the requests that were only counted.
func (l *Log) queueFloods() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, n := range l.floods {
		l.queue = append(l.queue, Record{Action: key.action, Client: key.from, at: time.Now(), status: key.status, count: n})
	}
	clear(l.floods)
	l.single = 0
}

// write writes the queued records.
func (l *Log) write() {
	l.mu.Lock()
	records, lost := l.queue, l.lost
	l.queue, l.lost = l.spare[:0], 0
	l.mu.Unlock()
	l.spare = records
	for i := range records {
		l.buf = records[i].append(l.buf)
		if len(l.buf) > 64<<10 || l.path == "" { // standard error is shared, so each line is one write
			l.flush(0)
		}
	}
	clear(records)
	if lost > 0 {
		l.buf = appendLostLine(l.buf, time.Now(), lost)
	}
	l.flush(lost)
}

// flush writes the lines in the buffer. If lost is not zero, the last of them reports that many
// lost records.
func (l *Log) flush(lost uint64) {
	if len(l.buf) == 0 {
		return
	}
	lines := uint64(bytes.Count(l.buf, newline))
	if l.partial {
		l.buf = append([]byte{'\n'}, l.buf...)
	}
	n, err := 0, error(nil)
	if l.out == nil {
		err = l.openFile()
	}
	if l.out != nil {
		if n, err = l.out.Write(l.buf); n > 0 {
			l.partial = l.buf[n-1] != '\n'
		}
	}
	if err != nil {
		err = fmt.Errorf("write audit log: %w", err)
		missing := min(uint64(bytes.Count(l.buf[n:], newline)), lines)
		lines -= missing
		if lost > 0 {
			missing-- // the last line is not a record
		}
		l.missing.Add(missing)
		l.mu.Lock()
		l.lost += missing + lost
		l.mu.Unlock()
	}
	l.lines.Add(lines)
	l.buf = l.buf[:0]
	l.setErr(err)
}

var newline = []byte{'\n'}

// setErr records the result of the last write, and logs changes between failure and success.
func (l *Log) setErr(err error) {
	l.mu.Lock()
	if err == nil {
		err = l.openErr // writes go to a file that is no longer at the path
	}
	before := l.err
	l.err = err
	l.mu.Unlock()
	switch {
	case err != nil && before == nil:
		l.log.Error("writing the audit log failed; lines are lost", "err", err)
	case err == nil && before != nil:
		l.log.Info("writing the audit log works again", "lost", l.Lost())
	}
}

// checkFile reopens the file if another file, or no file, is at its path.
func (l *Log) checkFile() {
	if l.path == "" {
		return
	}
	if l.file != nil {
		info, err := os.Stat(l.path)
		open, err2 := l.file.Stat()
		if err == nil && err2 == nil && os.SameFile(info, open) {
			if l.openErr != nil { // the file is back at the path
				l.openErr = nil
				l.setErr(nil)
			}
			return
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
		l.write() // to the old file
	}
	l.setErr(l.openFile())
}

// openFile opens the file. If that fails, the previous file stays open.
func (l *Log) openFile() error {
	if l.path == "" {
		return nil
	}
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		l.openErr = fmt.Errorf("open audit log: %w", err)
		return l.openErr
	}
	l.openErr = nil
	if l.file != nil {
		_ = l.file.Close() // its contents are already written
	}
	l.file, l.out, l.partial = f, f, false
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, info.Size()-1); err == nil {
			l.partial = last[0] != '\n' // a hub was killed while writing
		}
	}
	return nil
}
