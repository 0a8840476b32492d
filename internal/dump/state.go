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

// A state file lists the resources of a run, in the order of a Listing. A line has a
// mark, the loc, a tab, and the members that differ if the resource has changed.
const (
	present = '+'
	gone    = '-' // not listed; counts as present if any resources may be missing
)

// appendLine appends the line of a resource. If the resource has a hash, the line omits its time: a
// file whose time alone changed is not an update.
func appendLine(dst []byte, mark byte, c *resourcesync.Change) []byte {
	version := resourcesync.Change{Hash: c.Hash, Links: c.Links}
	if c.Hash == "" {
		version.Lastmod, version.Length = c.Lastmod, c.Length
	}
	dst = append(append(append(dst, mark), c.Loc...), '\t')
	return append(resourcesync.AppendJSONMembers(dst, &version), '\n')
}

// A stateReader reads the state file of the previous run or of the current one.
type stateReader struct {
	file        *os.File // nil if there is none
	in          *bufio.Reader
	includeGone bool // whether resources marked as gone are read, too

	line  []byte // line of the current resource; nil at the end
	loc   string // loc of the current resource
	count uint64 // number of resources read, including the current one
}

// open opens the state file of the newest run, if there is one, and reads its first resource.
func (k *stateReader) open(p *directory) (err error) {
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
	k.in, k.includeGone = bufio.NewReaderSize(k.file, 64<<10), r.Hole
	return k.next()
}

// next reads the next resource.
func (k *stateReader) next() error {
	for {
		line, err := k.in.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			k.line, k.loc = nil, ""
			return nil
		}
		loc, _, ok := bytes.Cut(line, []byte{'\t'})
		if err != nil || !ok || len(loc) < 2 || loc[0] != present && loc[0] != gone {
			return fmt.Errorf("state file %s is damaged; remove it, and the next run creates a new Resource Dump", k.file.Name())
		}
		if loc[0] == present || k.includeGone {
			k.line, k.loc = line, string(loc[1:])
			k.count++
			return nil
		}
	}
}

// isAt reports whether the current resource has the given loc.
func (k *stateReader) isAt(loc string) bool { return k.line != nil && k.loc == loc }

// equalsLine reports whether line equals the line of the current resource, apart from the mark.
func (k *stateReader) equalsLine(line []byte) bool { return bytes.Equal(k.line[1:], line[1:]) }
