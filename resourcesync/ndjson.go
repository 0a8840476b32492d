package resourcesync

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// An NDJSONReader reads a stream of changes, one on each line, in bounded memory. The
// stream may have any length. Of its Limits, Bytes bounds one line, and Entries has
// no effect. Only one goroutine may use it at a time.
type NDJSONReader struct {
	in     *bufio.Reader
	max    int64
	parser ChangeParser
	buf    []byte // a line that does not fit into the buffer of in
	last   []byte // the line of the last change
	line   int    // number of the line that was read last
	at     int    // number of the line that Next returned last, or failed at
	err    error  // the error that ended the reading, if any
}

// NewNDJSONReader returns an NDJSONReader of r. It reads nothing until Next.
func NewNDJSONReader(r io.Reader, l Limits) *NDJSONReader {
	if l.Bytes <= 0 {
		l.Bytes = defaultLineBytes
	}
	return &NDJSONReader{in: bufio.NewReaderSize(r, 16<<10), max: l.Bytes}
}

// Next returns the change on the next line that is not blank. The change is not
// validated. It is valid until the next call of Next; a copy of it stays valid. After the
// last change Next returns io.EOF. An *Error has the number of the line. After an error,
// Next returns the same error again and again.
func (r *NDJSONReader) Next() (*Change, error) {
	if r.err != nil {
		return nil, r.err
	}
	c, err := r.next()
	if err != nil {
		r.last = nil
		var e *Error
		if errors.As(err, &e) {
			e.Line = r.line
			r.at = r.line
		}
		r.err = err
		return nil, err
	}
	r.at = r.line
	return c, nil
}

// Resume lets Next go on behind a line that is wrong. It reports whether the next line that
// is not blank has come already, so that Next does not wait for it; if not, it does nothing.
func (r *NDJSONReader) Resume() bool {
	if r.err != nil && !errors.Is(r.err, ErrInvalid) {
		return false
	}
	come, _ := r.in.Peek(r.in.Buffered())
	if bytes.IndexByte(bytes.TrimLeft(come, " \t\r\n"), '\n') < 0 {
		return false
	}
	r.err = nil
	return true
}

// Line returns the number of the line that Next returned last, or failed at. Lines are
// counted from 1, and blank lines count.
func (r *NDJSONReader) Line() int { return r.at }

// Bytes returns the text of the line that Next returned last, without the line end. It
// is valid until the next call of Next.
func (r *NDJSONReader) Bytes() []byte { return r.last }

// maxBlank is how many bytes of blank lines there may be in a row: nobody needs more.
const maxBlank = 1 << 20

func (r *NDJSONReader) next() (*Change, error) {
	for skipped := 0; ; {
		line, err := r.readLine()
		if err != nil {
			return nil, err
		}
		if blank(line) {
			if skipped += len(line) + 1; skipped > maxBlank {
				return nil, &Error{Err: ErrTooLarge, Msg: "blank lines have at most " + group(maxBlank) + " bytes together"}
			}
			continue
		}
		r.last = line
		return r.parser.Parse(line)
	}
}

// readLine returns the next line without its end. The line is valid until the next
// call.
func (r *NDJSONReader) readLine() ([]byte, error) {
	r.buf = r.buf[:0]
	for begun := false; ; {
		part, err := r.in.ReadSlice('\n')
		if len(part) > 0 && !begun {
			begun = true
			r.line++
		}
		ended := err == nil
		if ended {
			part = part[:len(part)-1]
		}
		if int64(len(r.buf)+len(part)) > r.max {
			return nil, &Error{Err: ErrTooLarge, Msg: "a line has at most " + group(r.max) + " bytes"}
		}
		if ended && len(r.buf) == 0 {
			return part, nil
		}
		r.buf = append(r.buf, part...)
		switch {
		case ended:
			return r.buf, nil
		case err == bufio.ErrBufferFull:
		case err == io.EOF && begun:
			return r.buf, nil
		case err == io.EOF:
			return nil, io.EOF
		default:
			return nil, fmt.Errorf("read line: %w", err)
		}
	}
}
