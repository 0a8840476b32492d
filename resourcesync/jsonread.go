package resourcesync

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ReadJSON reads a document in rshub's JSON form into memory: one object whose
// "changes" are an array of changes, and which may have from, until and
// capability. What else a page of a hub has, that is set, after, cursor, next
// and diverged, is accepted and ignored; any other member is an error, and so
// are a member that is there twice, bytes that are not UTF-8, and anything
// that follows the object. It checks that values can be read and that every
// change has a loc; whether an entry makes sense as a change is for
// Change.Validate.
//
// Its errors are an *Error, with the entry where there is one, or wrapped from
// the reader below.
func ReadJSON(r io.Reader, l Limits) (*Document, error) {
	l = l.withDefaults()
	j := &jsonInput{depth: l.Depth}
	j.dec.Reset(newLimitReader(r, l.Bytes))
	d := new(Document)
	if err := j.document(d, l); err != nil {
		return nil, err
	}
	if err := j.end(); err != nil {
		return nil, err
	}
	return d, nil
}

// ParseChange reads one change in its JSON form, as ReadJSON does those in
// "changes". To read many, a ChangeParser is faster.
func ParseChange(b []byte) (*Change, error) {
	return new(ChangeParser).Parse(b)
}

// A ChangeParser is a ParseChange that keeps its memory from one change to the
// next. Its zero value is ready; it is for one goroutine.
type ChangeParser struct {
	in  jsonInput
	buf bytes.Buffer
}

// Parse reads the change in b, which it neither changes nor keeps. The change
// is the caller's to keep.
func (p *ChangeParser) Parse(b []byte) (*Change, error) {
	p.buf = *bytes.NewBuffer(b)
	p.in.depth = defaultDepth
	p.in.dec.Reset(&p.buf)
	c := new(Change)
	err := p.in.change(c)
	if err == nil {
		err = p.in.end()
	}
	p.buf = bytes.Buffer{}
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			e.Loc = shorten(c.Loc)
		}
		return nil, err
	}
	return c, nil
}

func (j *jsonInput) document(d *Document, l Limits) error {
	if err := j.open('{', "the document"); err != nil {
		return err
	}
	changes := false
	for {
		name, err := j.name()
		if err != nil {
			return err
		}
		switch string(name) {
		case "":
			if !changes {
				return j.fail(`"changes" is missing`)
			}
			return j.close()
		case "changes":
			changes = true
			err = j.changes(d, l)
		case "from":
			err = j.time("from", &d.From)
		case "until":
			err = j.time("until", &d.Until)
		case "capability":
			err = j.string("capability", &d.Capability)
		case "set", "after", "cursor", "next", "diverged":
			err = j.ignore()
		default:
			err = j.unknown("a document", name)
		}
		if err != nil {
			return err
		}
	}
}

func (j *jsonInput) changes(d *Document, l Limits) error {
	if err := j.open('[', `"changes"`); err != nil {
		return err
	}
	for j.dec.PeekKind() != ']' {
		if len(d.Items) == l.Entries && j.dec.PeekKind() == '{' {
			return l.tooMany(l.Entries + 1)
		}
		var it Item
		if err := j.change(&it.Change); err != nil {
			var e *Error
			if errors.As(err, &e) {
				e.Entry = len(d.Items) + 1
				e.Loc = shorten(it.Loc)
			}
			return err
		}
		d.Items = append(d.Items, it)
	}
	return j.close()
}

func (j *jsonInput) change(c *Change) error {
	if err := j.open('{', "a change"); err != nil {
		return err
	}
	for {
		name, err := j.name()
		if err != nil {
			return err
		}
		switch string(name) {
		case "":
			if c.Loc == "" {
				return j.fail("loc is missing")
			}
			return j.close()
		case "loc":
			err = j.string("loc", &c.Loc)
		case "change":
			err = j.changeType(&c.Change)
		case "datetime":
			err = j.time("datetime", &c.Datetime)
		case "lastmod":
			err = j.time("lastmod", &c.Lastmod)
		case "changefreq":
			err = j.string("changefreq", &c.Changefreq)
		case "hash":
			err = j.hash(&c.Hash)
		case "length":
			c.Length, err = j.length()
		case "type":
			err = j.string("type", &c.Type)
		case "encoding":
			err = j.string("encoding", &c.Encoding)
		case "path":
			err = j.string("path", &c.Path)
		case "ln":
			err = j.links(&c.Links)
		case "position", "sourceDatetime": // a hub wrote them, and writes its own
			err = j.ignore()
		default:
			err = j.foreign(&c.Attrs, "a change", name)
		}
		if err != nil {
			return err
		}
	}
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
	return j.close()
}

func (j *jsonInput) link(l *Link) error {
	if err := j.open('{', "a link in ln"); err != nil {
		return err
	}
	for {
		name, err := j.name()
		if err != nil {
			return err
		}
		switch string(name) {
		case "":
			if l.Rel == "" || l.Href == "" {
				return j.fail("a link in ln has a rel and an href")
			}
			return j.close()
		case "rel":
			err = j.string("rel", &l.Rel)
		case "href":
			err = j.string("href", &l.Href)
		case "pri":
			l.Pri, err = j.pri()
		case "modified":
			err = j.time("modified", &l.Modified)
		case "hash":
			err = j.hash(&l.Hash)
		case "length":
			l.Length, err = j.length()
		case "type":
			err = j.string("type", &l.Type)
		case "encoding":
			err = j.string("encoding", &l.Encoding)
		case "path":
			err = j.string("path", &l.Path)
		case "profile":
			err = j.string("profile", &l.Profile)
		default:
			err = j.foreign(&l.Attrs, "a link in ln", name)
		}
		if err != nil {
			return err
		}
	}
}

// foreign keeps a member "{namespace}name".
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
