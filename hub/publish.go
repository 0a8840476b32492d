package hub

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/resourcesync"
)

// A Receipt is the answer to a publish.
type Receipt struct {
	Set      string `json:"set"`
	First    string `json:"first"`  // cursor of the first entry
	Cursor   string `json:"cursor"` // of the last one
	Count    int    `json:"count"`
	Line     int    `json:"line,omitempty"`     // of an NDJSON stream: the last line that was accepted
	Replayed bool   `json:"replayed,omitempty"` // all of it was in the memory already
}

// ServePublish answers a POST of changes to a set's topic: 200 with a Receipt
// once the memory holds them, else a problem document, and nothing was added.
// (Of an NDJSON stream what the problem says was accepted stays.) The body is
// XML, JSON or NDJSON, plain or gzipped.
func (h *Hub) ServePublish(w http.ResponseWriter, r *http.Request, set string) {
	receipt, err := h.receive(w, r, set)
	if err != nil {
		switch p := changelog.WriteError(w, r, err); {
		case r.Context().Err() != nil: // the publisher went away
		case p.Status == http.StatusInternalServerError:
			h.opts.Logger.ErrorContext(r.Context(), "publish failed", "set", set, "err", err)
		case p.Status > http.StatusInternalServerError:
			h.opts.Logger.WarnContext(r.Context(), "publish refused", "set", set, "err", err)
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	body, _ := json.Marshal(receipt) // strings and numbers only
	_, _ = w.Write(append(body, '\n'))
}

// ServeHub answers a POST of changes to the hub's own URL, where a Link header
// with rel="self" names the topic and one with rel="hub" this hub (Change
// Notification section 4.1). allowed says whether the caller may publish to the
// set that was named.
func (h *Hub) ServeHub(w http.ResponseWriter, r *http.Request, allowed func(set string) error) {
	set, err := h.linkedSet(r.Header)
	if err == nil {
		err = allowed(set)
	}
	if err != nil {
		changelog.WriteError(w, r, err)
		return
	}
	h.ServePublish(w, r, set)
}

// linkedSet finds the set that the Link headers of a publish name.
func (h *Hub) linkedSet(header http.Header) (string, error) {
	var self, hub []string
	for _, l := range parseLinks(header.Values("Link")) {
		for rel := range strings.FieldsSeq(strings.ToLower(l.rel)) {
			switch rel {
			case "self":
				self = append(self, l.uri)
			case "hub":
				hub = append(hub, l.uri)
			}
		}
	}
	if len(self) != 1 || len(hub) == 0 {
		return "", changelog.Invalid(`a publish to the hub's own URL names its topic and the hub: Link: <topic>; rel="self", <%s/hub>; rel="hub"`, h.opts.BaseURL)
	}
	if !slices.ContainsFunc(hub, func(u string) bool { return strings.TrimSuffix(u, "/") == h.opts.BaseURL+"/hub" }) {
		return "", changelog.Invalid(`Link rel="hub" does not name this hub, which is <%s/hub>`, h.opts.BaseURL)
	}
	set, ok := strings.CutPrefix(self[0], h.opts.BaseURL+"/sets/")
	if ok {
		set, ok = strings.CutSuffix(set, "/changes")
	}
	if !ok || changelog.CheckSet(set) != nil {
		return "", changelog.Invalid(`Link rel="self" names no topic of this hub: a topic is <%s/sets/SET/changes>`, h.opts.BaseURL)
	}
	return set, nil
}

// receive reads, validates and appends what r carries.
func (h *Hub) receive(w http.ResponseWriter, r *http.Request, set string) (*Receipt, error) {
	body, mediaType, key, err := h.open(w, r, set)
	if err == nil && mediaType == ndjson {
		return h.receiveLines(r.Context(), set, key, body)
	}
	var p changelog.Publish
	if err == nil {
		p, err = h.readDocument(r.Context(), body, mediaType, key)
	}
	if err != nil {
		h.metrics.published(changelog.Appended{}, err, 0)
		return nil, err
	}
	a, err := h.Publish(r.Context(), set, p)
	if err != nil {
		return nil, err
	}
	return newReceipt(set, a), nil
}

// open checks what a publish says of itself, and returns its body to read.
func (h *Hub) open(w http.ResponseWriter, r *http.Request, set string) (body io.Reader, mediaType, key string, err error) {
	if err := changelog.CheckSet(set); err != nil {
		return nil, "", "", err
	}
	if key, err = h.idempotencyKey(r); err != nil {
		return nil, "", "", err
	}
	if mediaType, err = contentType(r.Header); err != nil {
		return nil, "", "", err
	}
	body, err = h.body(w, r, mediaType == ndjson)
	return body, mediaType, key, err
}

// readDocument reads a publish that is one document, whole.
func (h *Hub) readDocument(ctx context.Context, body io.Reader, mediaType, key string) (p changelog.Publish, err error) {
	sum := sha256.New()
	body = io.TeeReader(body, sum)
	var doc *resourcesync.Document
	if mediaType == xmlType {
		doc, err = resourcesync.ReadXML(body, h.limits())
	} else {
		doc, err = resourcesync.ReadJSON(body, h.limits())
	}
	if err != nil {
		return p, readError(err)
	}
	if p.Changes, err = documentChanges(doc); err != nil {
		return p, err
	}
	p.Hash = [32]byte(sum.Sum(nil))
	switch {
	case key != "":
		p.Key = h.callerKey(ctx, "document", key)
	case !doc.From.IsZero() && !doc.Until.IsZero():
		// Its interval makes the document unique: sent again, it is a retry.
		p.Key = h.callerKey(ctx, "interval", string(p.Hash[:]))
	}
	return p, nil
}

func newReceipt(set string, a changelog.Appended) *Receipt {
	first := changelog.Cursor{Position: a.After.Position + 1, Micros: a.Cursor.Micros - int64(a.Count-1)}
	return &Receipt{Set: set, First: first.String(), Cursor: a.Cursor.String(), Count: a.Count, Replayed: a.Replayed}
}

func (h *Hub) limits() resourcesync.Limits {
	return resourcesync.Limits{Bytes: h.opts.MaxBody, Entries: changelog.MaxBatch}
}

// documentChanges returns what a document publishes, validated.
func documentChanges(doc *resourcesync.Document) ([]resourcesync.Change, error) {
	if !doc.IsChanges() {
		what := "its capability is " + strconv.Quote(doc.Capability)
		if doc.Index {
			what = "it is a sitemapindex"
		}
		return nil, changelog.Invalid("the document cannot be published, because %s: send a urlset whose rs:md capability is change-notification or changelist", what)
	}
	if !doc.From.IsZero() && !doc.Until.IsZero() && doc.From.After(doc.Until) {
		return nil, changelog.Invalid("from is later than until")
	}
	changes := make([]resourcesync.Change, len(doc.Items))
	for i := range doc.Items {
		c := &doc.Items[i].Change
		if err := c.Validate(); err != nil {
			if e, ok := errors.AsType[*resourcesync.Error](err); ok {
				e.Entry = i + 1
			}
			return nil, err
		}
		changes[i] = *c
	}
	return changes, nil
}

// The forms of a publish.
const (
	xmlType  = "application/xml"
	jsonType = "application/json"
	ndjson   = "application/x-ndjson"
)

// IsPublish reports whether a request to the hub's own URL is meant as a publish:
// it names a topic in a Link header, or carries what changes are sent as.
func IsPublish(header http.Header) bool {
	_, err := contentType(header)
	return err == nil || header.Get("Link") != ""
}

func contentType(header http.Header) (string, error) {
	value := header.Get("Content-Type")
	mediaType, params, err := mime.ParseMediaType(value)
	if err == nil {
		if c := params["charset"]; c != "" && !strings.EqualFold(c, "utf-8") && !strings.EqualFold(c, "us-ascii") {
			return "", unsupported("the charset is " + strconv.Quote(c) + "; send UTF-8")
		}
		switch mediaType {
		case xmlType, "text/xml":
			return xmlType, nil
		case jsonType:
			return jsonType, nil
		case ndjson, "application/ndjson", "application/jsonl":
			return ndjson, nil
		}
	}
	return "", unsupported(fmt.Sprintf("the Content-Type is %q; changes are sent as application/xml, application/json or application/x-ndjson", value))
}

func unsupported(detail string) error {
	p := changelog.NewStatus(http.StatusUnsupportedMediaType, "unsupported", detail)
	p.Header = http.Header{"Accept-Post": {"application/xml, application/json, application/x-ndjson"}, "Accept-Encoding": {"gzip"}}
	return p
}

// body returns the request's body within its limit, unpacked. A stream has no
// limit as a whole.
func (h *Hub) body(w http.ResponseWriter, r *http.Request, stream bool) (io.Reader, error) {
	var body io.ReadCloser = &patientReader{ReadCloser: r.Body, timeout: h.opts.ReadTimeout, conn: http.NewResponseController(w)}
	if !stream {
		body = http.MaxBytesReader(w, body, h.opts.MaxBody)
	}
	switch e := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); e {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, readError(err)
		}
		return z, nil
	default:
		return nil, unsupported(fmt.Sprintf("the Content-Encoding is %q; send gzip or none", e))
	}
}

