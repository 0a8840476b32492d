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
	writeEvery = 200 * time.Millisecond // how often waiting records are written
	lookEvery  = time.Second            // how often a Log checks whether its file is still there, and writes the lines of floods
	mostWait   = 16_384                 // the most records that may wait
	mostSingle = 20                     // requests a second that were not carried out and have a line each
	mostCounts = 100                    // lines a second that count further such requests by client
)

// Stderr is the name of standard error, in place of a file's path.
const Stderr = "stderr"

// A Log writes Records to a file or to standard error. If the file is renamed or removed,
// the Log makes a new one within a second. A failed write is counted, logged, and tried
// again with the next records; it blocks no request. If too many Records come, some are
// lost, and a line in their place says how many.
type Log struct {
	path string // empty: standard error
	log  *slog.Logger

	mu     sync.Mutex
	wait   []Record
	single int              // lines of requests that were not carried out, in this second
	floods map[flood]uint64 // further such requests in this second
	lost   uint64           // lost records since the last line that says so
	err    error            // error of the last write, or why the file could not be opened
	closed bool

	lines, missing atomic.Uint64 // lines that were written, and that are missing

	reopen     backoff.Wakeup
	stop, done chan struct{}

	// Only the goroutine of run uses these.
	out   io.Writer
	file  *os.File // nil: standard error, or a file that could not be opened
	spare []Record
	buf   []byte
	torn  bool  // the file does not end with a whole line
	away  error // why the file at the path could not be opened; nil: it is open
}

// A flood is what the requests that share a line have in common.
type flood struct {
	action Action
	status int
	from   netip.Addr // for IPv6 the first address of the /64; the zero Addr: anybody
}

// Open opens the audit log at a path, which may be Stderr, and begins to write. The caller
// closes it. A file is made if there is none, and only its owner can read it.
func Open(path string, log *slog.Logger) (*Log, error) {
	l := &Log{path: path, log: log, floods: map[flood]uint64{}, reopen: backoff.NewWakeup(), stop: make(chan struct{}), done: make(chan struct{})}
	if path == Stderr {
		l.path, l.out = "", os.Stderr
	} else if err := l.open(); err != nil {
		return nil, err
	}
	go l.run()
	return l, nil
}

// Add adds the record of a request. status is the status of its answer; 0: it had no
// answer. It does not block.
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
		if l.single >= mostSingle {
			l.countLocked(r)
			return
		}
		l.single++
	}
	if len(l.wait) >= mostWait || l.closed {
		l.lost++
		l.missing.Add(1)
		return
	}
	l.wait = append(l.wait, *r)
}

// countLocked counts a request in a line that it shares with others.
func (l *Log) countLocked(r *Record) {
	key := flood{cmp.Or(r.Action, Request), r.status, r.Client}
	if r.Client.Is6() {
		network, _ := r.Client.Prefix(64) // 64 is a length that IPv6 has
		key.from = network.Addr()
	}
	if _, ok := l.floods[key]; !ok && len(l.floods) >= mostCounts {
		key.from, key.action = netip.Addr{}, Request
	}
	l.floods[key]++
}

// Reopen makes the Log open its file again soon, for instance after the file
// was renamed.
func (l *Log) Reopen() {
	l.reopen.Wake()
}

// Close writes the waiting records, and closes the file.
func (l *Log) Close() {
	close(l.stop)
	<-l.done
}

// Lines returns how many lines were written.
func (l *Log) Lines() uint64 { return l.lines.Load() }

// Lost returns how many records have no line, because too many came or a write failed.
func (l *Log) Lost() uint64 { return l.missing.Load() }

