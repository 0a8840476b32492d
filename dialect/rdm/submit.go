package rdm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// submit publishes the resource descriptions of a submission. For the hub it is a document of
// changes, which it reads while the submission comes, and takes whole or not at all.
func (s *Server) submit(w http.ResponseWriter, r *http.Request, m *message, in *Reader, set string) error {
	published := r.Clone(r.Context())
	published.Body = io.NopCloser(&changes{in: in, deleted: m.kind == deletions})
	published.ContentLength = -1
	published.Header = http.Header{"Content-Type": {"application/json"}} // other headers are about the message
	if key := r.Header["Idempotency-Key"]; key != nil {
		published.Header["Idempotency-Key"] = key
	}
	answer := &receipt{ResponseWriter: w, header: http.Header{}}
	if err := s.hub.Publish(answer, published, set); err != nil {
		return err
	}
	var got feed.Receipt
	if err := json.Unmarshal(answer.body.Bytes(), &got); err != nil {
		return fmt.Errorf("read the receipt of a submission: %w", err)
	}
	text := fmt.Sprintf("The hub has stored %d changes of set %s, up to cursor %s.", got.Count, got.Set, got.Cursor)
	return writeStatus(w, http.StatusOK, header(nil, statusResponse, s.catalogs+set, "", 0), text)
}

// A receipt keeps the body of an answer.
type receipt struct {
	http.ResponseWriter
	header http.Header
	body   bytes.Buffer
}

func (r *receipt) Header() http.Header         { return r.header }
func (r *receipt) Write(p []byte) (int, error) { return r.body.Write(p) }
func (r *receipt) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// changes are the resource descriptions of a submission, read as a document of changes in JSON.
type changes struct {
	in      *Reader
	deleted bool
	entries int
	text    []byte // what is not read yet
	err     error  // what comes behind it
}

func (c *changes) Read(p []byte) (int, error) {
	if len(c.text) == 0 && c.err == nil {
		c.text, c.err = c.next(c.text)
	}
	if len(c.text) == 0 {
		return 0, c.err
	}
	n := copy(p, c.text)
	c.text = c.text[n:]
	return n, nil
}

// next appends the next change, with what stands before it, or the end of the document.
func (c *changes) next(dst []byte) ([]byte, error) {
	o, err := c.in.Next()
	for err == nil && strings.EqualFold(o.Type, "SCHEMA") && c.entries == 0 {
		o, err = c.in.Next()
	}
	before := byte(',')
	if c.entries == 0 {
		dst, before = append(dst, `{"changes":`...), '['
	}
	if err == io.EOF && c.entries == 0 {
		return append(dst, "[]}"...), io.EOF
	}
	if err == io.EOF {
		return append(dst, "]}"...), io.EOF
	}
	if err != nil {
		return nil, err
	}
	c.entries++
	change, err := changeOf(o, c.deleted)
	if err == nil {
		err = change.Validate()
	}
	if err != nil {
		return nil, c.in.about(o, err)
	}
	dst = resourcesync.AppendJSONMembers(append(dst, before, '{'), change)
	return append(dst, '}'), nil
}

var hex = regexp.MustCompile(`^[0-9A-Fa-f]{32}$`)

// changeOf returns the change that a resource description says.
func changeOf(o *Object, deleted bool) (*resourcesync.Change, error) {
	c := &resourcesync.Change{Loc: o.URL, Change: resourcesync.Updated}
	if o.URL == "-" {
		return nil, resourcesync.Invalid("a resource description has a URL")
	}
	if deleted {
		c.Change = resourcesync.Deleted
		return c, nil
	}
	var change, modified, length, size, digest string
	for _, a := range []struct {
		name string
		to   *string
	}{
		{"Change", &change}, {"Last-Modified", &modified}, {"Content-Type", &c.Type}, {"Content-Length", &length}, {"File-Size", &size}, {"MD5", &digest}, {"Hash", &c.Hash},
	} {
		var err error
		if *a.to, err = o.value(a.name); err != nil {
			return nil, err
		}
	}
	var err error
	switch {
	case change != "" && change != string(resourcesync.Created) && change != string(resourcesync.Updated):
		return nil, resourcesync.Invalid("Change is created or updated, not %q; what is deleted is sent as %s", resourcesync.Shorten(change), deletions)
	case change != "":
		c.Change = resourcesync.ChangeType(change)
	}
	if modified != "" {
		if c.Lastmod, err = http.ParseTime(modified); err != nil {
			return nil, resourcesync.Invalid("Last-Modified is a date of HTTP, such as Sun, 06 Nov 1994 08:49:37 GMT, not %q", resourcesync.Shorten(modified))
		}
	}
	if length == "" {
		length = size
	}
	if length != "" {
		n, err := strconv.ParseInt(length, 10, 64)
		if err != nil || n < 0 {
			return nil, resourcesync.Invalid("Content-Length is a number of bytes, not %q", resourcesync.Shorten(length))
		}
		c.Length = &n
	}
	if digest != "" && !hex.MatchString(digest) {
		return nil, resourcesync.Invalid("MD5 is 32 hex digits, not %q", resourcesync.Shorten(digest))
	}
	if digest != "" && resourcesync.Digest(c.Hash, "md5") == "" {
		c.Hash = strings.TrimSpace(c.Hash + " md5:" + digest)
	}
	return c, nil
}
