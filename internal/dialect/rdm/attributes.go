package rdm

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// An attribute is an attribute of resource descriptions.
type attribute struct {
	name, kind, description string
	value                   func(e *feed.Entry) string // empty if absent
	sortValue               func(e *feed.Entry) int64  // sort key of results; nil if that is value
}

// schemaModified is the time of the last change of attributes.
const schemaModified = "Thu, 26 Nov 2026 00:00:00 GMT"

var attributes = []attribute{
	{"URL", "varchar", "The URL of the resource. It follows the type of the object.", func(e *feed.Entry) string { return e.Change.Loc }, nil},
	{"RD-Last-Modified", "date", "When the hub accepted the newest change of the resource.",
		func(e *feed.Entry) string { return date(e.Time()) }, func(e *feed.Entry) int64 { return e.Micros }},
	{"Last-Modified", "date", "When the resource changed, according to its source.",
		func(e *feed.Entry) string { return date(e.Change.Lastmod) }, func(e *feed.Entry) int64 { return e.Change.Lastmod.UnixMicro() }},
	{"Content-Type", "varchar", "The media type.", func(e *feed.Entry) string { return e.Change.Type }, nil},
	{"Content-Length", "int", "The number of bytes.", func(e *feed.Entry) string {
		if e.Change.Length == nil {
			return ""
		}
		return strconv.FormatInt(*e.Change.Length, 10)
	}, func(e *feed.Entry) int64 {
		if e.Change.Length == nil {
			return -1
		}
		return *e.Change.Length
	}},
	{"MD5", "varchar", "The MD5 of the content, in hex digits.", func(e *feed.Entry) string { return resourcesync.Digest(e.Change.Hash, "md5") }, nil},
	{"Hash", "varchar", "All hashes of the content, such as sha-256:HEX, with spaces between them.", func(e *feed.Entry) string { return e.Change.Hash }, nil},
	{"Change", "varchar", "The type of the newest change: created, updated or deleted.", func(e *feed.Entry) string { return string(e.Change.Change) }, nil},
}

// attributeOf returns the attribute with a name, ignoring case, or nil.
func attributeOf(name string) *attribute {
	for i := range attributes {
		if strings.EqualFold(attributes[i].name, name) {
			return &attributes[i]
		}
	}
	return nil
}

func attributeNames() string {
	var names []string
	for _, a := range attributes {
		names = append(names, a.name)
	}
	return strings.Join(names, ", ")
}

// date formats a time as in HTTP. The zero time is empty.
func date(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(http.TimeFormat)
}

// description returns the resource description of an entry with the attributes in the view.
func (v *view) description(e *feed.Entry) *Object {
	o := &Object{Type: "DOCUMENT", URL: e.Change.Loc}
	for _, a := range attributes[1:] {
		if v.includes(a.name) {
			o.add(a.name, a.value(e))
		}
	}
	return o
}

// schemaOf returns the schema: for each attribute, the schema attributes in the view, if the schema
// attribute named by scope is defined for it.
func (s *Server) schemaOf(scope string, v *view) (*Object, error) {
	word, defined, _ := strings.Cut(scope, " ")
	defined = strings.TrimSpace(defined)
	if !strings.EqualFold(word, "defined") || defined == "" {
		return nil, resourcesync.Invalidf("Scope: got %q, want defined and an attribute of the schema, as in defined SOIF-Attribute", resourcesync.Shorten(scope))
	}
	o := &Object{Type: "SCHEMA", URL: s.url + "?type=" + schemaRequest + "&ql=" + schema + "&scope=defined+SOIF-Attribute"}
	entries := 0
	for i, a := range attributes {
		n := strconv.Itoa(i + 1)
		all := []Attribute{{"SOIF-Attribute-" + n, a.name}, {"Description-" + n, a.description}, {"Data-Type-" + n, a.kind}, {"Default-View-Attribute-" + n, n}}
		if i == 0 {
			all = append(all, Attribute{"Enforce-Uniqueness-" + n, "1"})
		}
		if slices.ContainsFunc(all, func(a Attribute) bool { return strings.EqualFold(trimNumber(a.Name), defined) }) {
			entries++
			o.Attributes = append(o.Attributes, all...)
		}
	}
	o.Attributes = slices.Concat([]Attribute{
		{"Schema-Definition-Language-Version", "1.0"}, {"Schema-Name", "DOCUMENT"}, {"Last-Modified", schemaModified}, {"Number-of-Entries", strconv.Itoa(entries)},
	}, o.Attributes)
	o.Attributes = slices.DeleteFunc(o.Attributes, func(a Attribute) bool { return !v.includes(trimNumber(a.Name)) })
	return o, nil
}
