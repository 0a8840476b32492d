package resourcesync

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ReadJSON reads a document in rshub's JSON form into memory. The document is one
// object. Its member "changes" is an array of changes. It may have the members from,
// until and capability. ReadJSON ignores the other members of a hub's page: set,
// after, cursor, next and diverged. These are errors: any other member, a member that
// is there twice, bytes that are not UTF-8, and anything that follows the object.
//
// ReadJSON checks that values can be read and that every change has a loc.
// Change.Validate checks whether the values make sense.
//
// An error is an *Error, with the entry if it is about one, or it wraps the error of
// r. After an entry that is wrong ReadJSON goes on, and reports the other ones that are
// wrong in Error.More. If nothing but entries is wrong, it also returns the document,
// without entries.
func ReadJSON(r io.Reader, l Limits) (*Document, error) {
	l = l.withDefaults()
	m := l.room(r, jsonBlowUp)
	in := newLimitReader(m, l.Bytes)
	text, whole := readMost(in, scannedBytes)
	if whole {
		if d, err := scanDocument(string(text), l, m); d != nil || err != nil {
			return d, err
		}
	}
	return decodeDocument(io.MultiReader(bytes.NewReader(text), in), l, m)
}

// decodeDocument reads a document, or finds what is wrong.
func decodeDocument(r io.Reader, l Limits, m *room) (*Document, error) {
	m.begun, m.held = 0, 0
	j := new(jsonInput)
	j.dec.Reset(r)
	d := new(Document)
	wrong := &mistakes{room: m}
	err := j.document(d, l, m, wrong)
	if err == nil {
		err = j.end()
	}
	switch {
	case err != nil:
		return nil, wrong.end(err)
	case len(wrong.all) > 0:
		d.Items = nil
		return d, wrong.end(nil)
	}
	return d, nil
}

// ParseChange reads one change in its JSON form, by the rules of ReadJSON. For many
// changes, a ChangeParser is faster.
func ParseChange(b []byte) (*Change, error) {
	return new(ChangeParser).Parse(b)
}

// A ChangeParser does what ParseChange does, and reuses its buffers for the next
// change. The zero value is ready to use. Only one goroutine may use it at a time.
type ChangeParser struct {
	change  Change
	scanner scanner
	in      jsonInput
	buf     bytes.Buffer
}

// Parse reads the change in b. It does not write to b, and does not keep it. The
// change is valid until the next call of Parse; a copy of it stays valid.
func (p *ChangeParser) Parse(b []byte) (*Change, error) {
	p.change = Change{}
	if p.scanner.scan(b, &p.change) {
		return &p.change, nil
	}
	return p.decode(b)
}

// decode reads the change in b, or finds what is wrong.
func (p *ChangeParser) decode(b []byte) (*Change, error) {
	p.buf = *bytes.NewBuffer(b)
	p.in.dec.Reset(&p.buf)
	p.change = Change{}
	c := &p.change
	err := p.in.change(c)
	if err == nil {
		err = p.in.end()
	}
	p.buf = bytes.Buffer{}
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			e.Loc = Shorten(c.Loc)
		}
		return nil, err
	}
	return c, nil
}

func (j *jsonInput) document(d *Document, l Limits, m *room, wrong *mistakes) error {
	changes := false
	err := j.object("the document", func(name []byte) error {
		switch string(name) {
		case "changes":
			changes = true
			return j.changes(`"changes"`, l, wrong, func(c *Change) error {
				if err := m.add(c); err != nil {
					return err
				}
				if l.Check != nil {
					if err := l.Check(c); err != nil {
						return err
					}
				}
				if len(wrong.all) == 0 {
					d.Items = append(d.Items, Item{Change: *c})
				}
				return nil
			})
		case "from":
			return j.time("from", &d.From)
		case "until":
			return j.time("until", &d.Until)
		case "capability":
			return j.string("capability", &d.Capability)
		case "set", "after", "cursor", "next", "diverged":
			return j.ignore()
		}
		return j.unknown("a document", name)
	})
	if err == nil && !changes {
		err = j.fail(`"changes" is missing`)
	}
	return err
}

