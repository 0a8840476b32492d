package cloudevents

import (
	"bytes"
	"iter"
	"maps"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rshub/rshub/resourcesync"
)

// An event holds the members of an event by name. Their JSON is valid.
type event map[string]jsontext.Value

// maxMembers is the maximum number of members of an event.
const maxMembers = 1000

// parse returns the event in a valid JSON value. It checks the required attributes, and the types
// of those that define a change.
func parse(raw jsontext.Value) (event, error) {
	if raw.Kind() != '{' {
		return nil, resourcesync.Invalidf("event is not a JSON object")
	}
	e := event{}
	for name, value := range members(raw) {
		if e[name] = value; len(e) > maxMembers {
			return nil, resourcesync.Invalidf("event has too many members; want at most %d", maxMembers)
		}
	}
	for _, name := range []string{"specversion", "id", "source", "type", "subject", "time"} {
		switch v := e[name]; {
		case v != nil && v.Kind() != '"' && v.Kind() != 'n':
			return nil, resourcesync.Invalidf("%s is not a string", name)
		case text(v) == "" && name != "subject" && name != "time":
			return nil, resourcesync.Invalidf("%s is missing", name)
		}
	}
	if v := text(e["specversion"]); v != "1.0" {
		return nil, resourcesync.Invalidf("specversion: got %q, want \"1.0\"", resourcesync.Shorten(v))
	}
	return e, nil
}

// find returns the value at a JSON pointer, or nil if there is none.
func (e event) find(p jsontext.Pointer) (v jsontext.Value) {
	in := maps.All(e)
	for token := range p.Tokens() {
		v = nil
		for name, value := range in {
			if name == token {
				v = value
				break
			}
		}
		in = members(v)
	}
	return v
}

// text returns the text of a string, number or boolean, and "" for other values.
func text(v jsontext.Value) string {
	switch v.Kind() {
	case '"':
		s, _ := jsontext.AppendUnquote(nil, v)
		return string(s)
	case '0', 't', 'f':
		return string(v)
	}
	return ""
}

// members yields the members of an object, or the elements of an array with their indexes. It
// yields nothing for other values.
func members(v jsontext.Value) iter.Seq2[string, jsontext.Value] {
	return func(yield func(string, jsontext.Value) bool) {
		object := v.Kind() == '{'
		if !object && v.Kind() != '[' {
			return
		}
		d := jsontext.NewDecoder(bytes.NewBuffer(v))
		_, _ = d.ReadToken() // no error: v is valid
		for i := 0; d.PeekKind() != '}' && d.PeekKind() != ']'; i++ {
			name := ""
			if object {
				t, _ := d.ReadToken()
				name = t.String()
			} else {
				name = strconv.Itoa(i)
			}
			value, err := d.ReadValue()
			end := int(d.InputOffset())
			if err != nil || !yield(name, v[end-len(value):end]) {
				return
			}
		}
	}
}

// change returns the change described by an event, or nil if the event is not a change.
func (m *Mapping) change(e event) (*resourcesync.Change, error) {
	kind, err := m.kind(e)
	if err != nil || kind == none {
		return nil, err
	}
	loc, own := text(e["subject"]), text(e["type"]) == Prefix+kind
	if !own {
		if loc, err = m.locOf(e); err != nil {
			return nil, err
		}
	}
	c := &resourcesync.Change{Loc: loc, Change: resourcesync.ChangeType(kind)}
	if data := e["data"]; own && data.Kind() == '{' {
		if c, err = resourcesync.ParseChange(data); err != nil {
			return nil, resourcesync.Wrap("data", err)
		}
		if c.Loc != loc || string(c.Change) != kind {
			return nil, resourcesync.Invalidf("data contradicts the event: got %s of %s, want %s of %s", c.Change, resourcesync.Shorten(c.Loc), kind, resourcesync.Shorten(loc))
		}
	}
	if when := text(e["time"]); when != "" {
		if c.Datetime, err = resourcesync.ParseTime(when); err != nil {
			return nil, resourcesync.Wrap("time", err)
		}
	}
	return c, nil
}
