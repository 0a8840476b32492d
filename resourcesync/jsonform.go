package resourcesync

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/rshub/rshub/internal/nearest"
)

// A PageEntry is a change in a page of a hub. Its Datetime was assigned by the hub.
type PageEntry struct {
	Change
	Position       uint64    `json:"position"`       // position in the log; 0 if absent
	SourceDatetime time.Time `json:"sourceDatetime"` // datetime that the source reported
}

// A jsonChange is the JSON form of a change. A member that is null counts as absent.
type jsonChange struct {
	PageEntry
	Ln    jsonLinks      `json:"ln"`
	Extra jsontext.Value `json:",embed"` // members without a field
}

// A jsonLink is the JSON form of a link.
type jsonLink struct {
	Link
	Pri   *int           `json:"pri"`
	Extra jsontext.Value `json:",embed"`
}

type jsonLinks []jsonLink

// UnmarshalJSONFrom implements json.UnmarshalerFrom. It stops at the maximum number of
// links of a change, because links need much more memory than their text.
func (ls *jsonLinks) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == 'n' {
		return dec.SkipValue()
	}
	return ReadJSONArray(dec, "ln", func() error {
		if len(*ls) == maxLinks {
			return Invalidf("%s", tooManyLinks)
		}
		var l jsonLink
		err := json.UnmarshalDecode(dec, &l, decodeOptions)
		*ls = append(*ls, l)
		return err
	})
}

