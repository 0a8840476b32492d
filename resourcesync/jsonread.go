package resourcesync

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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

// A jsonDocument is the JSON form of a document.
type jsonDocument struct {
	From       time.Time      `json:"from"`
	Until      time.Time      `json:"until"`
	Capability string         `json:"capability"`
	Changes    jsonChanges    `json:"changes"`
	Others     jsontext.Value `json:",embed"`
}

// decodeDocument reads a document, or finds what is wrong.
func decodeDocument(r io.Reader, l Limits, m *room) (*Document, error) {
	m.begun, m.held = 0, 0
	in := jsonDocument{Changes: jsonChanges{limits: l, wrong: mistakes{room: m}}}
	err := json.UnmarshalRead(r, &in, decoding)
	_, tooLarge := errors.AsType[*Error](m.err)
	switch {
	case m.err != nil && m.err != io.EOF && !tooLarge:
		err = fmt.Errorf("read document: %w", m.err) // the decoder wraps it more than once
	case in.Changes.err != nil:
		err = in.Changes.err
	case err != nil:
		err = JSONError(err)
	default:
		err = in.check()
	}
	wrong := &in.Changes.wrong
	if err != nil {
		return nil, wrong.end(err)
	}
	d := &Document{Header: Header{From: in.From, Until: in.Until, Capability: in.Capability}}
	if len(wrong.all) == 0 {
		d.Items = in.Changes.items
	}
	return d, wrong.end(nil)
}

// check returns an error if the document has a member that it may not have, or lacks its changes.
func (d *jsonDocument) check() error {
	err := eachMember(d.Others, func(name string, _ jsontext.Value) error {
		switch name {
		case "set", "after", "cursor", "next", "diverged":
			return nil
		}
		return unknown("a document", name)
	})
	if err == nil && !d.Changes.there {
		err = Invalidf(`"changes" is missing`)
	}
	return err
}

// jsonChanges are the changes of a document. What is wrong with one of them does not keep the
// others from being read.
type jsonChanges struct {
	limits Limits
	parser ChangeParser
	there  bool
	items  []Item // until something is wrong
	wrong  mistakes
	err    error // that ended the reading
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (cs *jsonChanges) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	cs.there = true
	return readEntries(dec, cs.limits, func(n int, text []byte) error {
		cs.err = cs.next(n, text)
		return cs.err
	})
}

// next reads change n. It returns no error if the one after it can be read.
func (cs *jsonChanges) next(n int, text []byte) error {
	c, err := cs.parser.Parse(text)
	if err == nil {
		err = cs.wrong.room.add(c)
	}
	if err == nil && cs.limits.Check != nil {
		err = cs.limits.Check(c)
	}
	if err != nil {
		if err = inEntry(err, n, cs.parser.entry.Loc); cs.wrong.add(err) {
			return nil
		}
		return err
	}
	if len(cs.wrong.all) == 0 {
		cs.items = append(cs.items, Item{Change: *c})
	}
	return nil
}

// ReadPage reads a page of a hub, one object of JSON, into the struct that page points to. What
// the struct has no field for is skipped: a later version of the hub may write more. A field of
// type Entries reads the changes of the page. An error is an *Error, with the entry if it is about
// one, or it wraps the error of r.
func ReadPage(r io.Reader, l Limits, page any) error {
	if err := json.UnmarshalRead(newLimitReader(r, l.withDefaults().Bytes), page, decoding); err != nil {
		return JSONError(err)
	}
	return nil
}

// Entries are an array of changes in a page. They are read one by one.
type Entries struct {
	Limits  Limits
	Each    func(PageEntry) error // is called with each; its *Error ends the reading
	Present bool                  // the page has the array
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (es *Entries) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	es.Present = true
	p := ChangeParser{lenient: true}
	return readEntries(dec, es.Limits.withDefaults(), func(n int, text []byte) error {
		_, err := p.Parse(text)
		if err == nil {
			err = es.Each(p.entry)
		}
		return inEntry(err, n, p.entry.Loc)
	})
}

// readEntries reads an array of changes, and calls each with the text of change n, from 1.
func readEntries(dec *jsontext.Decoder, l Limits, each func(n int, text []byte) error) error {
	n := 0
	return ReadJSONArray(dec, quote(memberOf(dec)), func() error {
		if n++; n > l.Entries && dec.PeekKind() == '{' {
			return l.tooMany(n)
		}
		text, err := dec.ReadValue()
		if err != nil {
			return inEntry(JSONError(err), n, "")
		}
		return each(n, text)
	})
}

// ParseEntry reads an entry of a page by the rules of ReadPage.
func ParseEntry(b []byte) (PageEntry, error) {
	p := ChangeParser{lenient: true}
	_, err := p.Parse(b)
	return p.entry, err
}

// ParseChange reads one change in its JSON form, by the rules of ReadJSON. For many
// changes, a ChangeParser is faster.
func ParseChange(b []byte) (*Change, error) {
	return new(ChangeParser).Parse(b)
}

// A ChangeParser does what ParseChange does, and reuses its buffers for the next
// change. The zero value is ready to use. Only one goroutine may use it at a time.
type ChangeParser struct {
	lenient bool // members that are unknown are passed over
	entry   PageEntry
	scanner scanner
}

// Parse reads the change in b. It does not write to b, and does not keep it. The
// change is valid until the next call of Parse; a copy of it stays valid.
func (p *ChangeParser) Parse(b []byte) (*Change, error) {
	p.entry = PageEntry{}
	if p.scanner.scan(b, &p.entry) {
		return &p.entry.Change, nil
	}
	return p.decode(b)
}

// decode reads the change in b, or finds what is wrong.
func (p *ChangeParser) decode(b []byte) (*Change, error) {
	var j jsonChange
	err := json.Unmarshal(b, &j, decoding)
	if err == nil {
		err = j.finish(p.lenient)
	}
	p.entry = j.PageEntry
	if err != nil {
		return nil, inEntry(JSONError(err), 0, j.Loc)
	}
	return &p.entry.Change, nil
}
