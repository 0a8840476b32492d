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

// Media types of the built-in formats.
const (
	xmlType    = "application/xml"
	jsonType   = "application/json"
	ndjsonType = "application/x-ndjson"
)

// A Format is a format of the body of a publish.
type Format struct {
	MediaTypes []string
	Header     string // a request with this header has the format, whatever its media type; in canonical form; empty if none

	// Read returns the changes in a request to a set, which may be none. identity is equal for
	// requests that report the same thing again, and serves as the Idempotency-Key if the
	// client sent none; it may be empty. Read is nil in the built-in formats.
	Read func(body []byte, header http.Header, d feed.Description, l resourcesync.Limits) (changes []resourcesync.Change, identity string, err error)
}

// The built-in formats.
var (
	xmlFormat    = &Format{MediaTypes: []string{xmlType, "text/xml"}}
	jsonFormat   = &Format{MediaTypes: []string{jsonType}}
	ndjsonFormat = &Format{MediaTypes: []string{ndjsonType, "application/ndjson", "application/jsonl"}}
)

// IsPublish reports whether a POST to the hub's own URL is meant as a publish: it has a Link
// header, or the format of a publish.
func (h *Hub) IsPublish(header http.Header) bool {
	_, err := h.format(header)
	return err == nil || header.Get("Link") != ""
}

// format returns the format of a publish with the given header.
func (h *Hub) format(header http.Header) (*Format, error) {
	value := header.Get("Content-Type")
	mediaType, params, err := mime.ParseMediaType(value)
	if err != nil {
		mediaType = ""
	}
	if c := params["charset"]; c != "" && !strings.EqualFold(c, "utf-8") && !strings.EqualFold(c, "us-ascii") {
		return nil, h.unsupported("unsupported charset " + strconv.Quote(c) + "; send UTF-8")
	}
	i := slices.IndexFunc(h.formats, func(f *Format) bool { return f.Header != "" && len(header[f.Header]) > 0 })
	if i < 0 {
		i = slices.IndexFunc(h.formats, func(f *Format) bool { return slices.Contains(f.MediaTypes, mediaType) })
	}
	if i >= 0 {
		return h.formats[i], nil
	}
	return nil, h.unsupported(fmt.Sprintf("unsupported Content-Type %q; changes are sent as %s", value, h.FormatNames()))
}

// mediaTypes returns the media types of all formats.
func (h *Hub) mediaTypes() string {
	var all []string
	for _, f := range h.formats {
		all = append(all, f.MediaTypes...)
	}
	return strings.Join(all, ", ")
}

// FormatNames lists, for error messages, how a publish can declare its format: the media types
// of all formats, and the headers that replace a media type.
func (h *Hub) FormatNames() string {
	names := h.mediaTypes()
	for _, f := range h.formats {
		if f.Header != "" {
			names += ", or with the header " + f.Header
		}
	}
	return names
}

// unsupported returns the problem for a body in an unsupported format. Its header lists the
// supported ones.
func (h *Hub) unsupported(detail string) error {
	p := problem.New(http.StatusUnsupportedMediaType, "unsupported", detail)
	p.Header = http.Header{"Accept-Post": {h.mediaTypes()}, "Accept-Encoding": {"gzip"}}
	return p
}

// readFormat reads a publish in one of Options.Formats.
func (h *Hub) readFormat(r *http.Request, in *intake, set string, f *Format, key string) (p changelog.Publish, err error) {
	state, err := h.log.State(r.Context(), set)
	if err != nil && !errors.Is(err, feed.ErrNoSet) {
		return p, err
	}
	body, err := in.readAll(h.opts.MaxBody)
	if err != nil {
		return p, err
	}
	limits := resourcesync.Limits{Entries: changelog.MaxBatch, Check: (*resourcesync.Change).Validate, CheckMemory: func(more int64) error { return in.reserve(memoryPerByte*int64(len(body)) + more) }}
	changes, identity, err := f.Read(body, r.Header, state.Description, limits)
	if err != nil {
		return p, err
	}
	in.charge(len(changes))
	content := body
	if len(r.Header[f.Header]) > 0 { // the body alone does not identify the publish
		content = append(content, identity...)
	}
	p.Changes, p.Hash = changes, sha256.Sum256(content)
	switch {
	case key != "":
		p.Key, p.Unless = h.documentKey(r.Context(), key), h.linesKey(r.Context(), key, 1, "")
	case identity != "": // the identity covers everything that matters, so a retry with a different body is not an error
		p.Key, p.Hash = h.callerKey(r.Context(), "identity", identity), sha256.Sum256([]byte(identity))
	}
	return p, nil
}

// memoryPerByte is the memory reserved for each byte of a body that is read as a whole: for
// its buffer, and for the previous buffer while that is copied.
const memoryPerByte = 3

// readAll reads the whole body, which may have at most maxBytes bytes.
func (in *intake) readAll(maxBytes int64) ([]byte, error) {
	var body bytes.Buffer
	for {
		if err := in.reserve(memoryPerByte * int64(body.Len()+minReservation)); err != nil {
			return nil, err
		}
		_, err := io.CopyN(&body, in, minReservation)
		switch {
		case int64(body.Len()) > maxBytes:
			return nil, &resourcesync.Error{Err: resourcesync.ErrTooLarge, Msg: fmt.Sprintf("the decompressed body is larger than %d bytes", maxBytes)}
		case err == io.EOF:
			return body.Bytes(), nil
		case err != nil:
			return nil, problem.BodyError(err)
		}
	}
}
