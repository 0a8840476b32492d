package resourcesync

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// An NDJSONReader reads a stream of changes, one per line, in bounded memory. The stream may
// be of any length: Limits.Bytes bounds each line, and Limits.Entries is ignored. An
// NDJSONReader is not safe for concurrent use.
type NDJSONReader struct {
	r        *bufio.Reader
	max      int64
	parser   ChangeParser
	buf      []byte // line that does not fit in the buffer of r
	text     []byte // line that Next returned last
	line     int    // number of the line read last
	lastLine int    // number of the line that Next returned or failed at last
	err      error  // error that stopped reading; nil if none
}

// NewNDJSONReader returns an NDJSONReader that reads from r. It reads nothing before the first
// call of Next.
func NewNDJSONReader(r io.Reader, l Limits) *NDJSONReader {
	if l.Bytes <= 0 {
		l.Bytes = defaultLineBytes
	}
	return &NDJSONReader{r: bufio.NewReaderSize(r, 16<<10), max: l.Bytes}
}

// Next returns the change on the next line that is not blank. It does not validate the
// change. The change is valid until the next call of Next, but a copy of it remains valid.
// After the last change, Next returns io.EOF. An *Error has the number of the line. After
// an error, Next returns the same error again; see Resume.
func (r *NDJSONReader) Next() (*Change, error) {
	if r.err != nil {
		return nil, r.err
	}
	c, err := r.nextChange()
	if err != nil {
		r.text = nil
		var e *Error
		if errors.As(err, &e) {
			e.Line = r.line
			r.lastLine = r.line
		}
		r.err = err
		return nil, err
	}
	r.lastLine = r.line
	return c, nil
}

// Resume reports whether the next line that is not blank is already in the buffer, so that
// Next does not block. If it is, Resume clears an error that wraps ErrInvalid, so that Next
// continues after the invalid line. Otherwise Resume does nothing. It returns false after
// any other error.
func (r *NDJSONReader) Resume() bool {
	if r.err != nil && !errors.Is(r.err, ErrInvalid) {
		return false
	}
	buffered, _ := r.r.Peek(r.r.Buffered())
	if bytes.IndexByte(bytes.TrimLeft(buffered, " \t\r\n"), '\n') < 0 {
		return false
	}
	r.err = nil
	return true
}

// Line returns the number of the line that Next returned or failed at last. Lines are counted
// from 1, including blank ones.
func (r *NDJSONReader) Line() int { return r.lastLine }

// Bytes returns the line that Next returned last, without the line feed. It is valid until
// the next call of Next, and must not be modified.
func (r *NDJSONReader) Bytes() []byte { return r.text }

// maxBlank is the maximum number of consecutive bytes in blank lines. No client needs more.
const maxBlank = 1 << 20

// nextChange reads and parses the next line that is not blank.
func (r *NDJSONReader) nextChange() (*Change, error) {
	for skipped := 0; ; {
		line, err := r.readLine()
		if err != nil {
			return nil, err
		}
		if isBlank(line) {
			if skipped += len(line) + 1; skipped > maxBlank {
				return nil, &Error{Err: ErrTooLarge, Msg: "too many blank lines; want at most " + groupDigits(maxBlank) + " bytes of them in a row"}
			}
			continue
		}
		r.text = line
		return r.parser.Parse(line)
	}
}

// readLine returns the next line without the line feed. The line is valid until the next
// call.
func (r *NDJSONReader) readLine() ([]byte, error) {
	r.buf = r.buf[:0]
	for started := false; ; {
		part, err := r.r.ReadSlice('\n')
		if len(part) > 0 && !started {
			started = true
			r.line++
		}
		ended := err == nil
		if ended {
			part = part[:len(part)-1]
		}
		if int64(len(r.buf)+len(part)) > r.max {
			return nil, &Error{Err: ErrTooLarge, Msg: "line too long; want at most " + groupDigits(r.max) + " bytes"}
		}
		if ended && len(r.buf) == 0 {
			return part, nil
		}
		r.buf = append(r.buf, part...)
		switch {
		case ended:
			return r.buf, nil
		case err == bufio.ErrBufferFull:
		case err == io.EOF && started:
			return r.buf, nil
		case err == io.EOF:
			return nil, io.EOF
		default:
			return nil, fmt.Errorf("read line: %w", err)
		}
	}
}
