package cloudevents

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rshub/rshub/resourcesync"
)

// none is the kind of events that are not changes.
const none = "none"

// A Mapping defines which resource an event is about, and what happened to it. It is a part of the
// description of a set. The zero Mapping uses only the type and the subject of the event.
type Mapping struct {
	// Types maps types of events to created, updated, deleted or none. It takes precedence over the
	// built-in words. Its keys may also be values found at Change.
	Types map[string]string `json:"types"`

	// Change is a JSON pointer (RFC 6901) to the kind of change in the event. Default: "/type".
	Change jsontext.Pointer `json:"change"`

	// Loc is a template for the URI of the resource. A placeholder {…} names an attribute or a JSON
	// pointer, or several of them separated by "|", of which the first present one is used. Values
	// are encoded as in a URI Template (RFC 6570): {+…} preserves reserved characters such as
	// slashes. Default: the subject, which may be relative to the source.
	Loc string `json:"loc"`
}

// maxMapping is the maximum size of the text of a Mapping in bytes.
const maxMapping = 8 << 10

// ParseMapping parses the JSON of a Mapping. An empty text is the zero Mapping. An error is a
// *resourcesync.Error.
func ParseMapping(text string) (*Mapping, error) {
	m := &Mapping{}
	if text != "" {
		if len(text) > maxMapping {
			return nil, resourcesync.Invalidf("mapping is too long; want at most %d bytes", maxMapping)
		}
		if err := resourcesync.DecodeJSON([]byte(text), m); err != nil {
			return nil, resourcesync.Invalidf(`invalid mapping: %v; want {"types": {TYPE: KIND}, "change": POINTER, "loc": URI}`, err)
		}
	}
	for name, kind := range m.Types {
		if kind == "" || kindOf(kind) != kind {
			return nil, resourcesync.Invalidf("types: invalid kind for %q: got %q, want created, updated, deleted or none", resourcesync.Shorten(name), resourcesync.Shorten(kind))
		}
	}
	if m.Change = cmp.Or(m.Change, "/type"); !m.Change.IsValid() {
		return nil, resourcesync.Invalidf("change: invalid JSON pointer %q; want one such as /data/op", resourcesync.Shorten(string(m.Change)))
	}
	if m.Loc == "" {
		return m, nil
	}
	example := placeholder.ReplaceAllLiteralString(m.Loc, "x")
	if m.Loc[0] == '{' { // the event may provide the whole URI
		example = "https://" + example
	}
	for _, h := range placeholder.FindAllString(m.Loc, -1) {
		for _, p := range pointersIn(h) {
			if p == "/" || !p.IsValid() {
				return nil, resourcesync.Invalidf("loc: %s is neither an attribute name nor a JSON pointer", resourcesync.Shorten(h))
			}
		}
	}
	return m, resourcesync.CheckURI("loc", example)
}

// placeholder matches the placeholders in a Loc.
var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// pointersIn returns the pointers in a placeholder.
func pointersIn(h string) (names []jsontext.Pointer) {
	for name := range strings.SplitSeq(strings.Trim(h, "{+}"), "|") {
		names = append(names, jsontext.Pointer("/"+strings.TrimPrefix(name, "/")))
	}
	return names
}

// Characters besides letters and digits that {…} and {+…} do not encode.
const (
	unreserved = "-._~"
	reserved   = unreserved + ":/?#[]@!$&'()*+,;=%"
)

// encode percent-encodes all bytes of text except ASCII letters, digits and the bytes in safe.
func encode(text, safe string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c < utf8.RuneSelf && (unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c)) || strings.IndexByte(safe, c) >= 0) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// kind returns the kind of change of an event: a resourcesync.ChangeType or none.
func (m *Mapping) kind(e event) (string, error) {
	name := text(e["type"])
	value := text(e.find(m.Change))
	known := kindOf(value)
	if name == Prefix+cursorType || name == Prefix+divergedType {
		known = none
	}
	switch kind := cmp.Or(m.Types[name], m.Types[value], known); {
	case kind != "":
		return kind, nil
	case value == "":
		return "", resourcesync.Invalidf("%s is missing, but the description of the set selects it as the kind of change", m.Change)
	}
	return "", resourcesync.Invalidf(`%s: unknown kind of change %q; want created, updated or deleted as the last word; %s`, m.Change, resourcesync.Shorten(value), m.advice(value))
}

