package changelog

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/rshub/rshub/resourcesync"
)

// writerVersion is in every ETag. It must change with anything that changes the
// bytes of a document: resourcesync's or XMLWriter's form, gzip's level or
// library.
const writerVersion = 1

// immutableAfter is how old the last entry of a closed list must be before
// clients are told to keep the list for ever. A memory that lost its tail, after
// a failover, may fill the same list with other entries; an hour later it is
// too late for that.
const immutableAfter = time.Hour

// A document is what one request asks for, known well enough to say that it has
// not changed, but not read yet.
type document struct {
	tag      string // identifies its bytes in identity form: its ETag without quotes, and its key in the cache
	modified int64  // datetime in microseconds of its newest entry; 0 where something else may change it too
	closed   bool   // its bytes never change
	link     string // the header Link
	keep     int64  // a body of more bytes is not kept but written anew for each request

	write func(ctx context.Context, w io.Writer) error // nil: empty
}

// tag names the document that follows from the given values. Those, the base
// URL and the version of the code are all that its bytes depend on.
func (d *Documents) tag(values ...any) string {
	h := sha256.New()
	fmt.Fprintln(h, writerVersion, d.base)
	fmt.Fprintln(h, values...)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// small returns a document that is cheaper made than described.
func (d *Documents) small(doc *resourcesync.Document) *document {
	var b bytes.Buffer
	_ = doc.WriteXML(&b) // a Buffer does not fail
	return &document{
		tag:  d.tag("small", b.String()),
		keep: d.opts.CacheBytes / 2,
		write: func(_ context.Context, w io.Writer) error {
			_, err := w.Write(b.Bytes())
			return err
		},
	}
}

// answer answers a GET or HEAD with doc, or with 304. An error means that
// nothing was sent.
func (d *Documents) answer(w http.ResponseWriter, r *http.Request, doc *document) error {
	compress := doc.write != nil && acceptsGzip(r.Header)
	etag := `"` + doc.tag + `"`
	if compress {
		etag = `"` + doc.tag + `-gzip"` // other bytes, another strong ETag
	}
	modified := d.lastModified(doc)
	h := w.Header()
	h.Del("Content-Encoding") // of a first try
	h.Del("Last-Modified")
	h.Set("Etag", etag)
	h.Set("Cache-Control", d.cacheControl(r, doc))
	if doc.link != "" {
		h.Set("Link", doc.link)
	}
	if notModified(r.Header, etag, modified) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if !modified.IsZero() {
		h.Set("Last-Modified", modified.Format(http.TimeFormat))
	}
	h.Set("Content-Type", "application/xml")
	if compress {
		h.Set("Content-Encoding", "gzip")
	}
	body, err := d.body(r.Context(), doc, etag, compress)
	if errors.Is(err, errTooLarge) {
		return d.stream(w, r, doc, compress)
	}
	if err != nil {
		return err
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone; there is nobody else to tell
	}
	return nil
}

// lastModified is the first full second after doc's newest entry: rounded down
// it would be before the change, and a client that has the state in between
// would be told that nothing changed. For the same reason there is none while
// another entry may still come for that second, by any hub's clock.
func (d *Documents) lastModified(doc *document) time.Time {
	if doc.modified == 0 {
		return time.Time{}
	}
	t := Cursor{Micros: doc.modified}.Time().Add(time.Second - time.Microsecond).Truncate(time.Second)
	if d.opts.Now().Before(t.Add(d.opts.ClockSkew)) {
		return time.Time{}
	}
	return t
}

func (d *Documents) cacheControl(r *http.Request, doc *document) string {
	if !doc.closed || d.opts.Now().Sub(Cursor{Micros: doc.modified}.Time()) < immutableAfter {
		return "no-cache"
	}
	if r.Header.Get("Authorization") != "" {
		return "private, max-age=31536000, immutable" // not for caches that others share
	}
	return "public, max-age=31536000, immutable"
}

// notModified evaluates a request's preconditions (RFC 9110 section 13.2.2).
// If-Modified-Since counts only without If-None-Match.
func notModified(h http.Header, etag string, modified time.Time) bool {
	if lines := h.Values("If-None-Match"); len(lines) > 0 {
		return matches(strings.Join(lines, ","), etag)
	}
	since, err := http.ParseTime(h.Get("If-Modified-Since"))
	return err == nil && !modified.IsZero() && !modified.After(since)
}

// matches says whether a list of ETags has the one given, compared weakly (RFC
// 9110 section 8.8.3.2). What is no list of ETags matches nothing.
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

// errTooLarge means that a body is larger than its document is kept.
var errTooLarge = errors.New("too large to keep")

// cachedOverhead is about what the cache needs for a body besides its bytes.
const cachedOverhead = 300

// body returns the bytes to send, made once for all who ask at the same time
// and kept for those who ask later.
func (d *Documents) body(ctx context.Context, doc *document, etag string, compress bool) ([]byte, error) {
	if doc.write == nil {
		return []byte{}, nil
	}
	b, err := d.bodies.do(ctx, etag, func() ([]byte, int64, error) {
		out := limitedBuffer{max: doc.keep}
		err := d.encode(ctx, doc, compress, &out)
		if errors.Is(err, errTooLarge) {
			return nil, cachedOverhead, nil // remembered too
		}
		if err != nil {
			return nil, 0, err
		}
		b := bytes.Join(out.pieces, nil)
		return b, int64(len(b)) + cachedOverhead, nil
	})
	if err == nil && b == nil {
		err = errTooLarge
	}
	return b, err
}

// A limitedBuffer holds at most max bytes. It grows by pieces: one slice would
// be copied again and again, several megabytes at last.
type limitedBuffer struct {
	pieces [][]byte // all but the last are full
	size   int64
	max    int64
}

const bufferPiece = 256 << 10

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.size += int64(len(p)); b.size > b.max {
		return 0, errTooLarge
	}
	for rest := p; len(rest) > 0; {
		last := len(b.pieces) - 1
		switch {
		case last < 0:
			b.pieces, last = append(b.pieces, nil), 0 // grows as a small document needs
		case len(b.pieces[last]) == bufferPiece:
			b.pieces, last = append(b.pieces, make([]byte, 0, bufferPiece)), last+1
		}
		n := min(len(rest), bufferPiece-len(b.pieces[last]))
		b.pieces[last] = append(b.pieces[last], rest[:n]...)
		rest = rest[n:]
	}
	return len(p), nil
}

