package resourcesync

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rshub/rshub/internal/nearest"
)

// A jsonInput reads the members of objects. A member that is null counts as absent.
type jsonInput struct {
	dec   jsontext.Decoder
	entry *PageEntry // the entry that ReadPage is at; nil in all other input, where unknown members are errors
}

// unknown handles a member that the kind of object, of, does not have.
func (j *jsonInput) unknown(of string, name []byte) error {
	if j.entry != nil {
		return j.pass()
	}
	hint := ""
	if of == "a document" && string(name) == "loc" { // a change alone: what many try first
		hint = `; changes stand in {"changes": [...]}, or one on each line as application/x-ndjson`
	} else if meant := nearest.Of(string(name), members[of]); meant != "" {
		hint = `; did you mean "` + meant + `"?`
	}
	return j.fail("unknown member " + quote(string(name)) + " in " + of + hint)
}

var members = map[string][]string{
	"a document":   {"changes", "from", "until", "capability"},
	"a change":     {"loc", "change", "datetime", "lastmod", "changefreq", "hash", "length", "type", "encoding", "path", "ln", "capability"},
	"a link in ln": {"rel", "href", "pri", "modified", "hash", "length", "type", "encoding", "path", "profile"},
}

// object reads an object, and calls member with the name of each member to read its value.
// The name is valid until then. what names the object in errors.
func (j *jsonInput) object(what string, member func(name []byte) error) error {
	if err := j.open('{', what); err != nil {
		return err
	}
	for j.dec.PeekKind() != '}' {
		raw, err := j.dec.ReadValue()
		if err != nil {
			return JSONError(err)
		}
		name := unquoted(raw)
		if len(name) == 0 {
			return j.fail("a member has no name")
		}
		if err := member(name); err != nil {
			return err
		}
	}
	return j.skip()
}

// open reads the beginning of an object or an array.
func (j *jsonInput) open(kind jsontext.Kind, what string) error {
	shape := "an object"
	if kind == '[' {
		shape = "an array"
	}
	if err := j.expect(kind, what, shape); err != nil {
		return err
	}
	return j.skip()
}

// skip reads a token whose kind is known.
func (j *jsonInput) skip() error {
	if _, err := j.dec.ReadToken(); err != nil {
		return JSONError(err)
	}
	return nil
}

// end checks that nothing follows the object.
func (j *jsonInput) end() error {
	switch _, err := j.dec.ReadToken(); {
	case err == io.EOF:
		return nil
	case err == nil:
		return j.fail("something follows the end of the object")
	default:
		return JSONError(err)
	}
}

// unquoted returns the text of a JSON string. If the string has no escapes, the result
// shares its bytes.
func unquoted(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 && len(raw) >= 2 {
		return raw[1 : len(raw)-1]
	}
	b, _ := jsontext.AppendUnquote(nil, raw) // the decoder has checked it
	return b
}

func (j *jsonInput) null() bool { return j.dec.PeekKind() == 'n' }

// expect returns an error unless the next value is of a kind. what names the value,
// and shape the kind, for the error.
func (j *jsonInput) expect(kind jsontext.Kind, what, shape string) error {
	switch got := j.dec.PeekKind(); got {
	case kind:
		return nil
	case 0:
		return j.broken()
	default:
		return j.fail(what + " is " + shape + ", not " + kindName(got))
	}
}

// broken returns the error behind a token that could not be peeked at.
func (j *jsonInput) broken() error {
	if _, err := j.dec.ReadToken(); err != nil {
		return JSONError(err)
	}
	return j.fail("not valid JSON")
}

// value reads the string or the number of a member. The result is nil for null. It is
// valid until the next read.
func (j *jsonInput) value(kind jsontext.Kind, name, shape string) ([]byte, error) {
	if j.null() {
		return nil, j.skip()
	}
	if err := j.expect(kind, name, shape); err != nil {
		return nil, err
	}
	raw, err := j.dec.ReadValue()
	if err != nil {
		return nil, JSONError(err)
	}
	if kind == '"' {
		return unquoted(raw), nil
	}
	return raw, nil
}

func (j *jsonInput) string(name string, dst *string) error {
	v, err := j.value('"', name, "a string")
	if err == nil && v != nil {
		*dst = string(v)
	}
	return err
}

func (j *jsonInput) hash(dst *string) error {
	err := j.string("hash", dst)
	*dst = oneSpace(*dst)
	return err
}

func (j *jsonInput) changeType(dst *ChangeType) error {
	v, err := j.value('"', "change", "a string")
	if err != nil || v == nil {
		return err
	}
	switch string(v) {
	case string(Created):
		*dst = Created
	case string(Updated):
		*dst = Updated
	case string(Deleted):
		*dst = Deleted
	default:
		return j.fail(unknownChange(string(v)))
	}
	return nil
}

func (j *jsonInput) time(name string, dst *time.Time) error {
	v, err := j.value('"', name, "a string")
	if err != nil || v == nil {
		return err
	}
	t, rule := parseTime(string(v))
	if rule != "" {
		return j.fail(name + " " + quote(string(v)) + ": " + rule)
	}
	*dst = t
	return nil
}

func (j *jsonInput) length() (*int64, error) {
	v, err := j.value('0', "length", "a number")
	if err != nil || v == nil {
		return nil, err
	}
	n, ok := parseLength(string(v))
	if !ok {
		return nil, j.fail("length is a whole number of bytes, not " + Shorten(string(v)))
	}
	return &n, nil
}

func (j *jsonInput) pri() (int, error) {
	v, err := j.value('0', "pri", "a number")
	if err != nil || v == nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(v))
	if err != nil || n < 1 || n > maxPri {
		return 0, j.fail("pri is 1 to 999999, not " + Shorten(string(v)))
	}
	return n, nil
}

// ignore skips a value, which must not be an object or an array.
func (j *jsonInput) ignore() error {
	switch kind := j.dec.PeekKind(); kind {
	case 0:
		return j.broken()
	case '{', '[':
		return j.fail("the value of an ignored member must not be " + kindName(kind))
	}
	return j.skip()
}

// pass skips any value.
func (j *jsonInput) pass() error {
	if err := j.dec.SkipValue(); err != nil {
		return JSONError(err)
	}
	return nil
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return strconv.Quote(k.String())
}

func (j *jsonInput) fail(rule string) error {
	return &Error{Err: ErrInvalid, Rule: rule}
}

// JSONError makes an *Error of an error of a decoder of JSON. It wraps an error of the
// reader that the input comes from.
func JSONError(err error) error {
	var own *Error
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &own):
		return own
	case err == io.EOF:
		return &Error{Err: ErrInvalid, Rule: "the document is empty"}
	case !errors.As(err, &syntax):
		return fmt.Errorf("read document: %w", err)
	case errors.Is(syntax.Err, io.ErrUnexpectedEOF):
		return &Error{Err: ErrInvalid, Rule: "the document ends early"}
	case errors.Is(syntax.Err, jsontext.ErrDuplicateName):
		return &Error{Err: ErrInvalid, Rule: "the member " + quote(syntax.JSONPointer.LastToken()) + " is there twice"}
	}
	return &Error{Err: ErrInvalid, Rule: fmt.Sprintf("not valid JSON: %s, after %d bytes", Shorten(syntax.Err.Error()), syntax.ByteOffset)}
}