// A patientReader lets a publisher be slow, but not silent.
type patientReader struct {
	io.ReadCloser
	timeout time.Duration
	conn    *http.ResponseController
	over    bool
}

func (p *patientReader) Read(b []byte) (int, error) {
	// Behind the body's end net/http itself reads, to see whether the publisher
	// goes away. A deadline would look like that.
	if !p.over {
		_ = p.conn.SetReadDeadline(time.Now().Add(p.timeout)) // not every ResponseWriter can
	}
	n, err := p.ReadCloser.Read(b)
	p.over = p.over || err != nil
	return n, err
}

// readError makes what ails the body or its connection the client's to see.
func readError(err error) error {
	if _, ok := errors.AsType[*resourcesync.Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	_, corrupt := errors.AsType[flate.CorruptInputError](err)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return changelog.Invalid("the body ends early")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return changelog.NewStatus(http.StatusRequestTimeout, "timeout", "the publisher was silent for too long")
	case corrupt, errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		return changelog.Invalid("the body is not the gzip that Content-Encoding promises")
	}
	return changelog.NewStatus(http.StatusBadRequest, "unreadable", "the body could not be read: "+err.Error())
}

// idempotencyKey returns the client's own key, plain or as a quoted string.
func (h *Hub) idempotencyKey(r *http.Request) (string, error) {
	values := r.Header.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	key := strings.TrimSpace(values[0])
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = key[1 : len(key)-1]
	}
	if len(values) > 1 || key == "" || len(key) > changelog.MaxKey {
		return "", changelog.Invalid("Idempotency-Key is one text of 1 to %d bytes", changelog.MaxKey)
	}
	return key, nil
}

// callerKey makes a key of the caller's own. A digest has the same length
// whatever the client chose. No header and no name has a NUL, so what was joined
// cannot be mistaken for something else.
func (h *Hub) callerKey(ctx context.Context, parts ...string) string {
	sum := sha256.Sum256([]byte(h.opts.Caller(ctx) + "\x00" + strings.Join(parts, "\x00")))
	return string(sum[:])
}
