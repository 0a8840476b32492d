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

// ReadJSON reads a document in rshub's JSON form into memory. The document is one object
// whose member "changes" is an array of changes. It may have the members from, until and
// capability. ReadJSON ignores the other members of a hub's page: set, after, cursor, next
// and diverged. Any other member, a duplicate member, bytes that are not UTF-8, and
// anything after the object are errors.
//
// ReadJSON checks that values can be parsed and that every change has a loc. Use
// Change.Validate, for example as l.Check, to check whether the values are valid.
//
// An error is an *Error, with the entry if it is about one, or it wraps the error of r.
// After an invalid entry, ReadJSON continues and reports the errors of further entries in
// Error.More. If all errors are about entries, it also returns the document, without its
// entries.
func ReadJSON(r io.Reader, l Limits) (*Document, error) {
	l = l.withDefaults()
	m := l.newMeter(r, jsonExpansion)
	in := newLimitReader(m, l.Bytes)
	text, complete := readUpTo(in, maxScanBytes)
	if complete {
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
	Extra      jsontext.Value `json:",embed"`
}

// decodeDocument reads a document from r with a decoder. Unlike scanDocument, it reads any
// document and reports its errors.
func decodeDocument(r io.Reader, l Limits, m *memoryMeter) (*Document, error) {
	m.entryStart, m.retained = 0, 0
	in := jsonDocument{Changes: jsonChanges{limits: l, errs: errorList{meter: m}}}
	err := json.UnmarshalRead(r, &in, decodeOptions)
	_, tooLarge := errors.AsType[*Error](m.err)
	switch {
	case m.err != nil && m.err != io.EOF && !tooLarge:
		err = fmt.Errorf("read document: %w", m.err) // not err, which wraps it more than once
	case in.Changes.err != nil:
		err = in.Changes.err
	case err != nil:
		err = JSONError(err)
	default:
		err = in.checkMembers()
	}
	errs := &in.Changes.errs
	if err != nil {
		return nil, errs.result(err)
	}
	d := &Document{Header: Header{From: in.From, Until: in.Until, Capability: in.Capability}}
	if len(errs.list) == 0 {
		d.Items = in.Changes.items
	}
	return d, errs.result(nil)
}

// checkMembers returns an error if the document has an unknown member or no changes.
func (d *jsonDocument) checkMembers() error {
	err := forEachMember(d.Extra, func(name string, _ jsontext.Value) error {
		switch name {
		case "set", "after", "cursor", "next", "diverged":
			return nil
		}
		return unknownMember("a document", name)
	})
	if err == nil && !d.Changes.present {
		err = Invalidf(`"changes" is missing`)
	}
	return err
}

// jsonChanges decodes the changes of a document. It continues after an invalid change, to
// report the errors of the others as well.
type jsonChanges struct {
	limits  Limits
	parser  ChangeParser
	present bool      // whether the document has the array
	items   []Item    // changes read; incomplete once errs is not empty
	errs    errorList // errors of entries
	err     error     // error that stopped reading, if any
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (cs *jsonChanges) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	cs.present = true
	return readEntries(dec, cs.limits, func(n int, text []byte) error {
		cs.err = cs.readChange(n, text)
		return cs.err
	})
}

// readChange reads change n, counted from 1. It returns an error only if reading must
// stop.
func (cs *jsonChanges) readChange(n int, text []byte) error {
	c, err := cs.parser.Parse(text)
	if err == nil {
		err = cs.errs.meter.addEntry(c)
	}
	if err == nil && cs.limits.Check != nil {
		err = cs.limits.Check(c)
	}
	if err != nil {
		if err = inEntry(err, n, cs.parser.entry.Loc); cs.errs.add(err) {
			return nil
		}
		return err
	}
	if len(cs.errs.list) == 0 {
		cs.items = append(cs.items, Item{Change: *c})
	}
	return nil
}

// ReadPage reads a page of a hub, one JSON object of at most l.Bytes bytes, into the struct
// that page points to. It ignores members without a field, because a later version of the
// hub may write more. A field of type Entries reads the changes of the page. An error is an
// *Error, with the entry if it is about one, or it wraps the error of r.
func ReadPage(r io.Reader, l Limits, page any) error {
	if err := json.UnmarshalRead(newLimitReader(r, l.withDefaults().Bytes), page, decodeOptions); err != nil {
		return JSONError(err)
	}
	return nil
}

// Entries decode an array of changes in a page and pass them on one at a time, in order.
// Unknown members of a change are ignored.
type Entries struct {
	Limits  Limits
	Each    func(PageEntry) error // called with each entry; an error stops reading
	Present bool                  // whether the page has the array; set by the decoder
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

// readEntries reads an array of changes and calls each with the number of each change,
// from 1, and its text. It stops at an error of each.
func readEntries(dec *jsontext.Decoder, l Limits, each func(n int, text []byte) error) error {
	n := 0
	return ReadJSONArray(dec, quote(currentMember(dec)), func() error {
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

// ParseEntry parses an entry of a page and, like ReadPage, ignores unknown members.
func ParseEntry(b []byte) (PageEntry, error) {
	p := ChangeParser{lenient: true}
	_, err := p.Parse(b)
	return p.entry, err
}

// ParseChange parses the JSON form of one change under the rules of ReadJSON. To parse many
// changes, use a ChangeParser, which is faster.
func ParseChange(b []byte) (*Change, error) {
	return new(ChangeParser).Parse(b)
}

// A ChangeParser parses changes like ParseChange, and reuses its buffers for the next
// change. The zero value is ready to use. It is not safe for concurrent use.
type ChangeParser struct {
	lenient bool // whether unknown members are ignored
	entry   PageEntry
	scanner scanner
}

// Parse parses the change in b. It neither modifies nor retains b. The returned change is
// valid until the next call of Parse, but a copy of it remains valid. Parse does not
// validate the change.
func (p *ChangeParser) Parse(b []byte) (*Change, error) {
	p.entry = PageEntry{}
	if p.scanner.scanEntry(b, &p.entry) {
		return &p.entry.Change, nil
	}
	return p.decode(b)
}

// decode parses the change in b with a decoder. Unlike the scanner, it accepts every change
// and reports errors.
func (p *ChangeParser) decode(b []byte) (*Change, error) {
	var j jsonChange
	err := json.Unmarshal(b, &j, decodeOptions)
	if err == nil {
		err = j.finish(p.lenient)
	}
	p.entry = j.PageEntry
	if err != nil {
		return nil, inEntry(JSONError(err), 0, j.Loc)
	}
	return &p.entry.Change, nil
}
