package dump

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/packed"
)

// A spool is entries in a temporary file. The root of a Resource List is kept for two
// intervals only, and to fetch the contents of its resources may take longer.
type spool struct {
	file *os.File
	w    *bufio.Writer
	buf  []byte
	n    int
}

func newSpool(dir string) (*spool, error) {
	f, err := temporary(dir)
	if err != nil {
		return nil, err
	}
	return &spool{file: f, w: bufio.NewWriterSize(f, 64<<10)}, nil
}

// add adds an entry.
func (s *spool) add(e *feed.Entry) error {
	s.buf = binary.AppendUvarint(s.buf[:0], e.Position)
	s.buf = binary.AppendVarint(s.buf, e.Micros)
	s.buf = packed.AppendChange(s.buf, &e.Change)
	var head [binary.MaxVarintLen64]byte
	if _, err := s.w.Write(head[:binary.PutUvarint(head[:], uint64(len(s.buf)))]); err != nil {
		return fmt.Errorf("write a temporary file: %w", err)
	}
	if _, err := s.w.Write(s.buf); err != nil {
		return fmt.Errorf("write a temporary file: %w", err)
	}
	s.n++
	return nil
}

// all yields the entries. Each is good for as long as anybody wants. An error ends it.
func (s *spool) all() iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		err := s.w.Flush()
		if err == nil {
			_, err = s.file.Seek(0, io.SeekStart)
		}
		in := bufio.NewReaderSize(s.file, 64<<10)
		for i := 0; err == nil && i < s.n; i++ {
			var size uint64
			if size, err = binary.ReadUvarint(in); err != nil {
				break
			}
			text := make([]byte, size)
			if _, err = io.ReadFull(in, text); err != nil {
				break
			}
			r, e := packed.NewReader(string(text)), new(feed.Entry)
			e.Position, e.Micros = r.Number(), r.Signed()
			if r.Change(&e.Change); !r.Done() {
				err = errors.New("it is damaged")
				break
			}
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, fmt.Errorf("read a temporary file: %w", err))
		}
	}
}

func (s *spool) close() { _ = s.file.Close() } // nobody wants what is in it
