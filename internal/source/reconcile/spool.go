package reconcile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// A spool is a complete, unsorted list in a file. It needs to be sorted only if the hub's state
// differs. A line of the file is the number of the resource in the list, and the resource as JSON.
type spool struct {
	file  *os.File
	tally digest.Tally // tally of all lines; one that no hub has if a line is a deletion or a resource comes twice
}

// spaceStep is how many bytes are used between two calls of Options.ReserveDisk. spaceFactor is the
// disk space of a list with its sorted form, and of changes while they are sorted, in multiples of
// its bytes.
const (
	spaceStep   = 8 << 20
	spaceFactor = 2
)

// A diskSpace counts the bytes of temporary files.
type diskSpace struct {
	reserve        func(bytes int64) error // Options.ReserveDisk
	used, reserved int64
}

// grow adds bytes, and reserves more space if needed.
func (r *diskSpace) grow(bytes int64) error {
	if r.used += bytes; r.used <= r.reserved {
		return nil
	}
	r.reserved = r.used + spaceStep
	return r.reserve(r.reserved)
}

// newSpool creates a spool in a directory, if there is space. fill adds the list.
func newSpool(dir string, room *diskSpace, fill func(add func(*feed.Entry) error) error) (_ *spool, err error) {
	s := &spool{}
	if s.file, err = os.OpenFile(filepath.Join(dir, "list"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, fmt.Errorf("store the list: %w", err)
	}
	out := bufio.NewWriterSize(s.file, 256<<10)
	var line []byte
	var h digest.Hasher
	err = fill(func(e *feed.Entry) error {
		t := h.Tally(e)
		if e.Change.Change == resourcesync.Deleted { // the hub has no resource with this version
			t.Content = digest.Element(e.Change.Loc, string(resourcesync.Deleted))
		}
		s.tally.Add(&t)
		line = append(strconv.AppendUint(line[:0], e.Position, 10), ' ', '{')
		line = append(resourcesync.AppendJSONMembers(line, &e.Change), '}', '\n')
		if err := room.grow(spaceFactor * int64(len(line))); err != nil {
			return fmt.Errorf("store the list: %w", err)
		}
		if _, err := out.Write(line); err != nil {
			return fmt.Errorf("store the list: %w", err)
		}
		return nil
	})
	if err == nil {
		if err = out.Flush(); err != nil {
			err = fmt.Errorf("store the list: %w", err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *spool) resources() iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		if err := s.read(func(e *feed.Entry) bool { return yield(e, nil) }); err != nil {
			yield(nil, fmt.Errorf("reread the list: %w", err))
		}
	}
}

// read calls each with each resource, until it returns false.
func (s *spool) read(each func(*feed.Entry) bool) error {
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(s.file, 256<<10)
	var parser resourcesync.ChangeParser
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		number, text, _ := bytes.Cut(line, []byte{' '})
		position, err := strconv.ParseUint(string(number), 10, 64)
		if err != nil {
			return err
		}
		c, err := parser.Parse(text)
		if err != nil {
			return err
		}
		if !each(&feed.Entry{Cursor: feed.Cursor{Position: position}, Change: *c}) {
			return nil
		}
	}
}

// close closes the file, which is removed with its directory. It does nothing if s is nil.
func (s *spool) close() error {
	if s == nil {
		return nil
	}
	return s.file.Close()
}