// maxQuotedKind is the maximum size in bytes of a kind of change that advice quotes in a setting.
const maxQuotedKind = 200

// advice returns the text on how to map an unmapped kind of change.
func (m *Mapping) advice(kind string) string {
	if len(kind) > maxQuotedKind { // it must not be shortened, or the setting would map another kind
		return `map it with "types" in "cloudevents" in the description of the set`
	}
	quoted, _ := jsontext.AppendQuote(nil, kind) // no error: kind is valid UTF-8
	place := `"cloudevents"`
	if len(m.Types) > 0 {
		place = `the types in "cloudevents"`
	}
	return fmt.Sprintf(`to ignore such events, add "types":{%s:"none"} to %s in the description of the set; to accept them, use created, updated or deleted instead of none`, quoted, place)
}

// kindOf returns the kind of change by the last word of a type, or "" if it is unknown. A version
// may follow the word, as in com.example.object.deleted.v2.
func kindOf(name string) string {
	if i := strings.LastIndexByte(name, '.'); i >= 0 && strings.TrimRight(strings.ToLower(name[i:]), "0123456789") == ".v" {
		name = name[:i]
	}
	word := name[1+strings.LastIndexFunc(name, func(c rune) bool { return !unicode.IsLetter(c) }):]
	if i := strings.LastIndexFunc(word, unicode.IsUpper); i > 0 && word != strings.ToUpper(word) {
		word = word[i:] // as in BlobCreated
	}
	switch word = strings.ToLower(word); {
	case word == "created", word == "create", name == "c", name == "r": // Debezium uses single letters; r means a read for a snapshot
		return string(resourcesync.Created)
	case word == "updated", word == "update", name == "u":
		return string(resourcesync.Updated)
	case word == "deleted", word == "delete", name == "d":
		return string(resourcesync.Deleted)
	case name == none:
		return none
	}
	return ""
}

// locOf returns the URI of the resource of an event.
func (m *Mapping) locOf(e event) (string, error) {
	if m.Loc == "" {
		return resolve(text(e["source"]), text(e["subject"]))
	}
	missing := ""
	loc := placeholder.ReplaceAllStringFunc(m.Loc, func(h string) string {
		safe := unreserved
		if h[1] == '+' {
			safe = reserved
		}
		for _, p := range pointersIn(h) {
			if value := text(e.find(p)); value != "" {
				return encode(value, safe)
			}
		}
		missing = h
		return ""
	})
	if missing != "" {
		return "", resourcesync.Invalidf("event has no text or number at %s, which the loc in the description of the set requires", resourcesync.Shorten(missing))
	}
	return loc, nil
}

// resolve returns the http or https URI of a subject, which may be relative to the source.
func resolve(source, subject string) (string, error) {
	if isHTTP(subject) {
		return encode(subject, reserved), nil
	}
	base, err := url.Parse(source)
	if err == nil && isHTTP(source) && subject != "" {
		if u, err := base.Parse(subject); err == nil && isHTTP(u.String()) {
			return u.String(), nil
		}
	}
	return "", resourcesync.Invalidf(`subject %q is not an http or https URI, neither alone nor relative to source %q; set "loc" in "cloudevents" in the description of the set`,
		resourcesync.Shorten(subject), resourcesync.Shorten(source))
}

func isHTTP(s string) bool {
	scheme, _, ok := strings.Cut(s, "://")
	return ok && (strings.EqualFold(scheme, "https") || strings.EqualFold(scheme, "http"))
}
