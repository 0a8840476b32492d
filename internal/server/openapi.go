package server

import (
	_ "embed"
	"strconv"
	"strings"

	"github.com/rshub/rshub/feed"
)

// openAPI is the OpenAPI document, with placeholders for the URL and version of the hub.
//
//go:embed openapi.json
var openAPI string

// newDescription returns the OpenAPI document of a hub.
func newDescription(base feed.Base, version string) *staticDocument {
	text := strings.NewReplacer(`"http://127.0.0.1:8080"`, strconv.Quote(string(base)), `"VERSION"`, strconv.Quote(version)).Replace(openAPI)
	return newStaticDocument(text, "application/json")
}
