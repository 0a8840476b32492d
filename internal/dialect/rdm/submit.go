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

// submit publishes the resource descriptions of a submission. For the hub it is a document of
// changes, which it reads while the submission comes, and takes whole or not at all.
func (s *Server) submit(w http.ResponseWriter, r *http.Request, m *message, in *Reader, set string) error {
	published := r.Clone(r.Context())
	published.Body = io.NopCloser(changesOf(in, m.kind == deletions))
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
	writeStatus(w, http.StatusOK, header(statusResponse, s.catalogs+set, ""), text)
	return nil
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

// changesOf reads the resource descriptions of a submission as a document of changes in JSON.
func changesOf(in *Reader, deleted bool) io.Reader {
	return io.MultiReader(strings.NewReader(`{"changes":[`), &changes{in: in, deleted: deleted}, strings.NewReader("]}"))
}

// changes are read as the elements of an array.
type changes struct {
	in      *Reader
	deleted bool
	n       int          // of changes
	text    bytes.Buffer // what is not read yet
}

func (c *changes) Read(p []byte) (int, error) {
	if c.text.Len() == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	return c.text.Read(p)
}

// next reads the next change, or io.EOF.
func (c *changes) next() error {
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
		return c.in.about(o, err)
	}
	if c.n++; c.n > 1 {
		c.text.WriteByte(',')
	}
	text := append(c.text.AvailableBuffer(), '{')
	c.text.Write(append(resourcesync.AppendJSONMembers(text, change), '}'))
	return nil
}

// changeOf returns the change that a resource description says.
func changeOf(o *Object, deleted bool) (*resourcesync.Change, error) {
	if o.URL == "-" {
		return nil, resourcesync.Invalidf("a resource description has a URL")
	}
	if deleted {
		return &resourcesync.Change{Loc: o.URL, Change: resourcesync.Deleted}, nil
	}
	said, err := o.single("Change", "Last-Modified", "Content-Type", "Content-Length", "File-Size", "MD5", "Hash")
	if err != nil {
		return nil, err
	}
	c := &resourcesync.Change{Loc: o.URL, Type: said["Content-Type"], Hash: said["Hash"]}
	switch c.Change = resourcesync.ChangeType(cmp.Or(said["Change"], string(resourcesync.Updated))); c.Change {
	case resourcesync.Created, resourcesync.Updated:
	default:
		return nil, resourcesync.Invalidf("Change is created or updated, not %q; what is deleted is sent as %s", resourcesync.Shorten(said["Change"]), deletions)
	}
	if modified := said["Last-Modified"]; modified != "" {
		if c.Lastmod, err = http.ParseTime(modified); err != nil {
			return nil, resourcesync.Invalidf("Last-Modified is a date of HTTP, such as Sun, 06 Nov 1994 08:49:37 GMT, not %q", resourcesync.Shorten(modified))
		}
	}
	if length := cmp.Or(said["Content-Length"], said["File-Size"]); length != "" {
		n, err := strconv.ParseInt(length, 10, 64)
		if err != nil || n < 0 {
			return nil, resourcesync.Invalidf("Content-Length is a number of bytes, not %q", resourcesync.Shorten(length))
		}
		c.Length = &n
	}
	if digest := said["MD5"]; digest != "" && resourcesync.Digest(c.Hash, "md5") == "" {
		c.Hash += " md5:" + digest // Validate puts the spaces right
	}
	return c, nil
}
