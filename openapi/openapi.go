// Package openapi has the description of a hub's HTTP API, in OpenAPI 3.1. It is written by
// hand. The tests of package server hold it against running hubs.
package openapi

import (
	_ "embed"
	"encoding/json"
	"strings"
)

// Path is where a hub serves the description.
const Path = "/openapi.json"

//go:embed openapi.json
var text string

// What stands in the file for the version and the base URL of a hub.
const (
	anyVersion = `"version": "0.0.0"`
	anyBase    = `"servers": [{"url": "http://127.0.0.1:8080"`
)

// Document returns the description of a hub, as JSON. version is the program's, and base
// begins all URLs of the hub.
func Document(version, base string) []byte {
	return []byte(strings.NewReplacer(
		anyVersion, `"version": `+quoted(version),
		anyBase, `"servers": [{"url": `+quoted(base),
	).Replace(text))
}

func quoted(s string) string {
	q, _ := json.Marshal(s) // a string can always be written
	return string(q)
}
