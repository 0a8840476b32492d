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

// writerVersion is part of every ETag. It must change whenever the bytes of documents change: with the
// output of resourcesync or feed.XMLWriter, and with the level or version of gzip.
const writerVersion = 3

// A document is the response to a request. It has what is needed for a 304; its entries are read only
// by write.
type document struct {
	tag      string // identifies the uncompressed bytes: the ETag without quotes
	modified int64  // datetime of the newest entry in microseconds; 0 if something else may change the document, too

	mediaType string // application/xml if empty
	immutable bool   // whether its bytes never change and its name is never reused
	link      string // value of the Link header; empty if none
	more      string // second value of the Link header; empty if none
	maxCached int64  // larger bodies, in bytes, are not cached but written again for each request; see Server.cacheLimit

	write func(ctx context.Context, w io.Writer) error // nil if the body is empty
}

// tag returns the tag of the document determined by values. The bytes of the document must depend only
// on values, the base URL and writerVersion.
func (d *Server) tag(values ...any) string {
	h := d.newTag()
	fmt.Fprintln(h, values...)
	return sum(h)
}

// newTag returns the hash of a tag. The caller writes the values and then calls sum.
func (d *Server) newTag() hash.Hash {
	h := sha256.New()
	fmt.Fprintln(h, writerVersion, d.base)
	return h
}

func sum(h hash.Hash) string { return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16]) }

// Memory of documents, in bytes.
const (
	entryRoom  = 16 << 10 // maximum average size of the entries of a cached body; most entries have less than 1 KiB
	streamRoom = 2 << 20  // of a streamed document: the page being read, and buffers
)

// cacheLimit returns the maximum size in bytes of a cached body with a number of entries. Encoding the
// body may need as much memory, so a body of few entries needs a small share of the budget.
func (d *Server) cacheLimit(entries uint64) int64 {
	return min(d.opts.CacheBytes/2, 4<<10+int64(min(entries, maxItems))*entryRoom)
}

// small returns a document that is encoded in memory.
func (d *Server) small(doc *resourcesync.Document) *document {
	var b bytes.Buffer
	_ = doc.WriteXML(&b) // a Buffer never fails
	return d.whole(b.Bytes(), "")
}

// whole returns a document with the given text, from which its tag is computed.
func (d *Server) whole(text []byte, mediaType string) *document {
	return &document{
		tag:       d.tag("small", string(text)),
		mediaType: mediaType,
		maxCached: min(d.opts.CacheBytes/2, 1<<10+2*int64(len(text))),
		write: func(_ context.Context, w io.Writer) error {
			_, err := w.Write(text)
			return err
		},
	}
}

// answer sends doc or a 304 in response to a GET or HEAD. If it returns an error, it has sent nothing.
func (d *Server) answer(w http.ResponseWriter, r *http.Request, doc *document) error {
	compress := doc.write != nil && accept.Gzip(r.Header)
	etag := `"` + doc.tag + `"`
	if compress {
		etag = `"` + doc.tag + `-gzip"` // different bytes require a different strong ETag
	}
	modified := d.lastModified(doc)
	h := w.Header()
	h.Del("Content-Encoding") // ServeLatest may call answer again after an error
	h.Del("Last-Modified")
	h.Set("Etag", etag)
	h.Set("Cache-Control", d.cacheControl(r, doc))
	if doc.link != "" && h.Get("Link") == "" { // otherwise the header has these links already
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

// send sends a body at the speed of the client. It holds only one piece at a time and looks up the body
// in the cache for each piece. If the body was evicted, the rest is encoded again. So the unread data of
// slow clients needs no memory besides the cache. It aborts when the client loses its rights.
func (d *Server) send(w http.ResponseWriter, r *http.Request, doc *document, etag string, compress bool, b *body) {
	sent := int64(0)
	for i, n := 0, len(b.pieces); i < n; i++ {
		piece := b.pieces[i]
		b = nil
		if _, err := w.Write(piece); err != nil {
			return // the client disconnected
		}
		sent += int64(len(piece))
		if i+1 == n {
			return
		}
		if err := r.Context().Err(); err != nil {
			d.abort(r, err)
		}
		if b, _ = d.bodies.Get(etag); b == nil {
			if err := d.stream(w, r, doc, compress, sent); err != nil {
				d.abort(r, err)
			}
			return
		}
	}
}

// lastModified returns the first full second after the newest entry of doc. Rounded down, it would be
// before the change, and a client with an earlier state of the same second would get a 304. For the same
// reason it returns the zero time as long as, by the clock of any hub, another entry with a datetime in
// that second may be added.
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

// cacheControl returns the value of the Cache-Control header.
func (d *Server) cacheControl(r *http.Request, doc *document) string {
	if !doc.immutable {
		return "no-cache"
	}
	return access.Immutable(r)
}

// notModified evaluates the preconditions of a request (RFC 9110 section 13.2.2). If-None-Match
// overrides If-Modified-Since.
func notModified(h http.Header, etag string, modified time.Time) bool {
	if lines := h.Values("If-None-Match"); len(lines) > 0 {
		return matches(strings.Join(lines, ","), etag)
	}
	since, err := http.ParseTime(h.Get("If-Modified-Since"))
	return err == nil && !modified.IsZero() && !modified.After(since)
}

// matches reports whether a list of ETags contains etag by weak comparison (RFC 9110 section 8.8.3.2).
// An invalid list matches nothing.
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
		end := strings.IndexByte(list[1:], '"') // an ETag may contain commas
		if end < 0 {
			return false
		}
		if list[:end+2] == etag {
			return true
		}
		list = list[end+2:]
	}
}

