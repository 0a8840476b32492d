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

// A PageEntry is a change as a hub shows it. Its Datetime is the hub's.
type PageEntry struct {
	Change
	Position       uint64    `json:"position"`       // 0 when absent
	SourceDatetime time.Time `json:"sourceDatetime"` // the datetime that the source gave
}

// A jsonChange is the JSON form of a change. A member that is null counts as absent.
type jsonChange struct {
	PageEntry
	Ln     jsonLinks      `json:"ln"`
	Others jsontext.Value `json:",embed"` // the members that have no field
}

// A jsonLink is the JSON form of a link.
type jsonLink struct {
	Link
	Pri    *int           `json:"pri"`
	Others jsontext.Value `json:",embed"`
}

type jsonLinks []jsonLink

// UnmarshalJSONFrom reads no more links than a change may have, because links take much more
// memory than their text.
func (ls *jsonLinks) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == 'n' {
		return dec.SkipValue()
	}
	return ReadJSONArray(dec, "ln", func() error {
		if len(*ls) == maxLinks {
			return Invalidf("%s", tooManyLinks)
		}
		var l jsonLink
		err := json.UnmarshalDecode(dec, &l, decoding)
		*ls = append(*ls, l)
		return err
	})
}

// decoding says how a datetime is read.
var decoding = json.WithUnmarshalers(json.UnmarshalFromFunc(func(dec *jsontext.Decoder, t *time.Time) error {
	switch kind := dec.PeekKind(); kind {
	case 'n':
		return dec.SkipValue()
	case '"', 0:
	default:
		return wrongKind(memberOf(dec), "a string", kind)
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	var rule string
	if *t, rule = parseTime(tok.String()); rule != "" {
		return Invalidf("%s %s: %s", memberOf(dec), quote(tok.String()), rule)
	}
	return nil
}))

// memberOf returns the name of the member that a decoder is at.
func memberOf(dec *jsontext.Decoder) string { return dec.StackPointer().LastToken() }

// ReadJSONArray reads an array, and calls each to read every element. what names the array in
// an error. It returns the error of each as it is, and those of dec as JSONError takes them.
func ReadJSONArray(dec *jsontext.Decoder, what string, each func() error) error {
	if kind := dec.PeekKind(); kind != '[' && kind != 0 {
		return wrongKind(what, "an array", kind)
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		if err := each(); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// finish completes a change whose members were read. If it is lenient, it passes over members
// that are unknown.
func (j *jsonChange) finish(lenient bool) (err error) {
	c := &j.Change
	c.Hash = oneSpace(c.Hash)
	if c.Attrs, err = readAttrs("a change", j.Others, lenient); err != nil {
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
	case c.Change != "" && !c.Change.known():
		return Invalidf("%s", unknownChange(string(c.Change)))
	}
	return checkLength(c.Length)
}

func (j *jsonLink) finish(lenient bool) (err error) {
	l := &j.Link
	l.Hash = oneSpace(l.Hash)
	if l.Attrs, err = readAttrs("a link in ln", j.Others, lenient); err != nil {
		return err
	}
	if j.Pri != nil {
		l.Pri = *j.Pri
	}
	switch {
	case j.Pri != nil && (l.Pri < 1 || l.Pri > maxPri):
		return Invalidf("pri is 1 to 999999, not %d", l.Pri)
	case l.Rel == "" || l.Href == "":
		return Invalidf("a link in ln has a rel and an href")
	}
	return checkLength(l.Length)
}

func checkLength(length *int64) error {
	if length != nil && *length < 0 {
		return Invalidf("length is a whole number of bytes, not %d", *length)
	}
	return nil
}

// readAttrs returns the foreign attributes among the members of an object. of says which kind of
// object it is.
func readAttrs(of string, members jsontext.Value, lenient bool) (attrs []Attr, err error) {
	err = eachMember(members, func(member string, value jsontext.Value) error {
		namespace, name, ok := strings.Cut(strings.TrimPrefix(member, "{"), "}")
		switch {
		case member == capabilityName:
			namespace, name = "", capabilityName
		case !ok || member[0] != '{':
			if lenient {
				return nil
			}
			return unknown(of, member)
		case dropped(namespace):
			return nil
		default:
			if rule := attrNameRule(namespace, name); rule != "" {
				return Invalidf("%s", rule)
			}
		}
		switch kind := value.Kind(); {
		case kind == 'n':
			return nil
		case kind != '"':
			return wrongKind(quote(name), "a string", kind)
		case len(attrs) == maxAttrs:
			return Invalidf("an element has at most %d foreign attributes", maxAttrs)
		}
		text, err := jsontext.AppendUnquote(nil, value)
		attrs = append(attrs, Attr{namespace, name, string(text)})
		return err
	})
	return attrs, err
}

// eachMember calls do with each member of an object, in its order. The object is one that was read;
// none has no members.
func eachMember(object jsontext.Value, do func(name string, value jsontext.Value) error) error {
	if len(object) == 0 {
		return nil
	}
	dec := jsontext.NewDecoder(bytes.NewReader(object), jsontext.AllowDuplicateNames(true)) // there are none
	_, err := dec.ReadToken()
	for err == nil && dec.PeekKind() != '}' {
		var name jsontext.Token
		if name, err = dec.ReadToken(); err != nil {
			break
		}
		member := name.String() // before the next read
		var value jsontext.Value
		if value, err = dec.ReadValue(); err == nil {
			err = do(member, value)
		}
	}
	return err
}

// unknown returns the error for a member that a kind of object, of, does not have.
func unknown(of, name string) error {
	hint := ""
	if of == "a document" && name == "loc" { // a change alone: what many try first
		hint = `; changes stand in {"changes": [...]}, or one on each line as application/x-ndjson`
	} else {
		hint = memberHint(name, members[of])
	}
	return Invalidf("unknown member %s in %s%s", quote(name), of, hint)
}

// memberHint returns the known member that a name is probably meant to be, or else all of them,
// as the end of an error.
func memberHint(name string, known []string) string {
	if meant := nearest.Of(name, known); meant != "" {
		return `; did you mean "` + meant + `"?`
	}
	if len(known) == 0 {
		return ""
	}
	return "; known members: " + strings.Join(known, ", ")
}

// membersOf returns the members of the JSON objects that are read into a struct.
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

var members = map[string][]string{
	"a document":   {"changes", "from", "until", "capability"},
	"a change":     {"loc", "change", "datetime", "lastmod", "changefreq", "hash", "length", "type", "encoding", "path", "ln", "capability"},
	"a link in ln": {"rel", "href", "pri", "modified", "hash", "length", "type", "encoding", "path", "profile"},
}

// wrongKind returns the error for a value that has another kind than the one that shape names.
func wrongKind(name, shape string, kind jsontext.Kind) error {
	return Invalidf("%s is %s, not %s", name, shape, kindName(kind))
}

var kindNames = map[jsontext.Kind]string{
	'n': "null", 't': "a boolean", 'f': "a boolean", '"': "a string", '0': "a number", '{': "an object", '[': "an array",
}

func kindName(k jsontext.Kind) string { return cmp.Or(kindNames[k], strconv.Quote(k.String())) }

// DecodeJSON reads one JSON value strictly: it has no unknown member and none twice, and nothing
// follows it. The error is an *Error.
func DecodeJSON(text []byte, v any) error {
	if err := json.Unmarshal(text, v, json.RejectUnknownMembers(true)); err != nil {
		return JSONError(err)
	}
	return nil
}

// JSONError makes an *Error of an error of a decoder of JSON. It wraps an error of the
// reader that the input comes from.
func JSONError(err error) error {
	var own *Error
	var syntax *jsontext.SyntacticError
	var value *json.SemanticError
	switch {
	case errors.As(err, &own):
		return own
	case err == io.EOF:
		return Invalidf("the document is empty")
	case errors.As(err, &syntax) && errors.Unwrap(syntax.Err) == nil: // else it is an error of the reader
		switch {
		case errors.Is(syntax.Err, io.ErrUnexpectedEOF) && syntax.ByteOffset == 0:
			return Invalidf("the document is empty")
		case errors.Is(syntax.Err, io.ErrUnexpectedEOF):
			return Invalidf("the document ends early")
		case errors.Is(syntax.Err, jsontext.ErrDuplicateName):
			return Invalidf("the member %s is there twice", quote(syntax.JSONPointer.LastToken()))
		}
		return Invalidf("not valid JSON: %s, after %d bytes", Shorten(syntax.Err.Error()), syntax.ByteOffset)
	case errors.Is(err, json.ErrUnknownName) && errors.As(err, &value):
		name := value.JSONPointer.LastToken()
		return Invalidf("unknown member %s%s", quote(name), memberHint(name, membersOf(value.GoType)))
	case errors.As(err, &value) && (value.Err == nil || len(value.JSONValue) > 0):
		return valueError(value)
	}
	return fmt.Errorf("read document: %w", err)
}

// valueError says that a value has not the kind of its member, or that a number is none that the
// member can have.
func valueError(e *json.SemanticError) error {
	name, shape := e.JSONPointer.LastToken(), ""
	switch kind := e.GoType.Kind(); {
	case len(e.JSONValue) > 0:
		return Invalidf("%s is a whole number, not %s", name, Shorten(string(e.JSONValue)))
	case e.GoType == reflect.TypeFor[jsonLink]():
		name, shape = "a link in ln", "an object"
	case e.GoType == reflect.TypeFor[jsonChange]():
		name, shape = "a change", "an object"
	case e.GoType == reflect.TypeFor[jsonDocument]():
		name, shape = "the document", "an object"
	case kind == reflect.Struct:
		name, shape = "it", "an object"
	case kind == reflect.String:
		shape = "a string"
	case kind == reflect.Bool:
		shape = "a boolean"
	default:
		shape = "a number"
	}
	return wrongKind(name, shape, e.JSONKind)
}
