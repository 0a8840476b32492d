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

// none is the kind of an event that is no change.
const none = "none"

// A Mapping says of which resource an event is, and what happened to it. It stands in the
// description of a set. The zero Mapping goes by the event's type and subject alone.
type Mapping struct {
	// Types says what a type means: created, updated, deleted or none. Its values count before
	// the words that are known anyway. What is found at Change may stand here, too.
	Types map[string]string `json:"types"`

	// Change is a JSON pointer (RFC 6901) to what says in an event what happened. Default: "/type".
	Change jsontext.Pointer `json:"change"`

	// Loc is the URI of the resource, with {…} for what an event says: the name of an attribute,
	// a JSON pointer, or several of them with "|" between, of which the first that is there
	// counts. It is encoded as in a URI Template (RFC 6570): with {+…} what a URI may have
	// stays, such as slashes. Default: the subject, which may be relative to the source.
	Loc string `json:"loc"`
}

// maxMapping bounds the text of a Mapping in bytes.
const maxMapping = 8 << 10

// ParseMapping reads the JSON of a Mapping. An empty text is the zero Mapping. The error is a
// *resourcesync.Error.
func ParseMapping(text string) (*Mapping, error) {
	m := &Mapping{}
	if text != "" {
		if len(text) > maxMapping {
			return nil, resourcesync.Invalidf("it has at most %d bytes", maxMapping)
		}
		if err := resourcesync.DecodeJSON([]byte(text), m); err != nil {
			return nil, resourcesync.Invalidf(`it is {"types": {TYPE: KIND}, "change": POINTER, "loc": URI}: %v`, err)
		}
	}
	for name, kind := range m.Types {
		if kind == "" || kindOf(kind) != kind {
			return nil, resourcesync.Invalidf("types: %q means created, updated, deleted or none, not %q", resourcesync.Shorten(name), resourcesync.Shorten(kind))
		}
	}
	if m.Change = cmp.Or(m.Change, "/type"); !m.Change.IsValid() {
		return nil, resourcesync.Invalidf("change is a JSON pointer such as /data/op, not %q", resourcesync.Shorten(string(m.Change)))
	}
	if m.Loc == "" {
		return m, nil
	}
	example := hole.ReplaceAllLiteralString(m.Loc, "x")
	if m.Loc[0] == '{' { // an event may say all of it
		example = "https://" + example
	}
	for _, h := range hole.FindAllString(m.Loc, -1) {
		for _, p := range namesIn(h) {
			if p == "/" || !p.IsValid() {
				return nil, resourcesync.Invalidf("loc: %s is neither the name of an attribute nor a JSON pointer", resourcesync.Shorten(h))
			}
		}
	}
	return m, resourcesync.CheckURI("loc", example)
}

// hole is where a Loc has what an event says.
var hole = regexp.MustCompile(`\{[^{}]*\}`)

// namesIn returns what stands in a hole.
func namesIn(h string) (names []jsontext.Pointer) {
	for name := range strings.SplitSeq(strings.Trim(h, "{+}"), "|") {
		names = append(names, jsontext.Pointer("/"+strings.TrimPrefix(name, "/")))
	}
	return names
}

// The characters besides letters and digits that stay in a URI, of {…} and of {+…}.
const (
	unreserved = "-._~"
	reserved   = unreserved + ":/?#[]@!$&'()*+,;=%"
)

// encode percent-encodes all bytes of a text but letters, digits and those that stay.
func encode(text, stay string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c < utf8.RuneSelf && (unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c)) || strings.IndexByte(stay, c) >= 0) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// kind returns what happened: a resourcesync.ChangeType, or none.
func (m *Mapping) kind(e event) (string, error) {
	name := text(e["type"])
	said := text(e.find(m.Change))
	known := kindOf(said)
	if name == Prefix+placeType || name == Prefix+divergedType {
		known = none
	}
	switch kind := cmp.Or(m.Types[name], m.Types[said], known); {
	case kind != "":
		return kind, nil
	case said == "":
		return "", resourcesync.Invalidf("%s is missing, where the description of the set says that the kind of change stands", m.Change)
	}
	return "", resourcesync.Invalidf(`%s is %q, whose last word is not created, updated or deleted; %s`, m.Change, resourcesync.Shorten(said), m.advice(said))
}

// maxAdvised bounds the bytes of a kind of change that advice quotes as a setting.
const maxAdvised = 200

// advice returns how to map a kind of change that is not mapped.
func (m *Mapping) advice(said string) string {
	if len(said) > maxAdvised { // it cannot be shortened: the setting would map another kind
		return `"types" in "cloudevents" in the description of the set can say what it means`
	}
	quoted, _ := jsontext.AppendQuote(nil, said) // said is UTF-8
	place := `"cloudevents"`
	if len(m.Types) > 0 {
		place = `the types in "cloudevents"`
	}
	return fmt.Sprintf(`to leave such events out, add "types":{%s:"none"} to %s in the description of the set, and to make them changes, write created, updated or deleted instead of none`, quoted, place)
}

// kindOf returns what a type says by its last word, or "". A version may follow the word, as in
// com.example.object.deleted.v2.
func kindOf(name string) string {
	if i := strings.LastIndexByte(name, '.'); i >= 0 && strings.TrimRight(strings.ToLower(name[i:]), "0123456789") == ".v" {
		name = name[:i]
	}
	word := name[1+strings.LastIndexFunc(name, func(c rune) bool { return !unicode.IsLetter(c) }):]
	if i := strings.LastIndexFunc(word, unicode.IsUpper); i > 0 && word != strings.ToUpper(word) {
		word = word[i:] // of BlobCreated
	}
	switch word = strings.ToLower(word); {
	case word == "created", word == "create", name == "c", name == "r": // the letters are Debezium's; r is read, for a snapshot
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

// locOf returns the URI of the resource.
func (m *Mapping) locOf(e event) (string, error) {
	if m.Loc == "" {
		return resolve(text(e["source"]), text(e["subject"]))
	}
	missing := ""
	loc := hole.ReplaceAllStringFunc(m.Loc, func(h string) string {
		stay := unreserved
		if h[1] == '+' {
			stay = reserved
		}
		for _, p := range namesIn(h) {
			if said := text(e.find(p)); said != "" {
				return encode(said, stay)
			}
		}
		missing = h
		return ""
	})
	if missing != "" {
		return "", resourcesync.Invalidf("there is no %s in the event, of which the description of the set makes the loc, or it is no text or number", resourcesync.Shorten(missing))
	}
	return loc, nil
}

// resolve returns a subject, which may be relative to its source, as a URI of the web.
func resolve(source, subject string) (string, error) {
	if isWeb(subject) {
		return encode(subject, reserved), nil
	}
	base, err := url.Parse(source)
	if err == nil && isWeb(source) && subject != "" {
		if u, err := base.Parse(subject); err == nil && isWeb(u.String()) {
			return u.String(), nil
		}
	}
	return "", resourcesync.Invalidf(`subject %q is no URI of the web, neither alone nor relative to source %q: "cloudevents" in the description of the set can say how the loc is made`,
		resourcesync.Shorten(subject), resourcesync.Shorten(source))
}

func isWeb(s string) bool {
	scheme, _, ok := strings.Cut(s, "://")
	return ok && (strings.EqualFold(scheme, "https") || strings.EqualFold(scheme, "http"))
}
