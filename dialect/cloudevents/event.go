package cloudevents

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rshub/rshub/resourcesync"
)

// An event is its JSON, which is valid.
type event jsontext.Value

// text returns the string, number or boolean that a pointer refers to; "" if it is anything
// else, or is not there.
func (e event) text(p jsontext.Pointer) string {
	switch v := e.find(p); v.Kind() {
	case '"':
		s, _ := jsontext.AppendUnquote(nil, v)
		return string(s)
	case '0', 't', 'f':
		return string(v)
	}
	return ""
}

// find returns the value that a pointer refers to, or nil.
func (e event) find(p jsontext.Pointer) jsontext.Value {
	v := jsontext.Value(e)
	for name := range p.Tokens() {
		v = member(v, name)
	}
	return v
}

// member returns a member of an object, or an element of an array; nil if there is none.
func member(v jsontext.Value, name string) jsontext.Value {
	kind := v.Kind()
	if kind != '{' && kind != '[' {
		return nil
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(v))
	_, _ = d.ReadToken()
	for i := 0; ; i++ {
		key := strconv.Itoa(i)
		if kind == '{' {
			t, err := d.ReadToken()
			if err != nil || t.Kind() != '"' {
				return nil
			}
			key = t.String()
		}
		value, err := d.ReadValue()
		if err != nil || key == name {
			return value
		}
	}
}

// check checks the members that each event has, and those that a change is made of.
func (e event) check() error {
	if jsontext.Value(e).Kind() != '{' {
		return resourcesync.Invalid("an event is an object")
	}
	for _, p := range []jsontext.Pointer{"/specversion", "/id", "/source", "/type", "/subject", "/time"} {
		switch v := e.find(p); {
		case v != nil && v.Kind() != '"' && v.Kind() != 'n':
			return resourcesync.Invalid("%s is a string", p[1:])
		case e.text(p) == "" && p != "/subject" && p != "/time":
			return resourcesync.Invalid("%s is missing", p[1:])
		}
	}
	if v := e.text("/specversion"); v != "1.0" {
		return resourcesync.Invalid("specversion is 1.0, not %q", resourcesync.Shorten(v))
	}
	return nil
}

// change returns the change that an event is; nil if it is none.
func (m *Mapping) change(e event) (*resourcesync.Change, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	kind, err := m.kind(e)
	if err != nil || kind == none {
		return nil, err
	}
	loc, own := e.text("/subject"), e.text("/type") == Prefix+kind
	if !own {
		if loc, err = m.locOf(e); err != nil {
			return nil, err
		}
	}
	c := &resourcesync.Change{Loc: loc, Change: resourcesync.ChangeType(kind)}
	if data := e.find("/data"); own && data.Kind() == '{' {
		if c, err = resourcesync.ParseChange(data); err != nil {
			return nil, resourcesync.About("data", err)
		}
		if c.Loc != loc || string(c.Change) != kind {
			return nil, resourcesync.Invalid("data says %s of %s, and the event %s of %s", c.Change, resourcesync.Shorten(c.Loc), kind, resourcesync.Shorten(loc))
		}
	}
	if when := e.text("/time"); when != "" {
		if c.Datetime, err = resourcesync.ParseTime(when); err != nil {
			return nil, resourcesync.About("time", err)
		}
	}
	return c, nil
}
