package documents

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/accept"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// writerVersion is part of every ETag. It must change with everything that
// changes the bytes of a document: the form that resourcesync or feed.XMLWriter
// writes, and the level or the library of gzip.
const writerVersion = 3

// A document is what one request asks for. It is known well enough to say
// whether it has changed, but its entries are not read yet.
type document struct {
	tag      string // identifies the bytes of the uncompressed form: the ETag without quotes
	modified int64  // datetime in microseconds of its newest entry; 0 when something else may change it too

	mediaType string // empty: application/xml
	immutable bool   // its bytes never change, and no other document ever has its name
	link      string // value of the header Link; empty: none
	more      string // another value of the header Link; empty: none
	keep      int64  // a body larger than this many bytes is not kept, but written again for each request; see Server.keep

	write func(ctx context.Context, w io.Writer) error // nil: the body is empty
}

// tag returns the tag of the document that follows from values. The bytes of
// the document must depend on nothing but these, the base URL and
// writerVersion.
func (d *Server) tag(values ...any) string {
	h := d.newTag()
	fmt.Fprintln(h, values...)
	return sum(h)
}

// newTag begins a tag. The caller writes the values, and then calls sum.
func (d *Server) newTag() hash.Hash {
	h := sha256.New()
	fmt.Fprintln(h, writerVersion, d.base)
	return h
}

func sum(h hash.Hash) string { return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16]) }

// The memory that documents take, in bytes.
const (
	entryRoom  = 16 << 10 // how much of an entry is kept in a body; most entries have less than 1 KiB
	streamRoom = 2 << 20  // for a document that is sent while it is read: what is read at one time, and buffers
)

// keep returns how many bytes a body of so many entries may have to be kept. Making the
// body may take as much memory. A body of few entries takes a small share of the budget.
func (d *Server) keep(entries uint64) int64 {
	return min(d.opts.CacheBytes/2, 4<<10+int64(min(entries, maxItems))*entryRoom)
}

// small returns a document that is so small that it is written at once.
func (d *Server) small(doc *resourcesync.Document) *document {
	var b bytes.Buffer
	_ = doc.WriteXML(&b) // a Buffer does not fail
	return d.whole(b.Bytes(), "")
}

// whole returns a document whose text is known. Its tag is made from that.
func (d *Server) whole(text []byte, mediaType string) *document {
	return &document{
		tag:       d.tag("small", string(text)),
		mediaType: mediaType,
		keep:      min(d.opts.CacheBytes/2, 1<<10+2*int64(len(text))),
		write: func(_ context.Context, w io.Writer) error {
			_, err := w.Write(text)
			return err
		},
	}
}

// answer answers a GET or HEAD with doc, or with 304. An error means that
// nothing was sent.
func (d *Server) answer(w http.ResponseWriter, r *http.Request, doc *document) error {
	compress := doc.write != nil && accept.Gzip(r.Header)
	etag := `"` + doc.tag + `"`
	if compress {
		etag = `"` + doc.tag + `-gzip"` // other bytes need another strong ETag
	}
	modified := d.lastModified(doc)
	h := w.Header()
	h.Del("Content-Encoding") // ServeLatest may answer again after an error
	h.Del("Last-Modified")
	h.Set("Etag", etag)
	h.Set("Cache-Control", d.cacheControl(r, doc))
	if doc.link != "" && h.Get("Link") == "" { // else there are these links, and more
		h.Set("Link", doc.link)
	}
	if doc.more != "" && !slices.Contains(h["Link"], doc.more) {
		h.Add("Link", doc.more)
	}
	if notModified(r.Header, etag, modified) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if !modified.IsZero() {
		h.Set("Last-Modified", modified.Format(http.TimeFormat))
	}
	h.Set("Content-Type", cmp.Or(doc.mediaType, "application/xml"))
	if compress {
		h.Set("Content-Encoding", "gzip")
	}
	body, err := d.body(r.Context(), doc, etag, compress)
	if errors.Is(err, errTooLarge) {
		return d.stream(w, r, doc, compress, 0)
	}
	if err != nil {
		return err
	}
	h.Set("Content-Length", strconv.FormatInt(body.size, 10))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		d.send(w, r, doc, etag, compress, body)
	}
	return nil
}

