package fetch

import (
	"errors"
	"io"
)

// A Memory is a File in memory. Only one goroutine may use it.
type Memory struct {
	Most int // bytes that it may have

	text []byte
	at   int64
}

// ErrTooLong means that more than Memory.Most bytes came.
var ErrTooLong = errors.New("there are more bytes than are taken")

// Bytes returns what was written. It is good until the next Write.
func (m *Memory) Bytes() []byte { return m.text }

// Write, Read, Seek and Truncate are those of a File. Nothing can be left out between two writes.

func (m *Memory) Write(p []byte) (int, error) {
	if int(m.at)+len(p) > m.Most {
		return 0, ErrTooLong
	}
	m.text = append(m.text[:m.at], p...)
	m.at = int64(len(m.text))
	return len(p), nil
}

func (m *Memory) Read(p []byte) (int, error) {
	if m.at >= int64(len(m.text)) {
		return 0, io.EOF
	}
	n := copy(p, m.text[m.at:])
	m.at += int64(n)
	return n, nil
}

func (m *Memory) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += m.at
	case io.SeekEnd:
		offset += int64(len(m.text))
	}
	if offset < 0 || offset > int64(len(m.text)) {
		return 0, errors.New("seek outside of what was written")
	}
	m.at = offset
	return offset, nil
}

func (m *Memory) Truncate(size int64) error {
	if size > int64(len(m.text)) {
		return errors.New("truncate to more than was written")
	}
	m.text = m.text[:size]
	return nil
}
