package dump

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// maxBuffered is the size up to which content is read completely before it is packed, so that
// unreadable content leaves no member in a package.
const maxBuffered = 1 << 20

// A contentReader reads the contents of resources, one at a time.
type contentReader struct {
	buf  []byte
	sum  hash.Hash
	size int64
}

func newContentReader() *contentReader {
	return &contentReader{buf: make([]byte, maxBuffered), sum: sha256.New()}
}

// pack writes the content of r to the packages and adds c to their manifests. It completes the
// Length, Hash and Path of c. unread is the reason that the content cannot be read or does not
// match c; err is an error of the packages. If large content cannot be read to its end, a member
// that no manifest references remains.
func (in *contentReader) pack(r *Resource, c *resourcesync.Change, to []*packer) (unread, err error) {
	from, unread := r.Open()
	if unread != nil {
		return unread, nil
	}
	defer from.Close() // opened for reading
	in.sum.Reset()
	in.size = 0
	var members []io.Writer
	paths := make([]string, len(to))
	for end := false; !end; {
		n, unread := in.fill(from)
		if end = unread == io.EOF; end {
			unread = in.check(c)
		}
		if unread != nil {
			return unread, nil
		}
		for i := len(members); i < len(to); i++ {
			member, path, err := to[i].createMember(c)
			if err != nil {
				return nil, err
			}
			members, paths[i] = append(members, member), path
		}
		if _, err := io.MultiWriter(members...).Write(in.buf[:n]); err != nil {
			return nil, err
		}
	}
	for i := range to {
		c.Path = paths[i]
		if err := to[i].addEntry(c); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// fill reads the next part of the content into buf. It returns io.EOF at the end of the content.
func (in *contentReader) fill(from io.Reader) (n int, err error) {
	n, err = io.ReadFull(from, in.buf)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	in.sum.Write(in.buf[:n])
	in.size += int64(n)
	return n, err
}

// check compares the content that was read with c, and sets c's Length and Hash.
func (in *contentReader) check(c *resourcesync.Change) error {
	if c.Length != nil && *c.Length != in.size {
		return fmt.Errorf("content changed while it was listed: got %d bytes, want %d", in.size, *c.Length)
	}
	size, is := in.size, hex.EncodeToString(in.sum.Sum(nil))
	c.Length = &size
	if want := resourcesync.Digest(c.Hash, "sha-256"); want != "" {
		if !strings.EqualFold(want, is) {
			return fmt.Errorf("content changed while it was listed: got sha-256 %s, want %s", is, want)
		}
		return nil
	}
	c.Hash = strings.TrimSpace(c.Hash + " sha-256:" + is)
	return nil
}