// Err returns why the last write failed, or nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// run writes until Close.
func (l *Log) run() {
	defer close(l.done)
	write, look := time.NewTicker(writeEvery), time.NewTicker(lookEvery)
	defer write.Stop()
	defer look.Stop()
	for {
		select {
		case <-write.C:
		case <-look.C:
			l.look()
			l.endSecond()
		case <-l.reopen:
			l.write() // to the old file
			l.note(l.open())
		case <-l.stop:
			l.endSecond()
			l.mu.Lock()
			l.closed = true
			l.mu.Unlock()
			l.write()
			if l.file != nil {
				l.note(errors.Join(l.file.Sync(), l.file.Close()))
			}
			return
		}
		l.write()
	}
}

// endSecond makes records of the requests that were only counted.
func (l *Log) endSecond() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, n := range l.floods {
		l.wait = append(l.wait, Record{Action: key.action, Client: key.from, at: time.Now(), status: key.status, count: n})
	}
	clear(l.floods)
	l.single = 0
}

// write writes the waiting records.
func (l *Log) write() {
	l.mu.Lock()
	records, lost := l.wait, l.lost
	l.wait, l.lost = l.spare[:0], 0
	l.mu.Unlock()
	l.spare = records
	for i := range records {
		l.buf = records[i].append(l.buf)
		if len(l.buf) > 64<<10 || l.path == "" { // others write to standard error, too, so each line is one write
			l.flush(0)
		}
	}
	clear(records)
	if lost > 0 {
		l.buf = lostLine(l.buf, time.Now(), lost)
	}
	l.flush(lost)
}

// flush writes the lines in the buffer. If lost is not 0, the last of them says that so many
// were lost.
func (l *Log) flush(lost uint64) {
	if len(l.buf) == 0 {
		return
	}
	lines := uint64(bytes.Count(l.buf, newline))
	if l.torn {
		l.buf = append([]byte{'\n'}, l.buf...)
	}
	n, err := 0, error(nil)
	if l.out == nil {
		err = l.open()
	}
	if l.out != nil {
		if n, err = l.out.Write(l.buf); n > 0 {
			l.torn = l.buf[n-1] != '\n'
		}
	}
	if err != nil {
		err = fmt.Errorf("write the audit log: %w", err)
		missing := min(uint64(bytes.Count(l.buf[n:], newline)), lines)
		lines -= missing
		if lost > 0 {
			missing-- // the last line only says how many records were lost
		}
		l.missing.Add(missing)
		l.mu.Lock()
		l.lost += missing + lost
		l.mu.Unlock()
	}
	l.lines.Add(lines)
	l.buf = l.buf[:0]
	l.note(err)
}

var newline = []byte{'\n'}

// note notes whether the last write failed, and logs when that changes.
func (l *Log) note(err error) {
	l.mu.Lock()
	if err == nil {
		err = l.away // writes go to a file that is not at the path any more
	}
	before := l.err
	l.err = err
	l.mu.Unlock()
	switch {
	case err != nil && before == nil:
		l.log.Error("the audit log cannot be written, and lines are lost", "err", err)
	case err == nil && before != nil:
		l.log.Info("the audit log can be written again", "lost", l.Lost())
	}
}

// look opens the file again if another file, or no file, is at its path.
func (l *Log) look() {
	if l.path == "" {
		return
	}
	if l.file != nil {
		info, err := os.Stat(l.path)
		open, err2 := l.file.Stat()
		if err == nil && err2 == nil && os.SameFile(info, open) {
			if l.away != nil { // the file is back at the path
				l.away = nil
				l.note(nil)
			}
			return
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
		l.write() // to the old file
	}
	l.note(l.open())
}

// open opens the file. If that fails, the file before stays open.
func (l *Log) open() error {
	if l.path == "" {
		return nil
	}
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		l.away = fmt.Errorf("open the audit log: %w", err)
		return l.away
	}
	l.away = nil
	if l.file != nil {
		_ = l.file.Close() // what was written to it was written
	}
	l.file, l.out, l.torn = f, f, false
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, info.Size()-1); err == nil {
			l.torn = last[0] != '\n' // a hub was killed during a write
		}
	}
	return nil
}
