package dump

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/rshub/rshub/resourcesync"
)

// A state is a file with what a source had in a run, in the order of a Listing. A line has a
// mark, the loc, a tab, and what differs if the resource does.
const (
	present = '+'
	gone    = '-' // it was not listed; it counts as present if any resources may be missing
)

// appendLine appends the line of a resource. The time of a resource that has a hash is no
// part of it: a file that was only touched has not changed.
func appendLine(dst []byte, mark byte, c *resourcesync.Change) []byte {
	version := resourcesync.Change{Hash: c.Hash, Links: c.Links}
	if c.Hash == "" {
		version.Lastmod, version.Length = c.Lastmod, c.Length
	}
	dst = append(append(append(dst, mark), c.Loc...), '\t')
	return append(resourcesync.AppendJSONMembers(dst, &version), '\n')
}

// A known reads a state: that of the run before, or of this one.
type known struct {
	file *os.File // nil: there is none
	in   *bufio.Reader
	hole bool // what is marked as gone counts as present, and is read as well

	line []byte // of the present resource; nil: there are no more
	loc  string // its loc
	read uint64 // resources so far, with this one
}

// open opens the state of the newest run, if there is one.
func (k *known) open(p *place) (err error) {
	r := p.newest()
	if r == nil {
		return nil
	}
	k.file, err = os.Open(p.path(r.state()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	k.in, k.hole = bufio.NewReaderSize(k.file, 64<<10), r.Hole
	return k.next()
}

// next goes on to the next resource that was present.
func (k *known) next() error {
	for {
		line, err := k.in.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			k.line, k.loc = nil, ""
			return nil
		}
		loc, _, ok := bytes.Cut(line, []byte{'\t'})
		if err != nil || !ok || len(loc) < 2 || loc[0] != present && loc[0] != gone {
			return fmt.Errorf("%s is damaged: remove it, and the next run makes a new Resource Dump", k.file.Name())
		}
		if loc[0] == present || k.hole {
			k.line, k.loc = line, string(loc[1:])
			k.read++
			return nil
		}
	}
}

// has reports whether a loc is that of the present resource.
func (k *known) has(loc string) bool { return k.line != nil && k.loc == loc }

// same reports whether a line is that of the present resource.
func (k *known) same(line []byte) bool { return bytes.Equal(k.line[1:], line[1:]) }
