package rdm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// submit publishes the resource descriptions of a submission. The hub receives them as a JSON
// document of changes, which it reads while the submission arrives, and accepts as a whole or not
// at all.
func (s *Server) submit(w http.ResponseWriter, r *http.Request, m *message, in *Reader, set string) error {
	request := r.Clone(r.Context())
	request.Body = io.NopCloser(newChangesReader(in, m.kind == deletions))
	request.ContentLength = -1
	request.Header = http.Header{"Content-Type": {"application/json"}} // other headers belong to the message
	if key := r.Header["Idempotency-Key"]; key != nil {
		request.Header["Idempotency-Key"] = key
	}
	recorder := &receiptRecorder{ResponseWriter: w, header: http.Header{}}
	if err := s.hub.Publish(recorder, request, set); err != nil {
		return err
	}
	var receipt feed.Receipt
	if err := json.Unmarshal(recorder.body.Bytes(), &receipt); err != nil {
		return fmt.Errorf("read receipt of submission: %w", err)
	}
	pending := fmt.Sprintf("The hub has stored %d changes of set %s, up to cursor %s.", receipt.Count, receipt.Set, receipt.Cursor)
	writeStatus(w, http.StatusOK, header(statusResponse, s.catalogs+set, ""), pending)
	return nil
}

// A receiptRecorder records the body of a response.
type receiptRecorder struct {
	http.ResponseWriter
	header http.Header
	body   bytes.Buffer
}

func (r *receiptRecorder) Header() http.Header         { return r.header }
func (r *receiptRecorder) Write(p []byte) (int, error) { return r.body.Write(p) }
func (r *receiptRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// newChangesReader returns a reader of the resource descriptions of a submission as a JSON document
// of changes.
func newChangesReader(in *Reader, deleted bool) io.Reader {
	return io.MultiReader(strings.NewReader(`{"changes":[`), &changeReader{in: in, deleted: deleted}, strings.NewReader("]}"))
}

// A changeReader reads changes as the elements of a JSON array.
type changeReader struct {
	in      *Reader
	deleted bool
	n       int          // number of changes
	text    bytes.Buffer // what is not read yet
}

func (c *changeReader) Read(p []byte) (int, error) {
	if c.text.Len() == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	return c.text.Read(p)
}

// next appends the next change to c.pending, or returns io.EOF.
func (c *changeReader) next() error {
	o, err := c.in.Next()
	for err == nil && strings.EqualFold(o.Type, "SCHEMA") && c.n == 0 {
		o, err = c.in.Next()
	}
	if err != nil {
		return err
	}
	change, err := changeOf(o, c.deleted)
	if err == nil {
		err = change.Validate()
	}
	if err != nil {
		return c.in.wrapError(o, err)
	}
	if c.n++; c.n > 1 {
		c.text.WriteByte(',')
	}
	text := append(c.text.AvailableBuffer(), '{')
	c.text.Write(append(resourcesync.AppendJSONMembers(text, change), '}'))
	return nil
}

// changeOf returns the change that a resource description describes.
func changeOf(o *Object, deleted bool) (*resourcesync.Change, error) {
	if o.URL == "-" {
		return nil, resourcesync.Invalidf("resource description has no URL")
	}
	if deleted {
		return &resourcesync.Change{Loc: o.URL, Change: resourcesync.Deleted}, nil
	}
	values, err := o.singleValues("Change", "Last-Modified", "Content-Type", "Content-Length", "File-Size", "MD5", "Hash")
	if err != nil {
		return nil, err
	}
	c := &resourcesync.Change{Loc: o.URL, Type: values["Content-Type"], Hash: values["Hash"]}
	switch c.Change = resourcesync.ChangeType(cmp.Or(values["Change"], string(resourcesync.Updated))); c.Change {
	case resourcesync.Created, resourcesync.Updated:
	default:
		return nil, resourcesync.Invalidf("Change: got %q, want created or updated; send deletions as %s", resourcesync.Shorten(values["Change"]), deletions)
	}
	if modified := values["Last-Modified"]; modified != "" {
		if c.Lastmod, err = http.ParseTime(modified); err != nil {
			return nil, resourcesync.Invalidf("Last-Modified: got %q, want an HTTP date such as Sun, 06 Nov 1994 08:49:37 GMT", resourcesync.Shorten(modified))
		}
	}
	if length := cmp.Or(values["Content-Length"], values["File-Size"]); length != "" {
		n, err := strconv.ParseInt(length, 10, 64)
		if err != nil || n < 0 {
			return nil, resourcesync.Invalidf("Content-Length: got %q, want a number of bytes", resourcesync.Shorten(length))
		}
		c.Length = &n
	}
	if digest := values["MD5"]; digest != "" && resourcesync.Digest(c.Hash, "md5") == "" {
		c.Hash += " md5:" + digest // Validate normalizes the spaces
	}
	return c, nil
}