// changes reads an array of changes, and calls each for every one of them. what names
// the array. each must copy the Change, because the next call reuses it. It may keep
// what the Change points to. After a change that is wrong, changes goes on if wrong is
// not nil and takes the error.
func (j *jsonInput) changes(what string, l Limits, wrong *mistakes, each func(*Change) error) error {
	if err := j.open('[', what); err != nil {
		return err
	}
	depth := j.dec.StackDepth()
	var c Change // one for all calls of each, so that it is allocated once
	for n := 0; j.dec.PeekKind() != ']'; n++ {
		if n == l.Entries && j.dec.PeekKind() == '{' {
			return l.tooMany(n + 1)
		}
		c = Change{}
		begin := j.dec.InputOffset()
		err := j.change(&c)
		if err == nil {
			err = each(&c)
		}
		if err == nil {
			continue
		}
		err = inEntry(err, n+1, c.Loc)
		if wrong == nil || !wrong.add(err) || !j.leave(depth, begin) {
			return err
		}
	}
	return j.skip()
}

// leave reads up to the end of an entry that is wrong. The entry begins behind the offset
// begin, within so many levels. leave reports false if it cannot find the end.
func (j *jsonInput) leave(depth int, begin int64) bool {
	if j.dec.StackDepth() == depth && j.dec.InputOffset() == begin { // not an object
		return j.dec.SkipValue() == nil
	}
	for j.dec.StackDepth() > depth {
		if _, err := j.dec.ReadToken(); err != nil {
			return false
		}
	}
	return true
}

func (j *jsonInput) change(c *Change) error {
	err := j.object("a change", func(name []byte) (err error) {
		switch string(name) {
		case "loc":
			return j.string("loc", &c.Loc)
		case "change":
			return j.changeType(&c.Change)
		case "datetime":
			return j.time("datetime", &c.Datetime)
		case "lastmod":
			return j.time("lastmod", &c.Lastmod)
		case "changefreq":
			return j.string("changefreq", &c.Changefreq)
		case "hash":
			return j.hash(&c.Hash)
		case "length":
			c.Length, err = j.length()
			return err
		case "type":
			return j.string("type", &c.Type)
		case "encoding":
			return j.string("encoding", &c.Encoding)
		case "path":
			return j.string("path", &c.Path)
		case "ln":
			return j.links(&c.Links)
		case capabilityName:
			return j.attr(&c.Attrs, "", capabilityName)
		case "position":
			return j.position()
		case "sourceDatetime":
			return j.sourceDatetime()
		}
		return j.foreign(&c.Attrs, "a change", name)
	})
	if err == nil && c.Loc == "" {
		err = j.fail("loc is missing")
	}
	return err
}

func (j *jsonInput) links(links *[]Link) error {
	if j.null() {
		return j.skip()
	}
	if err := j.open('[', "ln"); err != nil {
		return err
	}
	for j.dec.PeekKind() != ']' {
		if len(*links) == maxLinks {
			return j.fail(tooManyLinks)
		}
		var l Link
		if err := j.link(&l); err != nil {
			return err
		}
		*links = append(*links, l)
	}
	return j.skip()
}

func (j *jsonInput) link(l *Link) error {
	err := j.object("a link in ln", func(name []byte) (err error) {
		switch string(name) {
		case "rel":
			return j.string("rel", &l.Rel)
		case "href":
			return j.string("href", &l.Href)
		case "pri":
			l.Pri, err = j.pri()
			return err
		case "modified":
			return j.time("modified", &l.Modified)
		case "hash":
			return j.hash(&l.Hash)
		case "length":
			l.Length, err = j.length()
			return err
		case "type":
			return j.string("type", &l.Type)
		case "encoding":
			return j.string("encoding", &l.Encoding)
		case "path":
			return j.string("path", &l.Path)
		case "profile":
			return j.string("profile", &l.Profile)
		}
		return j.foreign(&l.Attrs, "a link in ln", name)
	})
	if err == nil && (l.Rel == "" || l.Href == "") {
		err = j.fail("a link in ln has a rel and an href")
	}
	return err
}

// foreign reads a member "{namespace}name" as a foreign attribute.
func (j *jsonInput) foreign(dst *[]Attr, of string, member []byte) error {
	namespace, name, ok := strings.Cut(string(member), "}")
	if !ok || namespace == "" || namespace[0] != '{' {
		return j.unknown(of, member)
	}
	namespace = namespace[1:]
	if rule := attrNameRule(namespace, name); rule != "" {
		return j.fail(rule)
	}
	if dropped(namespace) {
		return j.ignore()
	}
	return j.attr(dst, namespace, name)
}

// attr reads the value of an attribute.
func (j *jsonInput) attr(dst *[]Attr, namespace, name string) error {
	if len(*dst) == maxAttrs {
		return j.fail(fmt.Sprintf("an element has at most %d foreign attributes", maxAttrs))
	}
	if j.null() {
		return j.skip()
	}
	var value string
	if err := j.string(quote(name), &value); err != nil {
		return err
	}
	*dst = append(*dst, Attr{namespace, name, value})
	return nil
}
