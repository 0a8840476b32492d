package dump

import (
	"archive/zip"
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/flate"

	"github.com/rshub/rshub/resourcesync"
)

// A packer writes the packages of a Resource Dump or a Change Dump.
type packer struct {
	*directory
	run      *run
	kind     string        // resourcedump or changedump
	packages []packageInfo // finished packages

	file       *os.File // the current package, as are all fields below, or nil
	startedAt  time.Time
	sum        hash.Hash
	size       int64         // bytes written
	out        *bufio.Writer // writes to file, sum and size
	zip        *zip.Writer
	count      int    // number of entries
	entries    []byte // entries of the manifest
	changeList []byte // the same entries for the Change List

	deflate *flate.Writer
}

func newPacker(p *directory, r *run, kind string) *packer {
	return &packer{directory: p, run: r, kind: kind, sum: sha256.New()}
}

// isChangeDump reports whether the packages contain changes. Each of them then has a Change List
// next to it.
func (p *packer) isChangeDump() bool { return p.kind == resourcesync.ChangeDump }

// Write writes a part of the ZIP file and hashes it concurrently. Parts are large.
func (p *packer) Write(b []byte) (n int, err error) {
	hashed := make(chan struct{})
	go func() {
		p.sum.Write(b)
		close(hashed)
	}()
	n, err = p.file.Write(b)
	<-hashed
	p.size += int64(n)
	return n, err
}

// startPackage starts a package.
func (p *packer) startPackage() (err error) {
	if p.deflate == nil {
		if p.deflate, err = flate.NewWriter(nil, flate.DefaultCompression); err != nil {
			return err
		}
	}
	if p.file, err = p.createTemp(p.kind + ".zip"); err != nil {
		return err
	}
	p.size, p.count, p.startedAt = 0, 0, notBefore(p.opts.Now(), p.run.At)
	p.entries, p.changeList = nil, nil
	p.sum.Reset()
	p.out = bufio.NewWriterSize(p, 256<<10)
	p.zip = zip.NewWriter(p.out)
	p.zip.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		p.deflate.Reset(w) // one member is written at a time
		return p.deflate, nil
	})
	return nil
}

// makeRoom prepares for an entry whose content has the given length: if the current package has no
// space left, it is finished and another is started.
func (p *packer) makeRoom(length int64) error {
	if p.file != nil && (p.count >= p.opts.Count || p.size+length > p.opts.Size || len(p.entries) > maxBytes) {
		if err := p.finishPackage(); err != nil {
			return err
		}
	}
	if p.file == nil {
		if err := p.startPackage(); err != nil {
			return err
		}
	}
	p.count++
	return nil
}

// createMember creates a member of the ZIP file for the content of c, and returns its path for the
// manifest.
func (p *packer) createMember(c *resourcesync.Change) (w io.Writer, path string, err error) {
	length := int64(0)
	if c.Length != nil {
		length = *c.Length
	}
	if err := p.makeRoom(length); err != nil {
		return nil, "", err
	}
	h := &zip.FileHeader{Name: fmt.Sprintf("content/%d", p.count), Method: zip.Deflate}
	if isCompressed(c.Type) {
		h.Method = zip.Store
	}
	if y := c.Lastmod.Year(); y >= 1980 && y < 2100 {
		h.Modified = c.Lastmod
	}
	w, err = p.zip.CreateHeader(h)
	return w, "/" + h.Name, err
}

// isCompressed reports whether content of a media type is already compressed.
func isCompressed(media string) bool {
	kind, sub, _ := strings.Cut(strings.ToLower(media), "/")
	switch kind {
	case "audio", "video":
		return true
	case "image":
		return sub != "svg+xml" && sub != "bmp" && sub != "tiff"
	case "font":
		return sub == "woff" || sub == "woff2"
	}
	switch sub {
	case "pdf", "zip", "gzip", "x-gzip", "x-bzip2", "x-xz", "zstd", "x-7z-compressed", "vnd.rar", "epub+zip", "java-archive":
		return true
	}
	return strings.HasPrefix(sub, "vnd.openxmlformats") || strings.HasPrefix(sub, "vnd.oasis.opendocument")
}

// addEntry adds an entry to the manifest. A deletion has no member, so addEntry itself starts a
// package for it if necessary.
func (p *packer) addEntry(c *resourcesync.Change) error {
	it := resourcesync.Item{Change: *c}
	if c.Change == resourcesync.Deleted {
		if err := p.makeRoom(0); err != nil {
			return err
		}
	}
	if !p.isChangeDump() {
		it.Change.Change = ""
		p.entries = resourcesync.AppendXMLItem(p.entries, &it, nil)
		return nil
	}
	it.Datetime = p.run.changeTime(len(p.packages) + 1)
	p.entries = resourcesync.AppendXMLItem(p.entries, &it, nil)
	it.Path = ""
	p.changeList = resourcesync.AppendXMLItem(p.changeList, &it, nil)
	return nil
}

// finishPackage finishes the current package, if there is one: it moves the ZIP file and the copy
// of its manifest into place.
func (p *packer) finishPackage() error {
	if len(p.entries) == 0 { // no content was read completely
		return p.abort()
	}
	number := len(p.packages) + 1
	k := packageInfo{At: p.startedAt, Completed: notBefore(p.opts.Now(), p.startedAt)}
	if p.isChangeDump() {
		k = packageInfo{From: p.run.From, Until: p.run.changeTime(number)}
		if number > 1 {
			k.From = p.run.changeTime(number - 1)
		}
	}
	h := resourcesync.Header{At: k.At, Completed: k.Completed, From: k.From, Until: k.Until, Links: []resourcesync.Link{p.link("up", capabilityListFile, "")}}
	if p.isChangeDump() {
		h.Capability = resourcesync.ChangeList
		if err := p.replace(p.run.changeList(number), encodeDocument(&h, p.changeList)); err != nil {
			return err
		}
	}
	h.Capability = p.kind + "-manifest"
	manifest := encodeDocument(&h, p.entries)
	if err := p.replace(p.run.manifest(p.kind, number), manifest); err != nil {
		return err
	}
	w, err := p.zip.CreateHeader(&zip.FileHeader{Name: "manifest.xml", Method: zip.Deflate, Modified: p.startedAt})
	if err != nil {
		return err
	}
	if _, err := w.Write(manifest); err != nil {
		return err
	}
	if err := errors.Join(p.zip.Close(), p.out.Flush()); err != nil {
		return err
	}
	k.Length, k.Hash = p.size, "sha-256:"+hex.EncodeToString(p.sum.Sum(nil))
	p.packages = append(p.packages, k)
	file := p.file
	p.file, p.entries = nil, nil
	return p.install(file, p.run.zip(p.kind, number))
}

// encodeDocument returns a document with encoded entries.
func encodeDocument(h *resourcesync.Header, entries []byte) []byte {
	return resourcesync.AppendXMLFooter(append(resourcesync.AppendXMLHeader(nil, h, nil), entries...), h)
}

// abort closes the current package without finishing it, if there is one.
func (p *packer) abort() error {
	if p.file == nil {
		return nil
	}
	file := p.file
	p.file = nil
	return file.Close()
}