// encode writes doc to w, compressed or not.
func (d *Documents) encode(ctx context.Context, doc *document, compress bool, w io.Writer) error {
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

// stream sends a document of any size as it is read, without Content-Length. An
// error means that nothing was sent. Later the connection is all that can still
// tell: it is broken off, so that nobody takes a part for the whole.
func (d *Documents) stream(w http.ResponseWriter, r *http.Request, doc *document, compress bool) error {
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	client := &clientWriter{w: w}
	out := bufio.NewWriterSize(client, writePage) // gzip writes in small pieces
	err := d.encode(r.Context(), doc, compress, out)
	if err == nil {
		err = out.Flush()
	}
	if err == nil || !client.began {
		return err
	}
	if !client.failed && r.Context().Err() == nil {
		d.opts.Logger.ErrorContext(r.Context(), "a document was broken off", "path", r.URL.Path, "err", err)
	}
	panic(http.ErrAbortHandler)
}

// A clientWriter knows whether the answer has begun, and who is at fault.
type clientWriter struct {
	w             io.Writer
	began, failed bool
}

func (c *clientWriter) Write(p []byte) (int, error) {
	c.began = true
	n, err := c.w.Write(p)
	c.failed = c.failed || err != nil
	return n, err
}

// fail answers with the problem that err is, if it is one.
func (d *Documents) fail(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return
	}
	if p := WriteError(w, r, err); p.Status == http.StatusInternalServerError && r.Context().Err() == nil {
		d.opts.Logger.ErrorContext(r.Context(), "a document could not be served", "path", r.URL.Path, "err", err)
	}
}

// allow answers 405 to any other method than GET and HEAD. methods is what the
// resource knows.
func allow(w http.ResponseWriter, r *http.Request, methods string) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	NotAllowed(w, r, methods)
	return false
}
