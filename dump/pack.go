package dump

import (
	"archive/zip"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/flate"

	"github.com/rshub/rshub/dump/place"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// MaxCount is how many entries a package may have: the standard's limit for those of one
// document (core section 7). maxManifest is that for its bytes, less what its head takes.
const (
	MaxCount    = 50_000
	maxManifest = 50<<20 - 64<<10
)

// manifestPath is where the manifest is in a package (core sections 11.2 and 13.2), and
// missingPath the document that names what is missing.
const (
	manifestPath = "manifest.xml"
	missingPath  = "missing.xml"
)

// resourceDir is where the contents are in a package of a Resource Dump.
const resourceDir = "resources/"

// The relation of the link from a package to the document that names what is missing in it,
// and the capability of that document.
const (
	RelMissing = resourcesync.Terms + "rel/missing"
	Missing    = resourcesync.Terms + "missing"
)

// A packing is a package that is being written: its ZIP file goes to the place as it is
// made, and the two documents to temporary files, because their heads are known at the end.
type packing struct {
	of     *made
	number int
	stamp  string
	kind   string
	whole  bool   // documents show whole seconds
	up     string // URL of the Capability List
	link   string // URL of the document that would name what is missing

	ctx   context.Context
	place place.Place
	dir   string // of the set in the place
	zip   *summed
	files *zip.Writer

	manifest, missing *list
	size              int64 // bytes of all contents, before they are compressed
}

// newPacking begins package number n of a dump. The caller ends it with commit or abort.
func (m *Maker) newPacking(ctx context.Context, st *feed.State, of *made, kind string, n int) (*packing, error) {
	p := &packing{of: of, number: n, stamp: newStamp(), kind: kind, whole: st.WholeSeconds, up: m.base.CapabilityList(st.Set),
		ctx: ctx, place: m.place, dir: dirOf(st.Set)}
	p.link = m.base.Content(st.Set, p.name(missingEnd))
	var err error
	if p.manifest, err = newList(m.opts.Dir, p.whole); err != nil {
		return nil, err
	}
	if p.missing, err = newList(m.opts.Dir, p.whole); err != nil {
		p.abort()
		return nil, err
	}
	if p.zip, err = create(ctx, m.place, p.dir+p.name(zipEnd)); err != nil {
		p.abort()
		return nil, err
	}
	p.files = zip.NewWriter(p.zip)
	p.files.RegisterCompressor(zip.Deflate, m.deflate)
	return p, nil
}

// name returns the name of a file of the package.
func (p *packing) name(end string) string {
	return p.of.name(&pack{Number: p.number, Stamp: p.stamp}, end)
}

// add adds an entry.
func (p *packing) add(g *gathered) error {
	if g.why != "" {
		return p.missing.add(p.kind, g.entry, g.why)
	}
	e := *g.entry
	e.Change.Path = ""
	if g.got != nil {
		p.size += g.got.Size
		// The position of the change is another one for each, and no text of the source is
		// part of a path.
		dir := resourceDir
		if p.kind == changeKind {
			dir = "changes/"
		}
		e.Change.Path = "/" + dir + strconv.FormatUint(e.Position, 10) + extension(e.Change.Loc)
		complete(&e.Change, g)
		in, err := g.content.reader()
		if err == nil {
			err = p.file(e.Change.Path[1:], &e, in)
		}
		if err != nil {
			return fmt.Errorf("pack %s: %w", resourcesync.Shorten(e.Change.Loc), err)
		}
	}
	return p.manifest.add(p.kind, &e, "")
}

// complete adds to what the source says of a resource what was seen of its content.
func complete(c *resourcesync.Change, g *gathered) {
	c.Length = &g.got.Size
	if c.Hash == "" {
		c.Hash = "sha-256:" + g.got.SHA256
	}
	if c.Type == "" {
		if t, _, err := mime.ParseMediaType(g.got.Type); err == nil && plainType.MatchString(t) {
			c.Type = t
		}
	}
}

// plainType are the media types that the schema of the standard takes.
var plainType = regexp.MustCompile(`^[a-z0-9_-]+/[a-z0-9_-]+$`)

var plainExtension = regexp.MustCompile(`^\.[A-Za-z0-9]{1,8}$`)

// extension returns the end of a URL's path from the last dot on, if it is a plain one.
func extension(loc string) string {
	loc, _, _ = strings.Cut(loc, "#")
	loc, _, _ = strings.Cut(loc, "?")
	if _, rest, ok := strings.Cut(loc, "://"); !ok || !strings.Contains(rest, "/") {
		return ""
	}
	if ext := path.Ext(loc); plainExtension.MatchString(ext) {
		return ext
	}
	return ""
}

// file writes a file of the ZIP file.
func (p *packing) file(name string, e *feed.Entry, in io.Reader) error {
	h := &zip.FileHeader{Name: name, Method: zip.Deflate}
	if e != nil {
		h.Modified, h.Comment = e.Change.Lastmod, e.Change.Type // the next dump finds the type there
		if isPacked(e.Change.Type, name) {
			h.Method = zip.Store
		}
	}
	out, err := p.files.CreateHeader(h)
	if err == nil {
		_, err = io.Copy(out, in)
	}
	return err
}

// isPacked reports whether a content is not smaller when it is compressed.
func isPacked(mediaType, name string) bool {
	if strings.HasPrefix(mediaType, "video/") || strings.HasPrefix(mediaType, "audio/") {
		return true
	}
	switch strings.ToLower(path.Ext(name)) {
	case ".zip", ".gz", ".tgz", ".zst", ".xz", ".bz2", ".7z", ".jpg", ".jpeg", ".png", ".webp", ".gif", ".jp2", ".mp3", ".mp4", ".epub", ".docx", ".xlsx", ".pptx":
		return true
	}
	switch mediaType {
	case "application/zip", "application/gzip", "image/jpeg", "image/png", "image/webp", "image/gif", "image/jp2", "application/epub-zip":
		return true
	}
	return false
}

// count returns how many entries the package has.
func (p *packing) count() int { return p.manifest.n + p.missing.n }

// text returns how many bytes the longer one of its documents has.
func (p *packing) text() int64 { return max(p.manifest.size, p.missing.size) }

// commit makes the package whole. from and at say which changes a package of a Change Dump
// covers.
func (p *packing) commit(from, at feed.Cursor) (pack, error) {
	done := pack{Number: p.number, Stamp: p.stamp, From: from, At: at, Completed: time.Now().UTC().Truncate(time.Microsecond), Resources: p.manifest.n, Missing: p.missing.n}
	h := resourcesync.Header{Links: []resourcesync.Link{{Rel: "up", Href: p.up}}, Completed: done.Completed}
	if p.kind == resourceKind {
		h.At = p.of.At.Time()
	} else {
		h.Completed = time.Time{}
		h.From, h.Until = from.Time(), at.Time()
	}
	if p.missing.n > 0 {
		missing := h
		missing.Capability = Missing
		var err error
		if done.Named, err = p.document(missingPath, missingEnd, &missing, p.missing); err != nil {
			return done, err
		}
		h.Links = append(h.Links, resourcesync.Link{Rel: RelMissing, Href: p.link, Type: "application/xml", Path: "/" + missingPath})
	}
	h.Capability = p.kind + "-manifest"
	var err error
	if done.Manifest, err = p.document(manifestPath, manifestEnd, &h, p.manifest); err != nil {
		return done, err
	}
	if err := p.files.Close(); err != nil {
		return done, err
	}
	if done.Zip, err = p.zip.commit(); err != nil {
		return done, err
	}
	p.abort() // of what is left
	return done, nil
}

// document writes a document twice, with the same bytes: into the ZIP file, and beside it.
func (p *packing) document(name, end string, h *resourcesync.Header, l *list) (file, error) {
	out, err := create(p.ctx, p.place, p.dir+p.name(end))
	if err != nil {
		return file{}, err
	}
	defer out.Abort()
	in, err := l.reader(h)
	if err == nil {
		err = p.file(name, nil, io.TeeReader(in, out))
	}
	if err != nil {
		return file{}, err
	}
	return out.commit()
}

// abort drops the package, unless it is whole. It may be called again.
func (p *packing) abort() {
	if p.zip != nil {
		p.zip.Abort()
	}
	for _, l := range []*list{p.manifest, p.missing} {
		if l != nil {
			_ = l.file.Close() // nobody wants what is in it; perhaps for the second time
		}
	}
}

// A list is the entries of a document in a temporary file.
type list struct {
	xml  *feed.XMLWriter
	file *os.File
	w    *bufio.Writer
	buf  []byte
	n    int
	size int64
}

func newList(dir string, whole bool) (*list, error) {
	f, err := temporary(dir)
	if err != nil {
		return nil, err
	}
	l := &list{xml: feed.NewXMLWriter(), file: f, w: bufio.NewWriterSize(f, 32<<10)}
	if whole {
		l.xml.WholeSeconds()
	}
	return l, nil
}

// add adds an entry. why says why it is missing.
func (l *list) add(kind string, e *feed.Entry, why string) error {
	if why != "" {
		c := *e
		c.Change.Attrs = append(c.Change.Attrs[:len(c.Change.Attrs):len(c.Change.Attrs)], resourcesync.Attr{Namespace: resourcesync.Terms, Name: "missing", Value: why})
		e = &c
	}
	if kind == resourceKind {
		l.buf = l.xml.AppendResource(l.buf[:0], e)
	} else {
		l.buf = l.xml.AppendEntry(l.buf[:0], e)
	}
	l.n++
	l.size += int64(len(l.buf))
	if _, err := l.w.Write(l.buf); err != nil {
		return fmt.Errorf("write a temporary file: %w", err)
	}
	return nil
}

// reader returns a reader of the whole document.
func (l *list) reader(h *resourcesync.Header) (io.Reader, error) {
	err := l.w.Flush()
	if err == nil {
		_, err = l.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, fmt.Errorf("read a temporary file: %w", err)
	}
	return io.MultiReader(strings.NewReader(string(l.xml.AppendHeader(nil, h))), l.file,
		strings.NewReader(string(resourcesync.AppendXMLFooter(nil, h)))), nil
}

// A summed is a file that is written to the place, and summed up.
type summed struct {
	place.Writer
	name string
	sum  hash.Hash
	size int64
	buf  *bufio.Writer
}

func create(ctx context.Context, p place.Place, name string) (*summed, error) {
	w, err := p.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	s := &summed{Writer: w, name: name, sum: sha256.New()}
	s.buf = bufio.NewWriterSize(w, 64<<10)
	return s, nil
}

func (s *summed) Write(b []byte) (int, error) {
	_, _ = s.sum.Write(b) // never fails
	s.size += int64(len(b))
	n, err := s.buf.Write(b)
	if err != nil {
		err = fmt.Errorf("write %s: %w", s.name, err)
	}
	return n, err
}

func (s *summed) commit() (file, error) {
	err := s.buf.Flush()
	if err != nil {
		err = fmt.Errorf("write %s: %w", s.name, err)
	} else {
		err = s.Commit()
	}
	return file{s.size, hex.EncodeToString(s.sum.Sum(nil))}, err
}

// newDeflaters returns compressors that are used again: they take much memory to make.
func newDeflaters() *sync.Pool {
	return &sync.Pool{New: func() any {
		w, _ := flate.NewWriter(io.Discard, flate.BestSpeed) // fails only for an unknown level
		return w
	}}
}

// deflate returns a compressor for a file in a ZIP file.
func (m *Maker) deflate(w io.Writer) (io.WriteCloser, error) {
	d := m.deflaters.Get().(*flate.Writer)
	d.Reset(w)
	return &deflater{d, m.deflaters}, nil
}

type deflater struct {
	*flate.Writer
	pool *sync.Pool
}

func (d *deflater) Close() error {
	if d.Writer == nil {
		return errors.New("closed twice")
	}
	err := d.Writer.Close()
	d.pool.Put(d.Writer)
	d.Writer = nil
	return err
}