// send sends a body as the client takes it. It holds no more of it than a piece: for
// each piece it looks into the cache. If the cache has dropped the body, the rest is
// written again as it is read. So what slow clients have not read takes no memory
// besides the cache. It stops when the client may not read any more.
func (d *Server) send(w http.ResponseWriter, r *http.Request, doc *document, etag string, compress bool, b *body) {
	sent := int64(0)
	for i, n := 0, len(b.pieces); i < n; i++ {
		piece := b.pieces[i]
		b = nil
		if _, err := w.Write(piece); err != nil {
			return // the client is gone
		}
		sent += int64(len(piece))
		if i+1 == n {
			return
		}
		if err := r.Context().Err(); err != nil {
			d.breakOff(r, err)
		}
		if b, _ = d.bodies.Get(etag); b == nil {
			if err := d.stream(w, r, doc, compress, sent); err != nil {
				d.breakOff(r, err)
			}
			return
		}
	}
}

// lastModified returns the first full second after doc's newest entry. Rounded
// down, it would be before the change; a client that has an earlier state of
// the same second would then be told that nothing changed. For the same reason
// it returns the zero time as long as another entry with a datetime in that
// second may still come, by the clock of any hub.
func (d *Server) lastModified(doc *document) time.Time {
	if doc.modified == 0 {
		return time.Time{}
	}
	t := feed.Cursor{Micros: doc.modified}.Time().Add(time.Second - time.Microsecond).Truncate(time.Second)
	if d.opts.Now().Before(t.Add(d.opts.ClockSkew)) {
		return time.Time{}
	}
	return t
}

// cacheControl returns the value of the header Cache-Control.
func (d *Server) cacheControl(r *http.Request, doc *document) string {
	if !doc.immutable {
		return "no-cache"
	}
	return access.Immutable(r)
}

// notModified evaluates a request's preconditions (RFC 9110 section 13.2.2).
// If-Modified-Since counts only when there is no If-None-Match.
func notModified(h http.Header, etag string, modified time.Time) bool {
	if lines := h.Values("If-None-Match"); len(lines) > 0 {
		return matches(strings.Join(lines, ","), etag)
	}
	since, err := http.ParseTime(h.Get("If-Modified-Since"))
	return err == nil && !modified.IsZero() && !modified.After(since)
}

// matches reports whether a list of ETags contains etag, by weak comparison
// (RFC 9110 section 8.8.3.2). A text that is not a list of ETags matches
// nothing.
func matches(list, etag string) bool {
	if strings.TrimSpace(list) == "*" {
		return true
	}
	for {
		list = strings.TrimLeft(list, " \t,")
		list = strings.TrimPrefix(list, "W/")
		if !strings.HasPrefix(list, `"`) {
			return false
		}
		end := strings.IndexByte(list[1:], '"') // an ETag may hold commas
		if end < 0 {
			return false
		}
		if list[:end+2] == etag {
			return true
		}
		list = list[end+2:]
	}
}

// errTooLarge means that a body is too large to be kept.
var errTooLarge = errors.New("too large to keep")

// cachedOverhead is about how much memory the cache needs for a body besides
// its bytes.
const cachedOverhead = 300

// A body is the bytes to send, in pieces, because a single slice would be copied again
// and again while it grows to several megabytes. It is shared, and never changed.
type body struct {
	pieces [][]byte // all but the last have bodyPiece bytes
	size   int64
}

// bodyPiece is the size of a piece in bytes.
const bodyPiece = 64 << 10