// decodeOptions make the decoder parse a time.Time with parseTime.
var decodeOptions = json.WithUnmarshalers(json.UnmarshalFromFunc(func(dec *jsontext.Decoder, t *time.Time) error {
	switch kind := dec.PeekKind(); kind {
	case 'n':
		return dec.SkipValue()
	case '"', 0:
	default:
		return kindError(currentMember(dec), "a string", kind)
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	var msg string
	if *t, msg = parseTime(tok.String()); msg != "" {
		return Invalidf("%s: got %s, %s", currentMember(dec), quote(tok.String()), msg)
	}
	return nil
}))

// currentMember returns the name of the member whose value dec is at.
func currentMember(dec *jsontext.Decoder) string { return dec.StackPointer().LastToken() }

// ReadJSONArray reads an array from dec. It calls readElement for each element, which must
// read that element completely. An error of readElement ends the array and is returned
// unchanged. An error of dec is one for JSONError. If the value is not an array, the error
// is an *Error that starts with name.
func ReadJSONArray(dec *jsontext.Decoder, name string, readElement func() error) error {
	if kind := dec.PeekKind(); kind != '[' && kind != 0 {
		return kindError(name, "an array", kind)
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		if err := readElement(); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// finish moves the links and the attributes into the Change and checks what must be right
// for the change to be read. If lenient is set, it ignores unknown members.
func (j *jsonChange) finish(lenient bool) (err error) {
	c := &j.Change
	c.Hash = normalizeSpace(c.Hash)
	if c.Attrs, err = readAttrs("a change", j.Extra, lenient); err != nil {
		return err
	}
	for i := range j.Ln {
		if err := j.Ln[i].finish(lenient); err != nil {
			return err
		}
		c.Links = append(c.Links, j.Ln[i].Link)
	}
	switch {
	case c.Loc == "":
		return Invalidf("loc is missing")
	case c.Change != "" && !c.Change.isKnown():
		return Invalidf("%s", unknownChange(string(c.Change)))
	}
	return checkLength(c.Length)
}

// finish does for a link what jsonChange.finish does for a change.
func (j *jsonLink) finish(lenient bool) (err error) {
	l := &j.Link
	l.Hash = normalizeSpace(l.Hash)
	if l.Attrs, err = readAttrs("a link in ln", j.Extra, lenient); err != nil {
		return err
	}
	if j.Pri != nil {
		l.Pri = *j.Pri
	}
	switch {
	case j.Pri != nil && (l.Pri < 1 || l.Pri > maxPri):
		return Invalidf("pri: got %d, want 1 to %d", l.Pri, maxPri)
	case l.Rel == "" || l.Href == "":
		return Invalidf("link in ln: rel or href is missing")
	}
	return checkLength(l.Length)
}

// checkLength returns an error if length is negative.
func checkLength(length *int64) error {
	if length != nil && *length < 0 {
		return Invalidf("length: got %d, want a whole number of bytes", *length)
	}
	return nil
}

// readAttrs returns the foreign attributes among the members of an object. object names the
// kind of the object, for errors. If lenient is set, unknown members are ignored.
func readAttrs(object string, members jsontext.Value, lenient bool) (attrs []Attr, err error) {
	err = forEachMember(members, func(member string, value jsontext.Value) error {
		namespace, name, ok := strings.Cut(strings.TrimPrefix(member, "{"), "}")
		switch {
		case member == capabilityName:
			namespace, name = "", capabilityName
		case !ok || member[0] != '{':
			if lenient {
				return nil
			}
			return unknownMember(object, member)
		case isDropped(namespace):
			return nil
		default:
			if msg := attrNameViolation(namespace, name); msg != "" {
				return Invalidf("%s", msg)
			}
		}
		switch kind := value.Kind(); {
		case kind == 'n':
			return nil
		case kind != '"':
			return kindError(quote(name), "a string", kind)
		case len(attrs) == maxAttrs:
			return Invalidf("too many foreign attributes; want at most %d per element", maxAttrs)
		}
		text, err := jsontext.AppendUnquote(nil, value)
		attrs = append(attrs, Attr{namespace, name, string(text)})
		return err
	})
	return attrs, err
}

// forEachMember calls f for each member of an object, in order, until f returns an error.
// The object must have been validated by a decoder. An empty value has no members.
func forEachMember(object jsontext.Value, f func(name string, value jsontext.Value) error) error {
	if len(object) == 0 {
		return nil
	}
	dec := jsontext.NewDecoder(bytes.NewReader(object), jsontext.AllowDuplicateNames(true)) // already checked
	_, err := dec.ReadToken()
	for err == nil && dec.PeekKind() != '}' {
		var name jsontext.Token
		if name, err = dec.ReadToken(); err != nil {
			break
		}
		member := name.String() // name is invalid after the next read
		var value jsontext.Value
		if value, err = dec.ReadValue(); err == nil {
			err = f(member, value)
		}
	}
	return err
}

// unknownMember returns the error for a member that the given kind of object does not have.
func unknownMember(object, name string) error {
	hint := ""
	if object == "a document" && name == "loc" { // a single change, which many users try first
		hint = `; send {"changes": [...]}, or one change per line as application/x-ndjson`
	} else {
		hint = memberHint(name, knownMembers[object])
	}
	return Invalidf("unknown member %s in %s%s", quote(name), object, hint)
}

// memberHint returns the end of an error about an unknown member: the known member that name
// probably stands for, or else all known members.
func memberHint(name string, known []string) string {
	if meant := nearest.Of(name, known); meant != "" {
		return `; did you mean "` + meant + `"?`
	}
	if len(known) == 0 {
		return ""
	}
	return "; known members: " + strings.Join(known, ", ")
}

// membersOf returns the names of the members that a value of type t is decoded from. It
// returns nil if t is not a struct or a pointer to one.
func membersOf(t reflect.Type) (names []string) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// knownMembers lists the members of each kind of object.
var knownMembers = map[string][]string{
	"a document":   {"changes", "from", "until", "capability"},
	"a change":     {"loc", "change", "datetime", "lastmod", "changefreq", "hash", "length", "type", "encoding", "path", "ln", "capability"},
	"a link in ln": {"rel", "href", "pri", "modified", "hash", "length", "type", "encoding", "path", "profile"},
}

// kindError returns the error for a value of the wrong kind. want describes the right kind,
// such as "a string".
func kindError(name, want string, kind jsontext.Kind) error {
	return Invalidf("%s: got %s, want %s", name, kindName(kind), want)
}

var kindNames = map[jsontext.Kind]string{
	'n': "null", 't': "a boolean", 'f': "a boolean", '"': "a string", '0': "a number", '{': "an object", '[': "an array",
}

func kindName(k jsontext.Kind) string { return cmp.Or(kindNames[k], strconv.Quote(k.String())) }

// DecodeJSON decodes text, which must be a single JSON value without unknown or duplicate
// members, into the value that v points to. An error is an *Error.
func DecodeJSON(text []byte, v any) error {
	if err := json.Unmarshal(text, v, json.RejectUnknownMembers(true)); err != nil {
		return JSONError(err)
	}
	return nil
}

// JSONError converts an error of a JSON decoder to an *Error that wraps ErrInvalid. An error
// that already is an *Error is returned as is, and an error of the reader that the input
// comes from is wrapped.
func JSONError(err error) error {
	var own *Error
	var syntax *jsontext.SyntacticError
	var value *json.SemanticError
	switch {
	case errors.As(err, &own):
		return own
	case err == io.EOF:
		return Invalidf("document is empty")
	case errors.As(err, &syntax) && errors.Unwrap(syntax.Err) == nil: // otherwise it is an error of the reader
		switch {
		case errors.Is(syntax.Err, io.ErrUnexpectedEOF) && syntax.ByteOffset == 0:
			return Invalidf("document is empty")
		case errors.Is(syntax.Err, io.ErrUnexpectedEOF):
			return Invalidf("document ends early")
		case errors.Is(syntax.Err, jsontext.ErrDuplicateName):
			return Invalidf("duplicate member %s", quote(syntax.JSONPointer.LastToken()))
		}
		return Invalidf("invalid JSON at offset %d: %s", syntax.ByteOffset, Shorten(syntax.Err.Error()))
	case errors.Is(err, json.ErrUnknownName) && errors.As(err, &value):
		name := value.JSONPointer.LastToken()
		return Invalidf("unknown member %s%s", quote(name), memberHint(name, membersOf(value.GoType)))
	case errors.As(err, &value) && (value.Err == nil || len(value.JSONValue) > 0):
		return valueError(value)
	}
	return fmt.Errorf("read document: %w", err)
}

// valueError returns the error for a value of the wrong kind, or for a number that the
// member cannot hold.
func valueError(e *json.SemanticError) error {
	name, want := e.JSONPointer.LastToken(), ""
	switch kind := e.GoType.Kind(); {
	case len(e.JSONValue) > 0:
		return Invalidf("%s: got %s, want a whole number", name, Shorten(string(e.JSONValue)))
	case e.GoType == reflect.TypeFor[jsonLink]():
		name, want = "link in ln", "an object"
	case e.GoType == reflect.TypeFor[jsonChange]():
		name, want = "change", "an object"
	case e.GoType == reflect.TypeFor[jsonDocument]():
		name, want = "document", "an object"
	case kind == reflect.Struct:
		name, want = "JSON value", "an object"
	case kind == reflect.String:
		want = "a string"
	case kind == reflect.Bool:
		want = "a boolean"
	default:
		want = "a number"
	}
	return kindError(name, want, e.JSONKind)
}
