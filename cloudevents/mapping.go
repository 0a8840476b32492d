package cloudevents

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// A Mapping says what change an event of a source is. The zero Mapping reads the events that
// Format writes, and no other.
type Mapping struct {
	// By is what of an event decides: the name of an attribute, or a path into its data such
	// as data.payload.op. Default: type.
	By string `json:"by,omitempty"`

	// Changes says for each value of By what it means: created, updated or deleted, or skip
	// for events that are no changes of resources. "*" stands for all other values. An event
	// with a value that is not here is an error.
	Changes map[string]string `json:"changes"`

	// Loc makes the resource's URI: a text with {expressions}. In braces stands what By may
	// have; what it names takes their place, escaped for a URI. In {+name} the characters
	// that separate the parts of a URI stay as they are, as in RFC 6570. With several names,
	// separated by |, the first counts that the event has. Default: {+subject}.
	Loc string `json:"loc,omitempty"`

	by   path
	text []piece
}

// skip is the meaning of events that are no changes.
const skip = "skip"

// What a mapping may have at most.
const (
	maxValues = 100
	maxParts  = 20 // pieces of a Loc, and names of a path
)

// A path names an attribute of an event, or what is in its data.
type path []string

// A piece of a Loc is a text, or paths of which the first counts that the event has.
type piece struct {
	text  string
	paths []path // nil: the text stands for itself
	raw   bool   // separators stay
}

// ParseMapping reads a Mapping from JSON, and checks it. An empty text is the zero Mapping. An
// error is a *resourcesync.Error.
func ParseMapping(text []byte) (*Mapping, error) {
	m := &Mapping{}
	if len(text) == 0 {
		return m, nil
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(m); err != nil {
		return nil, resourcesync.Invalid(`it is not {"by": "attribute", "changes": {"value": "created"}, "loc": "https://example.org/{subject}"}: %v`, err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, resourcesync.Invalid("there is more text after the mapping")
	}
	return m, m.prepare()
}

// prepare checks the mapping and sets the fields that are made of others.
func (m *Mapping) prepare() (err error) {
	if len(m.Changes) == 0 || len(m.Changes) > maxValues {
		return resourcesync.Invalid("changes has 1 to %d values of %s, each with what it means", maxValues, quote(m.decides()))
	}
	for value, change := range m.Changes {
		switch change {
		case string(resourcesync.Created), string(resourcesync.Updated), string(resourcesync.Deleted), skip:
		default:
			return resourcesync.Invalid("changes: %s means created, updated, deleted or skip, not %s", quote(value), quote(change))
		}
	}
	if m.by, err = parsePath(m.decides()); err != nil {
		return resourcesync.About("by", err)
	}
	loc := m.Loc
	if loc == "" {
		loc = "{+subject}"
	}
	if m.text, err = parseLoc(loc); err != nil {
		return resourcesync.About("loc", err)
	}
	return nil
}

// decides returns By, or its default.
func (m *Mapping) decides() string {
	if m.By == "" {
		return "type"
	}
	return m.By
}

// parsePath reads the name of an attribute (CloudEvents section 3.1), or a path into data.
func parsePath(text string) (path, error) {
	p := path(strings.Split(text, "."))
	if len(p) > maxParts {
		return nil, resourcesync.Invalid("%s has more than %d parts", quote(text), maxParts)
	}
	for i, name := range p {
		if name == "" || i == 0 && strings.ContainsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
			return nil, resourcesync.Invalid("%s is neither an attribute of an event, which has letters from a to z and digits, nor a path such as data.id", quote(text))
		}
	}
	if len(p) > 1 && p[0] != "data" {
		return nil, resourcesync.Invalid("%s: only data has parts", quote(text))
	}
	return p, nil
}

// parseLoc reads the text of a Loc.
func parseLoc(text string) (pieces []piece, err error) {
	named := false
	for rest := text; rest != ""; {
		before, after, begins := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			return nil, resourcesync.Invalid("%s has a } without a {", quote(text))
		}
		if before != "" {
			pieces = append(pieces, piece{text: before})
		}
		if !begins {
			break
		}
		inside, behind, ends := strings.Cut(after, "}")
		if !ends {
			return nil, resourcesync.Invalid("%s has a { without a }", quote(text))
		}
		var p piece
		inside, p.raw = strings.CutPrefix(inside, "+")
		for name := range strings.SplitSeq(inside, "|") {
			one, err := parsePath(name)
			if err != nil {
				return nil, err
			}
			p.paths = append(p.paths, one)
		}
		p.text = inside
		pieces = append(pieces, p)
		if named, rest = true, behind; len(pieces) > maxParts {
			return nil, resourcesync.Invalid("it has more than %d parts", maxParts)
		}
	}
	if !named {
		return nil, resourcesync.Invalid("%s has no {subject}: all events would have one loc", quote(text))
	}
	return pieces, nil
}

// fill makes the loc of an event. It returns the piece that the event has nothing for.
func (m *Mapping) fill(e *event) (loc, missing string) {
	var b strings.Builder
	for i := range m.text {
		p := &m.text[i]
		if p.paths == nil {
			b.WriteString(p.text)
			continue
		}
		value, ok := "", false
		for _, one := range p.paths {
			if value, ok = e.at(one); ok {
				break
			}
		}
		if !ok || value == "" {
			return "", p.text
		}
		escape(&b, value, p.raw)
	}
	return b.String(), ""
}

// escape writes a value as RFC 6570 section 3.2.1 has it: all but unreserved characters
// become percent-encoded octets; with raw, reserved characters and octets that are encoded
// already stay.
func escape(b *strings.Builder, value string, raw bool) {
	const hex = "0123456789ABCDEF"
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~", c) >= 0:
		case raw && strings.IndexByte(":/?#[]@!$&'()*+,;=", c) >= 0:
		case raw && c == '%' && i+2 < len(value) && isHex(value[i+1]) && isHex(value[i+2]):
		default:
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
			continue
		}
		b.WriteByte(c)
	}
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func quote(s string) string { return `"` + resourcesync.Shorten(s) + `"` }
