// Package pack reads the ZIP files of dumps: a manifest and the contents of resources. Limits keep
// a hostile file from filling memory or disk.
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

// A Pack is a ZIP file of a dump: a manifest and the contents of resources. Its paths are only
// keys, never paths of files. The zero Pack is empty.
type Pack struct {
	files     map[string]*zip.File // by path, with a leading slash
	remaining uint64               // compressed bytes that may still be read
}

// A Member is a content in a Pack.
type Member = zip.File

const (
	manifestPath = "/manifest.xml"
	maxDirectory = 32 << 20 // bytes; more than a directory of 50,000 files has
)

// Open reads the directory of a ZIP file. The file must stay open while the Pack is in use.
func Open(file *os.File) (*Pack, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	in := &directoryReader{ReaderAt: file}
	in.left.Store(maxDirectory)
	z, err := zip.NewReader(in, info.Size())
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return nil, fmt.Errorf("read ZIP file: %w", err)
	}
	in.open.Store(true)
	p := &Pack{files: make(map[string]*zip.File, len(z.File)), remaining: uint64(info.Size())}
	for _, f := range z.File {
		p.files["/"+f.Name] = f
	}
	return p, nil
}

// A directoryReader limits how much is read to open a ZIP file, because a directory of many
// small entries could fill the memory.
type directoryReader struct {
	io.ReaderAt
	open atomic.Bool
	left atomic.Int64
}

func (f *directoryReader) ReadAt(b []byte, at int64) (int, error) {
	if !f.open.Load() && f.left.Add(-int64(len(b))) < 0 {
		return 0, fmt.Errorf("directory: got more than %d bytes", maxDirectory)
	}
	return f.ReaderAt.ReadAt(b, at)
}

// Manifest opens the manifest, which the caller must close, and returns the base of the URLs in
// it. loc is the URL of the package.
func (p *Pack) Manifest(loc string) (io.ReadCloser, *url.URL, error) {
	at, err := url.Parse(loc)
	if err != nil {
		return nil, nil, err
	}
	f := p.files[manifestPath]
	if f == nil {
		return nil, nil, resourcesync.Invalidf("manifest.xml is missing")
	}
	text, err := f.Open()
	return text, at, err
}

// Member returns the content at a path, or nil if the pack has none or no more may be read. The
// compressed sizes of all returned members add up to at most the size of the ZIP file: otherwise
// a file whose members overlap could expand a few bytes until the disk is full (a zip bomb).
func (p *Pack) Member(path string) *Member {
	f := p.files[path]
	if f == nil || f.Mode().IsDir() || f.CompressedSize64 > p.remaining {
		return nil
	}
	p.remaining -= f.CompressedSize64
	return f
}
