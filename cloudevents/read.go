package cloudevents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rshub/rshub/resourcesync"
)

// maxEvent bounds the bytes of one event.
const maxEvent = 2 << 20

// blowUp is about what an event takes in memory while it is read, for each of its bytes.
const blowUp = 8

// Read reads the changes out of one event, or out of a JSON array of events, in the order
// given. Events that the mapping skips are left out, so there may be no change. Of the
// limits, Depth does not count. An error is a
// *resourcesync.Error that names the event as an entry, from 1, and after an event that is
// wrong Read goes on: Error.More has the other ones. Or it is the error of r.
func Read(r io.Reader, m *Mapping, l resourcesync.Limits) ([]resourcesync.Change, error) {
	in := &reader{limits: l, mapping: m}
	in.rest.R, in.rest.N = r, l.Bytes+1
	in.dec.Reset(&in.rest)
	err := in.all()
	if err != nil && in.rest.N == 0 && in.failed == nil {
		err = &resourcesync.Error{Err: resourcesync.ErrTooLarge, Rule: fmt.Sprintf("a document has at most %d bytes, unpacked", l.Bytes)}
	}
	if err != nil && err != errEnough {
		e, ok := errors.AsType[*resourcesync.Error](err)
		if !ok || len(in.wrong) == 0 {
			return nil, err
		}
		in.wrong = append(in.wrong, e)
	}
	if len(in.wrong) > 0 {
		first := *in.wrong[0]
		first.More = in.wrong[1:]
		return nil, &first
	}
	return in.changes, nil
}

// errEnough means that enough events are wrong.
var errEnough = errors.New("too many events are wrong")

// A reader reads one publish.
type reader struct {
	limits  resourcesync.Limits
	mapping *Mapping
	rest    io.LimitedReader
	dec     jsontext.Decoder

	n       int   // number of the event
	held    int64 // bytes of memory
	changes []resourcesync.Change
	wrong   []*resourcesync.Error
	failed  error // of the underlying reader, or of Limits.Room
}

// all reads the whole text.
func (in *reader) all() error {
	kind := in.dec.PeekKind()
	if kind != '[' {
		if err := in.event(); err != nil {
			return err
		}
	} else {
		if _, err := in.dec.ReadToken(); err != nil {
			return in.syntax(err)
		}
		for in.dec.PeekKind() != ']' {
			if err := in.event(); err != nil {
				return err
			}
		}
		if _, err := in.dec.ReadToken(); err != nil {
			return in.syntax(err)
		}
	}
	if _, err := in.dec.ReadToken(); !errors.Is(err, io.EOF) {
		if err == nil {
			return resourcesync.Invalid("something follows the events")
		}
		return in.syntax(err)
	}
	return nil
}

// syntax returns the error of text that is no JSON, or of a reader that failed.
func (in *reader) syntax(err error) error {
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok && !errors.Is(err, io.ErrUnexpectedEOF) {
		return &resourcesync.Error{Err: resourcesync.ErrInvalid, Entry: in.n, Rule: "it is no JSON: " + s.Err.Error()}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return resourcesync.Invalid("the body ends early")
	}
	in.failed = err
	return err
}

// event reads the next event. An error ends the reading.
func (in *reader) event() error {
	in.n++
	if in.n > in.limits.Entries && in.limits.Entries > 0 {
		return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Entry: in.n, Rule: fmt.Sprintf("a document has at most %d events", in.limits.Entries)}
	}
	text, err := in.dec.ReadValue()
	if err != nil {
		return in.syntax(err)
	}
	if len(text) > maxEvent {
		return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Entry: in.n, Rule: fmt.Sprintf("an event has at most %d bytes", maxEvent)}
	}
	if in.limits.Room != nil {
		if err := in.limits.Room(in.held + blowUp*int64(len(text))); err != nil {
			in.failed = err
			return err
		}
	}
	c, err := in.change(text)
	if err == nil && c != nil && in.limits.Check != nil {
		err = in.limits.Check(c)
	}
	if err != nil {
		e, ok := errors.AsType[*resourcesync.Error](err)
		if !ok {
			return err
		}
		about := *e
		about.Entry = in.n
		if in.wrong = append(in.wrong, &about); len(in.wrong) == resourcesync.MaxErrors {
			return errEnough
		}
		return nil
	}
	if c != nil {
		in.changes = append(in.changes, *c)
		in.held += c.Memory()
	}
	return nil
}

// An event has its attributes, and data, as JSON.
type event struct {
	members map[string]json.RawMessage
	data    any // decoded, once it is asked for
	decoded bool
}

