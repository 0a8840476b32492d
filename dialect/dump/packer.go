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

// A packer writes the packages of a Resource Dump or a Change Dump. A nil packer writes none.
type packer struct {
	*place
	run  *run
	kind string // resourcedump or changedump

	packs []pack // that are written
	open  bool   // another one is under way; what follows is about it
	begun time.Time
	file  *os.File
	sum   hash.Hash
	size  int64         // bytes that were written
	out   *bufio.Writer // to file, sum and size
	zip   *zip.Writer
	count int // entries

	deflate *flate.Writer
	entries spool // of the manifest
	list    spool // the same as entries of a Change List
}

func newPacker(p *place, r *run, kind string) *packer {
	of := func(name string) spool { return spool{place: p, name: kind + "." + name} }
	return &packer{place: p, run: r, kind: kind, sum: sha256.New(), entries: of("entries"), list: of("list")}
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

// begin begins a package, if none is under way.
func (p *packer) begin() (err error) {
	if p.open {
		return nil
	}
	if p.deflate == nil {
		if p.deflate, err = flate.NewWriter(nil, flate.DefaultCompression); err != nil {
			return err
		}
	}
	if p.file, err = p.create(p.kind + ".zip"); err != nil {
		return err
	}
	p.open, p.size, p.count, p.begun = true, 0, 0, later(p.opts.Now(), p.run.At)
	p.sum.Reset()
	p.out = bufio.NewWriterSize(p, 256<<10)
	p.zip = zip.NewWriter(p.out)
	p.zip.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		p.deflate.Reset(w) // one member is written at a time
		return p.deflate, nil
	})
	return nil
}

// until returns the time of the changes in package n, from 1. The changes of a run are said to
// have happened within the second before it, each package at a later time. So the packages
// are in order, no time is in two of them, and a Resource Dump of the run has them all.
func (r *run) until(n int) time.Time {
	return r.At.Add(-time.Second + time.Duration(n)*time.Microsecond)
}

// fit makes room for an entry whose content has a length: if the package under way has too
// little, it ends, and another begins.
func (p *packer) fit(length int64) error {
	if p.open && (p.count >= p.opts.Count || p.size+length > p.opts.Size || p.entries.size > maxBytes) {
		if err := p.end(); err != nil {
			return err
		}
	}
	if err := p.begin(); err != nil {
		return err
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
		return p.entries.item(&it)
	}
	it.Datetime = p.run.until(len(p.packs) + 1)
	if err := p.entries.item(&it); err != nil {
		return err
	}
	it.Path = ""
	return p.list.item(&it)
}

// finish ends the last package.
func (p *packer) finish() error {
	if p == nil || !p.open {
		return nil
	}
	return p.end()
}

// end ends a package: it puts the ZIP file and the copy of its manifest in their places.
func (p *packer) end() error {
	if p.entries.size == 0 { // no content was read to its end
		p.open = false
		return p.file.Close()
	}
	number := len(p.packs) + 1
	k := pack{At: p.begun, Completed: later(p.opts.Now(), p.begun)}
	if p.changes() {
		k = pack{From: p.run.From, Until: p.run.until(number)}
		if number > 1 {
			k.From = p.run.until(number - 1)
		}
	}
	h := resourcesync.Header{At: k.At, Completed: k.Completed, From: k.From, Until: k.Until, Links: []resourcesync.Link{p.link("up", capabilityListFile)}}
	if p.changes() {
		h.Capability = resourcesync.ChangeList
		if err := p.text(p.run.changeList(number), &h, &p.list, nil); err != nil {
			return err
		}
	}
	h.Capability = p.kind + "-manifest"
	w, err := p.zip.CreateHeader(&zip.FileHeader{Name: "manifest.xml", Method: zip.Deflate, Modified: p.begun})
	if err != nil {
		return err
	}
	if err := p.text(p.run.manifest(p.kind, number), &h, &p.entries, w); err != nil {
		return err
	}
	if err := errors.Join(p.zip.Close(), p.out.Flush()); err != nil {
		return err
	}
	p.open = false
	k.Length, k.Hash = p.size, "sha-256:"+hex.EncodeToString(p.sum.Sum(nil))
	p.packs = append(p.packs, k)
	return p.put(p.file, p.run.zip(p.kind, number))
}

// text writes a document whose entries are in a spool, and empties the spool. It also writes
// it to w, unless that is nil.
func (p *packer) text(name string, h *resourcesync.Header, entries *spool, w io.Writer) error {
	f, err := p.create(p.kind + ".xml")
	if err != nil {
		return err
	}
	to := io.Writer(f)
	if w != nil {
		to = io.MultiWriter(f, w)
	}
	_, err = to.Write(resourcesync.AppendXMLHeader(nil, h, nil))
	if err == nil {
		err = entries.moveTo(to)
	}
	if err == nil {
		_, err = to.Write(resourcesync.AppendXMLFooter(nil, h))
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return p.put(f, name)
}

// close closes what a packer still has open.
func (p *packer) close() error {
	if p == nil {
		return nil
	}
	err := errors.Join(p.entries.close(), p.list.close())
	if p.open {
		p.open = false
		err = errors.Join(err, p.file.Close())
	}
	return err
}
