package hub

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// The media types of a publish.
const (
	xmlType  = "application/xml"
	jsonType = "application/json"
	ndjson   = "application/x-ndjson"
)

// A Form is a form of the body of a publish.
type Form struct {
	MediaTypes []string
	Header     string // a request with this header is of the form, too, whatever its media type; in the spelling of net/http

	// Read returns the changes that a request to a set says; there may be none. The identity
	// is the same for a request that says the same again: it counts as an Idempotency-Key
	// where the client sent none. It may be empty. A form without Read is one of the hub's own.
	Read func(body []byte, header http.Header, d feed.Description, l resourcesync.Limits) (changes []resourcesync.Change, identity string, err error)
}

// The hub's own forms.
var (
	xmlForm    = &Form{MediaTypes: []string{xmlType, "text/xml"}}
	jsonForm   = &Form{MediaTypes: []string{jsonType}}
	ndjsonForm = &Form{MediaTypes: []string{ndjson, "application/ndjson", "application/jsonl"}}
)

// IsPublish reports whether a POST to the hub's own URL is meant as a publish:
// it has a Link header, or a media type in which changes are sent.
func (h *Hub) IsPublish(header http.Header) bool {
	_, err := h.form(header)
	return err == nil || header.Get("Link") != ""
}

// form returns the form of a publish.
func (h *Hub) form(header http.Header) (*Form, error) {
	value := header.Get("Content-Type")
	mediaType, params, err := mime.ParseMediaType(value)
	if err != nil {
		mediaType = ""
	}
	if c := params["charset"]; c != "" && !strings.EqualFold(c, "utf-8") && !strings.EqualFold(c, "us-ascii") {
		return nil, h.unsupported("the charset is " + strconv.Quote(c) + "; send UTF-8")
	}
	i := slices.IndexFunc(h.forms, func(f *Form) bool { return f.Header != "" && len(header[f.Header]) > 0 })
	if i < 0 {
		i = slices.IndexFunc(h.forms, func(f *Form) bool { return slices.Contains(f.MediaTypes, mediaType) })
	}
	if i >= 0 {
		return h.forms[i], nil
	}
	return nil, h.unsupported(fmt.Sprintf("the Content-Type is %q; changes are sent as %s", value, h.FormNames()))
}

// mediaTypes returns the media types of all forms.
func (h *Hub) mediaTypes() string {
	var all []string
	for _, f := range h.forms {
		all = append(all, f.MediaTypes...)
	}
	return strings.Join(all, ", ")
}

// FormNames returns, for an error, how the body of a publish can be labelled: the media types
// of all forms, and the headers that stand in for a media type.
func (h *Hub) FormNames() string {
	names := h.mediaTypes()
	for _, f := range h.forms {
		if f.Header != "" {
			names += ", or with the header " + f.Header
		}
	}
	return names
}

// unsupported returns the problem of a body in a form that the hub does not
// read, with the forms that it does.
func (h *Hub) unsupported(detail string) error {
	p := problem.New(http.StatusUnsupportedMediaType, "unsupported", detail)
	p.Header = http.Header{"Accept-Post": {h.mediaTypes()}, "Accept-Encoding": {"gzip"}}
	return p
}

// readForm reads the whole of a publish in a form that is not the hub's own.
func (h *Hub) readForm(r *http.Request, in *intake, set string, f *Form, key string) (p changelog.Publish, err error) {
	state, err := h.log.State(r.Context(), set)
	if err != nil && !errors.Is(err, feed.ErrNoSet) {
		return p, err
	}
	body, err := in.all(h.opts.MaxBody)
	if err != nil {
		return p, err
	}
	limits := resourcesync.Limits{Entries: changelog.MaxBatch, Check: (*resourcesync.Change).Validate, CheckMemory: func(more int64) error { return in.room(bodyMemory*int64(len(body)) + more) }}
	changes, identity, err := f.Read(body, r.Header, state.Description, limits)
	if err != nil {
		return p, err
	}
	in.pay(len(changes))
	said := body
	if len(r.Header[f.Header]) > 0 { // the body does not say all
		said = append(said, identity...)
	}
	p.Changes, p.Hash = changes, sha256.Sum256(said)
	switch {
	case key != "":
		p.Key, p.Unless = h.documentKey(r.Context(), key), h.linesKey(r.Context(), key, 1, "")
	case identity != "": // which says all that counts: the same said in another way is no error
		p.Key, p.Hash = h.callerKey(r.Context(), "identity", identity), sha256.Sum256([]byte(identity))
	}
	return p, nil
}

// bodyMemory is what a body that is read as a whole takes in memory, for each byte: the buffer
// that it is in, and the one before that is copied.
const bodyMemory = 3

// all reads a whole body, of so many bytes at most.
func (in *intake) all(most int64) ([]byte, error) {
	var body bytes.Buffer
	for {
		if err := in.room(bodyMemory * int64(body.Len()+firstRoom)); err != nil {
			return nil, err
		}
		_, err := io.CopyN(&body, in, firstRoom)
		switch {
		case int64(body.Len()) > most:
			return nil, &resourcesync.Error{Err: resourcesync.ErrTooLarge, Msg: fmt.Sprintf("a body has at most %d bytes, unpacked; this one has more", most)}
		case err == io.EOF:
			return body.Bytes(), nil
		case err != nil:
			return nil, problem.Unreadable(err)
		}
	}
}
