package rdm

import (
	"compress/gzip"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rshub/rshub/internal/nearest"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/rdm/soif"
	"github.com/rshub/rshub/resourcesync"
)

// The types of messages that a hub takes or sends.
const (
	rdRequest         = "rd-request"
	rdRequestDeleted  = "rd-request-deleted"
	rdResponse        = "rd-response"
	rdResponseDeleted = "rd-response-deleted"
	schemaRequest     = "schema-description-request"
	serverRequest     = "server-description-request"
	taxonomyRequest   = "taxonomy-description-request"
	statusRequest     = "status-request"
	statusResponse    = "status-response"
)

// replies has the type of the answer to each type of message that a hub takes. Deleted RDs
// are answered as such, so that whoever passes an answer on does not create what is gone.
var replies = map[string]string{
	rdRequest: rdResponse, rdRequestDeleted: rdResponseDeleted,
	rdResponse: statusResponse, rdResponseDeleted: statusResponse,
	schemaRequest: "schema-description-response", serverRequest: "server-description-response",
	taxonomyRequest: "taxonomy-description-response", statusRequest: statusResponse,
}

// languages has the query language of each type of message that has a query.
var languages = map[string]string{rdRequest: "gatherer", rdRequestDeleted: "gatherer", schemaRequest: "schema-basic", taxonomyRequest: "taxonomy-basic"}

// The names that the types have in the table of what can be sent by GET.
var shortTypes = map[string]string{"schema-request": schemaRequest, "server-request": serverRequest, "taxonomy-request": taxonomyRequest}

// The types of the objects of a message, and the version of the format.
const (
	headerType = "RDMHEADER"
	queryType  = "RDMQUERY"
	version    = "1.0"
)

// A message is what a client sent.
type message struct {
	kind  string // of replies
	csid  string // empty: the message names no catalogue
	scope string
	view  view
	body  *soif.Reader // of a response: the RDs, which are still to be read
}

// readURL reads a message that was sent by GET.
func readURL(q url.Values) (*message, error) {
	for name, values := range q {
		if len(values) > 1 {
			return nil, resourcesync.Invalid("parameter %s is there twice", name)
		}
	}
	kind, err := parseKind(q.Get("type"))
	if err != nil {
		return nil, err
	}
	m := &message{kind: kind, csid: q.Get("csid"), scope: q.Get("scope")}
	if kind == rdResponse || kind == rdResponseDeleted {
		return m, resourcesync.Invalid("%s is sent by POST, because it carries resource descriptions", kind)
	}
	if err := m.speaks(q.Get("ql")); err != nil {
		return m, err
	}
	m.view, err = parseView(q.Get("view-attributes"), q.Get("view-hits"), q.Get("view-order"))
	return m, err
}

// readBody reads a message that was sent by POST. If it carries RDs, they are not read.
func readBody(r *http.Request) (*message, error) {
	if r.URL.RawQuery != "" {
		return nil, resourcesync.Invalid("the message is in the body of a POST, so the URL takes no parameters")
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != mediaType {
		return nil, unsupported(fmt.Sprintf("the Content-Type is %q; a message is sent as %s", r.Header.Get("Content-Type"), mediaType))
	}
	body := io.Reader(r.Body)
	switch e := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); e {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, resourcesync.Invalid("the body is not gzip data, although its Content-Encoding is gzip")
		}
		body = z
	default:
		return nil, unsupported(fmt.Sprintf("the Content-Encoding is %q; send gzip or none", e))
	}
	in := soif.NewReader(body, soif.Limits{})
	m, err := readHeader(in)
	if err != nil || m.kind == rdResponse || m.kind == rdResponseDeleted {
		return m, err
	}
	return m, m.readQuery(in)
}

func unsupported(detail string) error {
	p := problem.New(http.StatusUnsupportedMediaType, "unsupported", detail)
	p.Header = http.Header{"Accept-Post": {mediaType}, "Accept-Encoding": {"gzip"}}
	return p
}

// readHeader reads the header of a message. The message is nil if its type is not known.
func readHeader(in *soif.Reader) (*message, error) {
	o, err := in.Read()
	if err == io.EOF {
		return nil, resourcesync.Invalid("the message is empty: it begins with @%s", headerType)
	}
	if err != nil {
		return nil, unread(err)
	}
	if !strings.EqualFold(o.Type, headerType) {
		return nil, resourcesync.Invalid("object 1: a message begins with @%s, not with @%s", headerType, resourcesync.Shorten(o.Type))
	}
	if v, ok := o.Get("RDM-Version"); !ok || strings.TrimSpace(v) != version {
		return nil, resourcesync.Invalid("object 1 (@%s): RDM-Version is %q; this hub speaks %s", headerType, resourcesync.Shorten(v), version)
	}
	text, _ := o.Get("RDM-Type")
	kind, err := parseKind(text)
	if err != nil {
		return nil, err
	}
	m := &message{kind: kind, body: in}
	m.csid, _ = o.Get("Catalog-Service-ID")
	m.csid = strings.TrimSpace(m.csid)
	language, _ := o.Get("RDM-Query-Language")
	return m, m.speaks(language)
}

