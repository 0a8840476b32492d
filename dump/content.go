package dump

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// smallContent is how many bytes of a content are kept in memory; a larger one goes to a
// temporary file.
const smallContent = 64 << 10

// A content is what was fetched of a resource. It is a fetch.File. It is used again for
// another resource after Truncate(0) and Seek(0).
type content struct {
	dir   string // where a temporary file is made
	small []byte // while there is no file
	at    int    // in small
	large *os.File
	spare *os.File // a file that was used before, and is empty
}

// Write adds to the end, as fetch does.
func (c *content) Write(b []byte) (int, error) {
	if c.large == nil && c.at+len(b) <= smallContent {
		c.small = append(c.small[:c.at], b...)
		c.at += len(b)
		return len(b), nil
	}
	if c.large == nil {
		if err := c.spill(); err != nil {
			return 0, err
		}
	}
	return c.large.Write(b)
}

// spill moves what is in memory to a file.
func (c *content) spill() error {
	if c.spare == nil {
		file, err := temporary(c.dir)
		if err != nil {
			return err
		}
		c.spare = file
	}
	c.large, c.spare = c.spare, nil
	_, err := c.large.Write(c.small[:c.at])
	c.small, c.at = c.small[:0], 0
	return err
}

// Read reads on.
func (c *content) Read(b []byte) (int, error) {
	if c.large != nil {
		return c.large.Read(b)
	}
	if c.at == len(c.small) {
		return 0, io.EOF
	}
	n := copy(b, c.small[c.at:])
	c.at += n
	return n, nil
}

// Seek goes to a place, counted from the beginning.
func (c *content) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekStart {
		return 0, errors.ErrUnsupported
	}
	if c.large != nil {
		return c.large.Seek(offset, whence)
	}
	if offset > int64(len(c.small)) {
		return 0, errors.ErrUnsupported
	}
	c.at = int(offset)
	return offset, nil
}

// Truncate cuts the content.
func (c *content) Truncate(size int64) error {
	if c.large != nil && size == 0 {
		c.spare, c.large = c.large, nil
		c.small, c.at = c.small[:0], 0
		if err := c.spare.Truncate(0); err != nil {
			return err
		}
		_, err := c.spare.Seek(0, io.SeekStart)
		return err
	}
	if c.large != nil {
		return c.large.Truncate(size)
	}
	if size > int64(len(c.small)) {
		return errors.ErrUnsupported
	}
	c.small = c.small[:size]
	return nil
}

// reset makes the content empty.
func (c *content) reset() error {
	if err := c.Truncate(0); err != nil {
		return err
	}
	_, err := c.Seek(0, io.SeekStart)
	return err
}

// reader returns a reader of the whole content.
func (c *content) reader() (io.Reader, error) {
	if c.large == nil {
		return bytes.NewReader(c.small), nil
	}
	_, err := c.large.Seek(0, io.SeekStart)
	return c.large, err
}

// close removes the files.
func (c *content) close() {
	for _, f := range []*os.File{c.large, c.spare} {
		if f != nil {
			_ = f.Close() // nobody wants what is in it
		}
	}
}

// temporary returns a file without a name in a directory: it is gone when it is closed, also
// by a crash.
func temporary(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "rshub-dump-*")
	if err != nil {
		return nil, fmt.Errorf("make a temporary file: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("make a temporary file: %w", err), f.Close())
	}
	return f, nil
}
