package dump

import (
	"bufio"
	"io"
	"os"

	"github.com/rshub/rshub/resourcesync"
)

// A spool is a part of a document, in a temporary file.
type spool struct {
	*place
	name  string
	file  *os.File // nil: nothing was added yet
	out   *bufio.Writer
	size  int64
	space []byte // that of the last piece, for the next one
}

// add adds a piece. It keeps the space of the piece.
func (s *spool) add(b []byte) (err error) {
	if s.file == nil {
		if s.file, err = s.create(s.name); err != nil {
			return err
		}
		s.out = bufio.NewWriterSize(s.file, 64<<10)
	}
	s.space, s.size = b, s.size+int64(len(b))
	_, err = s.out.Write(b)
	return err
}

// item adds an entry.
func (s *spool) item(it *resourcesync.Item) error {
	return s.add(resourcesync.AppendXMLItem(s.space[:0], it, nil))
}

// moveTo writes all pieces to w, and empties the spool.
func (s *spool) moveTo(w io.Writer) error {
	if s.file == nil {
		return nil
	}
	if err := s.out.Flush(); err != nil {
		return err
	}
	if _, err := io.Copy(w, io.NewSectionReader(s.file, 0, s.size)); err != nil {
		return err
	}
	s.size = 0
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return s.file.Truncate(0)
}

// put moves the file of the spool to its place, which ends the spool.
func (s *spool) put(name string) error {
	if err := s.out.Flush(); err != nil {
		return err
	}
	return s.place.put(s.file, name)
}

func (s *spool) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
