package rdm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/rshub/rshub/rdm/soif"
	"github.com/rshub/rshub/resourcesync"
)

// submit publishes the RDs that a client sends, all of them or none. The answer is sent when
// the change memory holds them.
func (s *Server) submit(w http.ResponseWriter, r *http.Request, m *message, set string) error {
	if err := s.need(m, set); err != nil {
		return err
	}
	kind := resourcesync.Updated // the hub need not know whether it is new: followers treat both alike
	if m.kind == rdResponseDeleted {
		kind = resourcesync.Deleted
	}
	t := &translation{in: m.body, kind: kind, closer: r.Body}
	publish := *r
	publish.Header = r.Header.Clone()
	publish.Header.Set("Content-Type", "application/json")
	publish.Header.Del("Content-Encoding") // it is unpacked
	publish.Body, publish.ContentLength = t, -1
	receipt, err := s.hub.Publish(w, &publish, set)
	if err != nil {
		return err
	}
	done := "updated"
	if kind == resourcesync.Deleted {
		done = "deleted"
	}
	text := fmt.Sprintf("%d resource descriptions of %s were %s; the last has the cursor %s.", receipt.Count, set, done, receipt.Cursor)
	if receipt.Replayed {
		text += " The hub had them already, by the same Idempotency-Key."
	}
	if t.schema {
		text += " The hub does not keep the schema description that came with them."
	}
	h := newHeader(replies[m.kind])
	h.Add("Catalog-Service-ID", s.csid(set))
	h.Add("RS-Cursor", receipt.Cursor)
	send(w, r, http.StatusOK, append(write(nil, h), page("Accepted", text)...))
	return nil
}

// A translation is a stream of RDs as the document of JSON that publishes them. It holds one
// RD at a time.
type translation struct {
	in     *soif.Reader
	kind   resourcesync.ChangeType
	closer io.Closer

	out    bytes.Buffer // what is still to be read
	count  int          // of RDs
	schema bool         // a schema description came before them
	over   bool         // the end of the document is in out
	err    error        // of the stream; it stays
}

// Close closes the body of the request.
func (t *translation) Close() error { return t.closer.Close() }

// Read returns the next bytes of the document. An error of the stream comes after what was
// good before it, and no end of the document does then.
func (t *translation) Read(p []byte) (int, error) {
	for t.out.Len() == 0 && t.err == nil {
		if t.over {
			return 0, io.EOF
		}
		t.err = t.next()
	}
	if t.out.Len() == 0 {
		return 0, t.err
	}
	return t.out.Read(p)
}

// next puts the next RD into out, or the end of the document.
func (t *translation) next() error {
	o, err := t.in.Read()
	if err == io.EOF {
		if t.count == 0 {
			t.out.WriteString(`{"changes":[`)
		}
		t.out.WriteString("]}")
		t.over = true
		return nil
	}
	if err != nil {
		return unreadObject(err)
	}
	switch {
	case strings.EqualFold(o.Type, "SCHEMA") && t.count == 0 && !t.schema:
		t.schema = true
		return nil
	case len(o.Type) > 3 && strings.EqualFold(o.Type[:3], "RDM"), strings.EqualFold(o.Type, "SCHEMA"), strings.EqualFold(o.Type, "TAXONOMY"), strings.EqualFold(o.Type, "CLASSIFICATION"):
		return resourcesync.Invalid("object %d: @%s is no resource description, and cannot be published", t.in.Count(), o.Type)
	}
	t.count++
	c, err := change(o, t.kind)
	if err != nil {
		if e, ok := errors.AsType[*resourcesync.Error](err); ok {
			rule := e.Rule
			if o.URL != "" { // in the rule, because the reader of the document knows only what it has read
				rule = resourcesync.Shorten(o.URL) + ": " + rule
			}
			return &resourcesync.Error{Err: e.Err, Entry: t.count, Rule: rule}
		}
		return err
	}
	begin := `,{`
	if t.count == 1 {
		begin = `{"changes":[{`
	}
	text := append(t.out.AvailableBuffer(), begin...)
	text = append(resourcesync.AppendJSONMembers(text, c), '}')
	t.out.Write(text)
	return nil
}

// unreadObject is unread, for the middle of a stream whose reader tells errors of the
// connection by itself.
func unreadObject(err error) error {
	if _, ok := errors.AsType[*soif.Error](err); ok {
		return unread(err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return unread(err)
	}
	return err
}
