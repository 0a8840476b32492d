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
	*place
	run   *run
	kind  string // resourcedump or changedump
	packs []pack // that are written

	file    *os.File // of the one that is under way, as all that follows; nil: none is
	begun   time.Time
	sum     hash.Hash
	size    int64         // bytes that were written
	out     *bufio.Writer // to file, sum and size
	zip     *zip.Writer
	count   int    // entries
	entries []byte // of the manifest
	list    []byte // the same as entries of a Change List

	deflate *flate.Writer
}

func newPacker(p *place, r *run, kind string) *packer {
	return &packer{place: p, run: r, kind: kind, sum: sha256.New()}
}

// changes reports whether the packages have changes. Each then has a Change List beside it.
func (p *packer) changes() bool { return p.kind == resourcesync.ChangeDump }

// Write writes a piece of the ZIP file, and hashes it meanwhile. The pieces are large.
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

// begin begins a package.
func (p *packer) begin() (err error) {
	if p.deflate == nil {
		if p.deflate, err = flate.NewWriter(nil, flate.DefaultCompression); err != nil {
			return err
		}
	}
	if p.file, err = p.create(p.kind + ".zip"); err != nil {
		return err
	}
	p.size, p.count, p.begun = 0, 0, later(p.opts.Now(), p.run.At)
	p.entries, p.list = nil, nil
	p.sum.Reset()
	p.out = bufio.NewWriterSize(p, 256<<10)
	p.zip = zip.NewWriter(p.out)
	p.zip.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		p.deflate.Reset(w) // one member is written at a time
		return p.deflate, nil
	})
	return nil
}

// fit makes room for an entry whose content has a length: if the package under way has too
// little, it ends, and another begins.
func (p *packer) fit(length int64) error {
	if p.file != nil && (p.count >= p.opts.Count || p.size+length > p.opts.Size || len(p.entries) > maxBytes) {
		if err := p.end(); err != nil {
			return err
		}
	}
	if p.file == nil {
		if err := p.begin(); err != nil {
			return err
		}
	}
	p.count++
	return nil
}

// member begins a content in the ZIP file, and returns its path for the manifest.
func (p *packer) member(c *resourcesync.Change) (w io.Writer, path string, err error) {
	length := int64(0)
	if c.Length != nil {
		length = *c.Length
	}
	if err := p.fit(length); err != nil {
		return nil, "", err
	}
	h := &zip.FileHeader{Name: fmt.Sprintf("content/%d", p.count), Method: zip.Deflate}
	if packed(c.Type) {
		h.Method = zip.Store
	}
	if y := c.Lastmod.Year(); y >= 1980 && y < 2100 {
		h.Modified = c.Lastmod
	}
	w, err = p.zip.CreateHeader(h)
	return w, "/" + h.Name, err
}

// packed reports whether contents of a media type are compressed already.
func packed(media string) bool {
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

// add adds an entry to the manifest. A deletion has no member, and so begins a package
// itself.
func (p *packer) add(c *resourcesync.Change) error {
	it := resourcesync.Item{Change: *c}
	if c.Change == resourcesync.Deleted {
		if err := p.fit(0); err != nil {
			return err
		}
	}
	if !p.changes() {
		it.Change.Change = ""
		p.entries = resourcesync.AppendXMLItem(p.entries, &it, nil)
		return nil
	}
	it.Datetime = p.run.until(len(p.packs) + 1)
	p.entries = resourcesync.AppendXMLItem(p.entries, &it, nil)
	it.Path = ""
	p.list = resourcesync.AppendXMLItem(p.list, &it, nil)
	return nil
}

// end ends a package, if one is under way: it puts the ZIP file and the copy of its manifest in
// their places.
func (p *packer) end() error {
	if len(p.entries) == 0 { // no content was read to its end
		return p.close()
	}
	number := len(p.packs) + 1
	k := pack{At: p.begun, Completed: later(p.opts.Now(), p.begun)}
	if p.changes() {
		k = pack{From: p.run.From, Until: p.run.until(number)}
		if number > 1 {
			k.From = p.run.until(number - 1)
		}
	}
	h := resourcesync.Header{At: k.At, Completed: k.Completed, From: k.From, Until: k.Until, Links: []resourcesync.Link{p.link("up", capabilityListFile, "")}}
	if p.changes() {
		h.Capability = resourcesync.ChangeList
		if err := p.replace(p.run.changeList(number), documentOf(&h, p.list)); err != nil {
			return err
		}
	}
	h.Capability = p.kind + "-manifest"
	manifest := documentOf(&h, p.entries)
	if err := p.replace(p.run.manifest(p.kind, number), manifest); err != nil {
		return err
	}
	w, err := p.zip.CreateHeader(&zip.FileHeader{Name: "manifest.xml", Method: zip.Deflate, Modified: p.begun})
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
	p.packs = append(p.packs, k)
	file := p.file
	p.file, p.entries = nil, nil
	return p.put(file, p.run.zip(p.kind, number))
}

// documentOf returns the text of a document.
func documentOf(h *resourcesync.Header, entries []byte) []byte {
	return resourcesync.AppendXMLFooter(append(resourcesync.AppendXMLHeader(nil, h, nil), entries...), h)
}

// close gives up the package that is under way, if there is one.
func (p *packer) close() error {
	if p.file == nil {
		return nil
	}
	file := p.file
	p.file = nil
	return file.Close()
}
