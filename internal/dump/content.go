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

// wholeMost is the size up to which a content is read before it is packed, so that what
// cannot be read leaves nothing in a package.
const wholeMost = 1 << 20

// A content reads contents, one at a time.
type content struct {
	space []byte
	sum   hash.Hash
	size  int64
}

func newContent() *content { return &content{space: make([]byte, wholeMost), sum: sha256.New()} }

// pack packs a resource. unread says why its content cannot be read, or is not what c says;
// err concerns the packages. A large content that cannot be read to its end leaves a member
// that no manifest names.
func (in *content) pack(r *Resource, c *resourcesync.Change, to []*packer) (unread, err error) {
	from, unread := r.Open()
	if unread != nil {
		return unread, nil
	}
	defer from.Close() // it is only read
	in.sum.Reset()
	in.size = 0
	var members []io.Writer
	paths := make([]string, len(to))
	for end := false; !end; {
		n, unread := in.read(from)
		if end = unread == io.EOF; end {
			unread = in.check(c)
		}
		if unread != nil {
			return unread, nil
		}
		for i := len(members); i < len(to); i++ {
			member, path, err := to[i].member(c)
			if err != nil {
				return nil, err
			}
			members, paths[i] = append(members, member), path
		}
		if _, err := io.MultiWriter(members...).Write(in.space[:n]); err != nil {
			return nil, err
		}
	}
	for i := range to {
		c.Path = paths[i]
		if err := to[i].add(c); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// read fills the space. At the end of the content, the error is io.EOF.
func (in *content) read(from io.Reader) (n int, err error) {
	n, err = io.ReadFull(from, in.space)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	in.sum.Write(in.space[:n])
	in.size += int64(n)
	return n, err
}

// check compares what was read with what c says, and completes c.
func (in *content) check(c *resourcesync.Change) error {
	if c.Length != nil && *c.Length != in.size {
		return fmt.Errorf("it has %d bytes, and not %d: it has changed meanwhile", in.size, *c.Length)
	}
	size, is := in.size, hex.EncodeToString(in.sum.Sum(nil))
	c.Length = &size
	if want := resourcesync.Digest(c.Hash, "sha-256"); want != "" {
		if !strings.EqualFold(want, is) {
			return fmt.Errorf("its sha-256 is %s, and not %s: it has changed meanwhile", is, want)
		}
		return nil
	}
	c.Hash = strings.TrimSpace(c.Hash + " sha-256:" + is)
	return nil
}
