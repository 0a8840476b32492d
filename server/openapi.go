package server

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/problem"
)

// openAPI describes the HTTP API. A hub fills in its own URL and its version.
//
//go:embed openapi.json
var openAPI string

// A description is openAPI as a hub serves it.
type description struct{ text, etag string }

func newDescription(base feed.Base, version string) *description {
	text := strings.NewReplacer(`"http://127.0.0.1:8080"`, strconv.Quote(string(base)), `"VERSION"`, strconv.Quote(version)).Replace(openAPI)
	sum := sha256.Sum256([]byte(text))
	return &description{text, `"` + hex.EncodeToString(sum[:16]) + `"`}
}

// serve serves the description to everybody: it says nothing of what the hub holds.
func (d *description) serve(w http.ResponseWriter, r *http.Request) error {
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Etag", d.etag)
	h.Set("Cache-Control", "no-cache") // another version of the hub says something else
	if has := r.Header.Get("If-None-Match"); has == "*" || strings.Contains(has, d.etag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(d.text)))
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(d.text)) // the client may be gone
	}
	return nil
}
