// Package pack reads the ZIP files of dumps: a manifest, and the contents of resources. Bounds keep
// a hostile file from filling memory or disk.
//
// It does not download: package mirror passes it a file.
package pack

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"sync/atomic"

	"github.com/rshub/rshub/resourcesync"
)

// A Pack is a ZIP file of a dump: a manifest, and the contents of resources. Its
// paths are only looked up, and never used as paths of files. The zero Pack is
// empty.
type Pack struct {
	files map[string]*zip.File // by path, with a slash before it
	left  uint64               // compressed bytes that may still be read
}

// A Member is a content in a Pack.
type Member = zip.File

const (
	manifestPath = "/manifest.xml"
	directoryMax = 32 << 20 // bytes of the directory of a ZIP file: 50,000 files have less
)

// Open reads the directory of a ZIP file. The Pack can be used as long as the file is
// open.
func Open(file *os.File) (*Pack, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	in := &firstBytes{ReaderAt: file}
	in.left.Store(directoryMax)
	z, err := zip.NewReader(in, info.Size())
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return nil, fmt.Errorf("it cannot be read as a ZIP file: %w", err)
	}
	in.open.Store(true)
	p := &Pack{files: make(map[string]*zip.File, len(z.File)), left: uint64(info.Size())}
	for _, f := range z.File {
		p.files["/"+f.Name] = f
	}
	return p, nil
}

// firstBytes bounds how much is read to open a ZIP file, because a directory of many
// small entries could fill the memory.
type firstBytes struct {
	io.ReaderAt
	open atomic.Bool
	left atomic.Int64
}

func (f *firstBytes) ReadAt(b []byte, at int64) (int, error) {
	if !f.open.Load() && f.left.Add(-int64(len(b))) < 0 {
		return 0, fmt.Errorf("its directory has more than %d bytes", directoryMax)
	}
	return f.ReaderAt.ReadAt(b, at)
}

// Manifest opens the manifest, which the caller closes, and returns the base of the URLs in it.
// loc is that of the package.
func (p *Pack) Manifest(loc string) (io.ReadCloser, *url.URL, error) {
	at, err := url.Parse(loc)
	if err != nil {
		return nil, nil, err
	}
	f := p.files[manifestPath]
	if f == nil {
		return nil, nil, resourcesync.Invalidf("it has no manifest.xml")
	}
	text, err := f.Open()
	return text, at, err
}

// Member returns the content at a path; nil: the pack has none, or no more may be read. All
// members together have no more compressed bytes than the ZIP file. Otherwise a file whose
// members overlap could expand a few bytes until the disk is full (a zip bomb).
func (p *Pack) Member(path string) *Member {
	f := p.files[path]
	if f == nil || f.Mode().IsDir() || f.CompressedSize64 > p.left {
		return nil
	}
	p.left -= f.CompressedSize64
	return f
}