// text returns an attribute as text. A number or a bool is written as JSON has it.
func (e *event) text(name string) (string, bool) {
	var v any
	if err := decode(e.members[name], &v); err != nil {
		return "", false
	}
	return plain(v)
}

// at returns what a path names, as text.
func (e *event) at(p path) (string, bool) {
	if len(p) == 1 && p[0] != "data" {
		return e.text(p[0])
	}
	if !e.decoded {
		e.decoded = true
		_ = decode(e.members["data"], &e.data) // it is JSON; without data it stays nil
	}
	v := e.data
	for _, name := range p[1:] {
		object, ok := v.(map[string]any)
		if !ok {
			return "", false
		}
		v = object[name]
	}
	return plain(v)
}

// decode decodes JSON, and keeps the digits of numbers.
func decode(text json.RawMessage, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(v)
}

// plain returns a value as text, if it has one.
func plain(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return fmt.Sprint(v), true
	}
	return "", false
}

// change returns the change that an event is; nil for one that the mapping skips.
func (in *reader) change(text jsontext.Value) (*resourcesync.Change, error) {
	e := &event{}
	if text.Kind() != '{' {
		return nil, resourcesync.Invalid("an event is a JSON object")
	}
	if err := json.Unmarshal(text, &e.members); err != nil {
		return nil, resourcesync.Invalid("it is no event: %v", err)
	}
	for _, name := range []string{"specversion", "id", "source", "type"} {
		var value string
		if err := json.Unmarshal(e.members[name], &value); err != nil || value == "" {
			return nil, resourcesync.Invalid("an event has the attribute %s, a string that is not empty", name)
		}
	}
	if v, _ := e.text("specversion"); v != "1.0" {
		return nil, resourcesync.Invalid("specversion is 1.0, not %s", quote(v))
	}
	if in.mapping.Changes == nil {
		return own(e)
	}
	return in.mapping.change(e)
}

// change returns the change that an event is, or nil.
func (m *Mapping) change(e *event) (*resourcesync.Change, error) {
	value, ok := e.at(m.by)
	if !ok {
		return nil, resourcesync.Invalid("the event has no %s, which decides what change it is", m.decides())
	}
	meaning, ok := m.Changes[value]
	if !ok {
		meaning, ok = m.Changes["*"]
	}
	if !ok {
		return nil, resourcesync.Invalid("%s is %s, and the mapping of the set does not say what that means", m.decides(), quote(value))
	}
	if meaning == skip {
		return nil, nil
	}
	loc, missing := m.fill(e)
	if missing != "" {
		return nil, resourcesync.Invalid("the event has no %s, which its loc is made of", missing)
	}
	c := &resourcesync.Change{Loc: loc, Change: resourcesync.ChangeType(meaning)}
	return c, happened(c, e)
}

// happened sets when a change happened, if its event says it.
func happened(c *resourcesync.Change, e *event) error {
	if _, there := e.members["time"]; !there {
		return nil
	}
	text, _ := e.text("time")
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return &resourcesync.Error{Err: resourcesync.ErrInvalid, Loc: resourcesync.Shorten(c.Loc), Rule: "time is a time such as 2026-01-31T23:59:59Z, not " + quote(text)}
	}
	c.Datetime = t.UTC()
	return nil
}

// own returns the change of an event that Format has written: that in its data, or without
// data that of its subject.
func own(e *event) (*resourcesync.Change, error) {
	kind, _ := e.text("type")
	change, is := bytes.CutPrefix([]byte(kind), []byte(typePrefix))
	if !is {
		return nil, resourcesync.Invalid(`type is %s, and the set has no mapping that says what that means: PUT the set with {"events": {"changes": {%q: "updated"}, "loc": "https://example.org/{subject}"}}`, quote(kind), resourcesync.Shorten(kind))
	}
	if _, there := e.members["data"]; !there {
		subject, _ := e.text("subject")
		c := &resourcesync.Change{Loc: subject, Change: resourcesync.ChangeType(change)}
		return c, happened(c, e)
	}
	c, err := resourcesync.ParseChange(e.members["data"])
	if err != nil {
		return nil, resourcesync.About("data", err)
	}
	if string(c.Change) != string(change) {
		return nil, &resourcesync.Error{Err: resourcesync.ErrInvalid, Loc: resourcesync.Shorten(c.Loc), Rule: fmt.Sprintf("the type says %s, and the data %s", quote(string(change)), quote(string(c.Change)))}
	}
	return c, nil
}
