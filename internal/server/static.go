package server

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"github.com/rshub/rshub/internal/problem"
)

// A staticDocument is a document that depends only on the configuration and the version of
// the hub.
type staticDocument struct {
	text      string
	etag      string
	mediaType string
	link      string // value of the Link header, or empty
}

func newStaticDocument(text, mediaType string) *staticDocument {
	sum := sha256.Sum256([]byte(text))
	return &staticDocument{text: text, etag: `"` + hex.EncodeToString(sum[:16]) + `"`, mediaType: mediaType}
}

// serve serves the document to every caller, because it contains nothing about sets.
func (d *staticDocument) serve(w http.ResponseWriter, r *http.Request) error {
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Etag", d.etag)
	h.Set("Cache-Control", "no-cache") // another version of the hub may have another text
	if d.link != "" {
		h.Set("Link", d.link)
	}
	if has := r.Header.Get("If-None-Match"); has == "*" || strings.Contains(has, d.etag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", d.mediaType)
	h.Set("Content-Length", strconv.Itoa(len(d.text)))
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(d.text)) // the client may be gone
	}
	return nil
}