// body returns the bytes to send. They are made once for all requests that come
// at the same time, and kept for later ones.
func (d *Server) body(ctx context.Context, doc *document, etag string, compress bool) (*body, error) {
	if doc.write == nil {
		return &body{}, nil
	}
	b, err := d.bodies.do(ctx, etag, func() (*body, int64, error) {
		share, err := d.opts.Answers.Take(ctx, doc.keep)
		if err != nil {
			return nil, 0, err
		}
		defer share.Release()
		out := limitedBody{max: doc.keep}
		err = d.encode(ctx, doc, compress, &out)
		if errors.Is(err, errTooLarge) {
			return nil, cachedOverhead, nil // the cache also remembers that the body is too large
		}
		if err != nil {
			return nil, 0, err
		}
		return &out.body, out.size + cachedOverhead, nil
	})
	if err == nil && b == nil {
		err = errTooLarge
	}
	return b, err
}

// A limitedBody is a body that is written, of at most max bytes.
type limitedBody struct {
	body
	max int64
}

func (b *limitedBody) Write(p []byte) (int, error) {
	if b.size += int64(len(p)); b.size > b.max {
		return 0, errTooLarge
	}
	for rest := p; len(rest) > 0; {
		last := len(b.pieces) - 1
		switch {
		case last < 0:
			b.pieces, last = append(b.pieces, nil), 0 // the first piece grows as append does, so a small document takes little
		case len(b.pieces[last]) == bodyPiece:
			b.pieces, last = append(b.pieces, make([]byte, 0, bodyPiece)), last+1
		}
		n := min(len(rest), bodyPiece-len(b.pieces[last]))
		b.pieces[last] = append(b.pieces[last], rest[:n]...)
		rest = rest[n:]
	}
	return len(p), nil
}

// encode writes doc to w, compressed if compress is true.
func (d *Server) encode(ctx context.Context, doc *document, compress bool, w io.Writer) error {
	if !compress {
		return doc.write(ctx, w)
	}
	z := d.gzip.Get().(*gzip.Writer)
	defer d.gzip.Put(z)
	z.Reset(w)
	if err := doc.write(ctx, z); err != nil {
		return err
	}
	return z.Close()
}

// stream sends a document of any size while it is read, without Content-Length. It
// leaves out the first bytes, which the client has. An error means that stream sent
// nothing. If something fails later, it breaks off the connection.
func (d *Server) stream(w http.ResponseWriter, r *http.Request, doc *document, compress bool, from int64) error {
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	share, err := d.opts.Streams.Take(r.Context(), streamRoom)
	if err != nil {
		return err
	}
	defer share.Release()
	client := &clientWriter{w: w, skip: from}
	out := bufio.NewWriterSize(client, writePage) // gzip writes in small pieces
	err = d.encode(r.Context(), doc, compress, out)
	if err == nil {
		err = out.Flush()
	}
	switch {
	case err == nil || !client.began:
		return err
	case client.failed:
		panic(http.ErrAbortHandler)
	}
	d.breakOff(r, err)
	return nil
}

// breakOff breaks off the connection, so that no client takes a part for the whole
// document. The log has only what is a fault of the hub, and no more than a client may cause.
func (d *Server) breakOff(r *http.Request, err error) {
	if r.Context().Err() == nil && problem.From(err).Status >= http.StatusInternalServerError {
		d.opts.Logger.ErrorContext(r.Context(), "a document was broken off", "path", r.URL.Path, "err", err)
	}
	panic(http.ErrAbortHandler)
}

// A clientWriter writes to a client, and leaves out the first bytes. It notes whether
// it has written anything, and whether that failed.
type clientWriter struct {
	w             io.Writer
	skip          int64
	began, failed bool
}

func (c *clientWriter) Write(p []byte) (int, error) {
	skipped := int(min(c.skip, int64(len(p))))
	if c.skip -= int64(skipped); skipped == len(p) {
		return len(p), nil
	}
	c.began = true
	n, err := c.w.Write(p[skipped:])
	c.failed = c.failed || err != nil
	return skipped + n, err
}