// readQuery reads the query of a request, which is the end of the message. A request that
// has no query language needs none.
func (m *message) readQuery(in *soif.Reader) error {
	o, err := in.Read()
	if err == io.EOF {
		if languages[m.kind] != "" {
			return resourcesync.Invalid("a %s has a query: an object @%s with the attribute Scope", m.kind, queryType)
		}
		return nil
	}
	if err != nil {
		return unread(err)
	}
	if !strings.EqualFold(o.Type, queryType) || languages[m.kind] == "" {
		return resourcesync.Invalid("object 2: @%s is no part of a %s", resourcesync.Shorten(o.Type), m.kind)
	}
	m.scope, _ = o.Get("Scope")
	attributes, _ := o.Get("View-Attributes")
	hits, _ := o.Get("View-Hits")
	order, _ := o.Get("View-Order")
	if m.view, err = parseView(attributes, hits, order); err != nil {
		return err
	}
	if _, err := in.Read(); err != io.EOF {
		if err == nil {
			err = resourcesync.Invalid("object 3: a message has one @%s, and nothing follows it", queryType)
		}
		return unread(err)
	}
	return nil
}

// parseKind returns the type of a message that a hub takes. Letter case does not matter.
func parseKind(text string) (string, error) {
	kind := strings.ToLower(strings.TrimSpace(text))
	if long := shortTypes[kind]; long != "" {
		kind = long
	}
	all := slices.Sorted(maps.Keys(replies))
	switch {
	case replies[kind] != "" && kind != "":
		return kind, nil
	case kind == "":
		return "", resourcesync.Invalid("the type of the message is missing (RDM-Type, in a URL type): it is one of %s", strings.Join(all, ", "))
	case strings.HasSuffix(kind, "-response"):
		return "", resourcesync.Invalid("this hub takes no %s: it describes itself", resourcesync.Shorten(kind))
	}
	hint := ""
	if near := nearest.Of(kind, all); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return "", resourcesync.Invalid("the type of the message is %q; this hub takes %s%s", resourcesync.Shorten(kind), strings.Join(all, ", "), hint)
}

// speaks checks the query language of a message.
func (m *message) speaks(language string) error {
	want := languages[m.kind]
	if l := strings.TrimSpace(language); want == "" || strings.EqualFold(l, want) {
		return nil // a message without a query needs no language, and none does harm
	}
	return resourcesync.Invalid("the query language of a %s is %s (RDM-Query-Language, in a URL ql), not %q", m.kind, want, resourcesync.Shorten(language))
}

// unread turns an error of reading a message into one that tells the client what is wrong
// with it.
func unread(err error) error {
	e, ok := errors.AsType[*soif.Error](err)
	switch {
	case ok && e.TooLarge:
		return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Rule: e.Error()}
	case ok:
		return resourcesync.Invalid("%s", e.Error())
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
		return resourcesync.Invalid("the body ends early, or its gzip data is damaged")
	}
	if _, ok := errors.AsType[*resourcesync.Error](err); ok {
		return err
	}
	if timeout := problem.Unread(err); timeout != err {
		return timeout
	}
	return problem.New(http.StatusBadRequest, "unreadable", "the body could not be read: "+err.Error())
}

// newHeader returns the header of an answer.
func newHeader(reply string) *soif.Object {
	o := &soif.Object{Type: headerType}
	o.Add("RDM-Version", version)
	o.Add("RDM-Type", reply)
	return o
}

// write appends an object that this package made.
func write(dst []byte, o *soif.Object) []byte {
	dst, err := o.Append(dst)
	if err != nil {
		panic("rdm: " + err.Error()) // names and types are constants or were read, and a loc is a URI
	}
	return dst
}

// errorMessage returns the message of an error.
func errorMessage(reply string, p *problem.Problem) []byte {
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	text = strings.ReplaceAll(text, "\n", " ")
	h := newHeader(reply)
	h.Add("RDM-Error-Number", strconv.Itoa(p.Status))
	h.Add("RDM-Error-Message", text)
	b := write(nil, h)
	if reply == statusResponse {
		b = append(b, page(p.Title, text)...)
	}
	return b
}

// page returns a status message, which is a document of HTML 2.0.
func page(title, text string) string {
	return "<!DOCTYPE HTML PUBLIC \"-//IETF//DTD HTML 2.0//EN\">\n<HTML><HEAD><TITLE>" + html.EscapeString(title) + "</TITLE></HEAD>\n<BODY><P>" + html.EscapeString(text) + "</P></BODY></HTML>\n"
}

// send sends a message that is whole.
func send(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
}