// errTooLarge means that a body is too large for the cache.
var errTooLarge = errors.New("body too large for the cache")

// cachedOverhead is the approximate memory of a cached body besides its bytes.
const cachedOverhead = 300

// A body is an encoded body in pieces, because a single slice would be copied many times while it grows
// to several megabytes. It is shared and must not be modified.
type body struct {
	pieces [][]byte // all except the last have bodyPiece bytes
	size   int64
}

// bodyPiece is the size of a piece in bytes.
const bodyPiece = 64 << 10

// body returns the body of doc. Concurrent requests share one encoding, which is cached for later ones.
func (d *Server) body(ctx context.Context, doc *document, etag string, compress bool) (*body, error) {
	if doc.write == nil {
		return &body{}, nil
	}
	b, err := d.bodies.do(ctx, etag, func() (*body, int64, error) {
		share, err := d.opts.Answers.Acquire(ctx, doc.maxCached)
		if err != nil {
			return nil, 0, err
		}
		defer share.Release()
		out := limitedBody{max: doc.maxCached}
		err = d.encode(ctx, doc, compress, &out)
		if errors.Is(err, errTooLarge) {
			return nil, cachedOverhead, nil // cache that the body is too large
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

// A limitedBody is a writer of a body of at most max bytes.
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
			b.pieces, last = append(b.pieces, nil), 0 // the first piece grows by append, so a small document needs little memory
		case len(b.pieces[last]) == bodyPiece:
			b.pieces, last = append(b.pieces, make([]byte, 0, bodyPiece)), last+1
		}
		n := min(len(rest), bodyPiece-len(b.pieces[last]))
		b.pieces[last] = append(b.pieces[last], rest[:n]...)
		rest = rest[n:]
	}
	return len(p), nil
}

// encode writes doc to w, compressed with gzip if compress is true.
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

// stream sends a document of any size while it is read, without Content-Length. It skips the first
// from bytes, which the client already has. If it returns an error, it has sent nothing. If something
// fails later, it aborts the connection.
func (d *Server) stream(w http.ResponseWriter, r *http.Request, doc *document, compress bool, from int64) error {
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	share, err := d.opts.Streams.Acquire(r.Context(), streamRoom)
	if err != nil {
		return err
	}
	defer share.Release()
	client := &clientWriter{w: w, skip: from}
	out := bufio.NewWriterSize(client, writePage) // gzip makes small writes
	err = d.encode(r.Context(), doc, compress, out)
	if err == nil {
		err = out.Flush()
	}
	switch {
	case err == nil || !client.started:
		return err
	case client.failed:
		panic(http.ErrAbortHandler)
	}
	d.abort(r, err)
	return nil
}

// abort aborts the connection, so that no client mistakes a part for the whole document. It logs only
// faults of the hub, because clients could cause any number of others.
func (d *Server) abort(r *http.Request, err error) {
	if r.Context().Err() == nil && problem.From(err).Status >= http.StatusInternalServerError {
		d.opts.Logger.ErrorContext(r.Context(), "document aborted", "path", r.URL.Path, "err", err)
	}
	panic(http.ErrAbortHandler)
}

// A clientWriter writes to a client and skips the first bytes. It records whether it has written
// anything, and whether a write failed.
type clientWriter struct {
	w               io.Writer
	skip            int64
	started, failed bool
}

func (c *clientWriter) Write(p []byte) (int, error) {
	skipped := int(min(c.skip, int64(len(p))))
	if c.skip -= int64(skipped); skipped == len(p) {
		return len(p), nil
	}
	c.started = true
	n, err := c.w.Write(p[skipped:])
	c.failed = c.failed || err != nil
	return skipped + n, err
}
