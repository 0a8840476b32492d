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

// An attribute is one that resource descriptions have.
type attribute struct {
	name, kind, about string
	value             func(e *feed.Entry) string // empty: absent
	number            func(e *feed.Entry) int64  // what results are ordered by; nil: the value
}

// schemaModified is when attributes changed last.
const schemaModified = "Thu, 26 Nov 2026 00:00:00 GMT"

var attributes = []attribute{
	{"URL", "varchar", "The URL of the resource. It stands behind the type of the object.", func(e *feed.Entry) string { return e.Change.Loc }, nil},
	{"RD-Last-Modified", "date", "When the hub accepted the newest change of the resource.",
		func(e *feed.Entry) string { return date(e.Time()) }, func(e *feed.Entry) int64 { return e.Micros }},
	{"Last-Modified", "date", "When the resource changed, as its source says.",
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
	{"Change", "varchar", "What the newest change was: created, updated or deleted.", func(e *feed.Entry) string { return string(e.Change.Change) }, nil},
}

// attributeOf returns the attribute of a name, in upper case or lower case; nil: there is none.
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

// date returns a time in the form of HTTP; the zero time is empty.
func date(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(http.TimeFormat)
}

// description returns the resource description of an entry, as a view shows it.
func (v *view) description(e *feed.Entry) *Object {
	o := &Object{Type: "DOCUMENT", URL: e.Change.Loc}
	for _, a := range attributes[1:] {
		if v.shows(a.name) {
			o.add(a.name, a.value(e))
		}
	}
	return o
}

// schemaOf describes the attributes in which an attribute of the schema is defined, as a scope
// says and a view shows them.
func (s *Server) schemaOf(scope string, v *view) (*Object, error) {
	word, defined, _ := strings.Cut(scope, " ")
	defined = strings.TrimSpace(defined)
	if !strings.EqualFold(word, "defined") || defined == "" {
		return nil, resourcesync.Invalidf("Scope %q: a scope is defined and an attribute of the schema, as in defined SOIF-Attribute", resourcesync.Shorten(scope))
	}
	o := &Object{Type: "SCHEMA", URL: s.url + "?type=" + schemaRequest + "&ql=" + schema + "&scope=defined+SOIF-Attribute"}
	entries := 0
	for i, a := range attributes {
		n := strconv.Itoa(i + 1)
		all := []Attribute{{"SOIF-Attribute-" + n, a.name}, {"Description-" + n, a.about}, {"Data-Type-" + n, a.kind}, {"Default-View-Attribute-" + n, n}}
		if i == 0 {
			all = append(all, Attribute{"Enforce-Uniqueness-" + n, "1"})
		}
		if slices.ContainsFunc(all, func(a Attribute) bool { return strings.EqualFold(unnumbered(a.Name), defined) }) {
			entries++
			o.Attributes = append(o.Attributes, all...)
		}
	}
	o.Attributes = slices.Concat([]Attribute{
		{"Schema-Definition-Language-Version", "1.0"}, {"Schema-Name", "DOCUMENT"}, {"Last-Modified", schemaModified}, {"Number-of-Entries", strconv.Itoa(entries)},
	}, o.Attributes)
	o.Attributes = slices.DeleteFunc(o.Attributes, func(a Attribute) bool { return !v.shows(unnumbered(a.Name)) })
	return o, nil
}
