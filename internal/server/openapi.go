package server

import (
	_ "embed"
	"strconv"
	"strings"

	"github.com/rshub/rshub/feed"
)

// openAPI describes the HTTP API. A hub fills in its own URL and its version.
//
//go:embed openapi.json
var openAPI string

// newDescription returns openAPI as a hub serves it.
func newDescription(base feed.Base, version string) *staticDocument {
	text := strings.NewReplacer(`"http://127.0.0.1:8080"`, strconv.Quote(string(base)), `"VERSION"`, strconv.Quote(version)).Replace(openAPI)
	return newStaticDocument(text, "application/json")
}
