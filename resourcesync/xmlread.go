package resourcesync

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"

	"github.com/rshub/rshub/internal/xmlrepair"
)

// A Reader reads an XML document one entry at a time, in bounded memory. It accepts the
// documents of core section 7 and of its schema, in every version since 0.8. It ignores
// elements in other namespaces, except for one that might be an entry. It checks that
// values can be parsed, that every entry has a loc, and that every link has a rel and an
// href. Use Change.Validate to check whether the values are valid. A Reader is not safe for
// concurrent use.
//
// An error is an *Error, with the line, and with the entry if it is about one, or it wraps
// the error of the reader that the document comes from.
type Reader struct {
	tokens   *xmlTokenizer
	meter    *memoryMeter // bounds the text of one entry and the space around it, which the decoder buffers
	limits   Limits
	header   Header
	entry    string            // name of the element of an entry: url or sitemap
	started  bool              // whether reading has started
	headerOK bool              // whether the header was read without an error
	pending  *xml.StartElement // first entry, which ended the header; nil if none or consumed
	entries  int               // number of entries started
	inEntry  bool              // whether the reader is in an entry
	line     int               // line on which the entry starts
	loc      string            // loc of the entry; empty until it is read
	badLoc   string            // reason why the loc is unreadable; empty if it is readable or violations are not tolerated
	text     []byte            // buffer of readText
	report   func(*Error)      // called with each tolerated violation; nil if violations stop reading
	err      error             // error that stopped reading; nil if none
}

// NewXMLReader returns a Reader of the XML document in r. It reads nothing before the first
// call of Header or Next.
func NewXMLReader(r io.Reader, l Limits) *Reader {
	l = l.withDefaults()
	m := &memoryMeter{r: r}
	return &Reader{tokens: newXMLTokenizer(m, l.Bytes), meter: m, limits: l}
}

// Tolerate makes the Reader tolerate violations that are common in real documents and lose
// no entry: text of other elements that is not well-formed, a misplaced element, attribute
// or text, a value that cannot be parsed, another namespace for sitemaps, an undeclared
// prefix, and a document type without declarations. The Reader omits the affected part and
// calls report with the violation. A loc that is missing or not well-formed makes Next
// return an ErrLoc for its entry. Any other violation that might lose an entry stops
// reading. The document must be in UTF-8, regardless of the encoding it declares. Tolerate
// must be called before Header and Next.
func (r *Reader) Tolerate(report func(*Error)) {
	r.report = report
	r.tokens.tolerateDamage(func(e *Error) { _ = r.tolerate(e) })
}

// tolerate reports e and returns nil if the Reader tolerates violations. Otherwise it returns e.
func (r *Reader) tolerate(e *Error) error {
	if r.report == nil {
		return e
	}
	r.report(r.locate(e).(*Error))
	return nil
}

// Header returns what the document states about itself. The first call of Header or Next
// reads up to the first entry. Header may be called at any time, also repeatedly.
func (r *Reader) Header() (Header, error) {
	r.readHeader()
	if !r.headerOK {
		return Header{}, r.err
	}
	return r.header, nil
}

// Next returns the next entry, which belongs to the caller. After the last entry, if the
// document ends properly, it returns io.EOF. With an ErrLoc it also returns the entry, and
// the next call returns the entry after it. After any other error, Next returns the same
// error again, unless SkipInvalid returns true.
func (r *Reader) Next() (*Item, error) {
	it := new(Item)
	if err := r.readItem(it); err != nil {
		if errors.Is(err, ErrLoc) {
			return it, err
		}
		return nil, err
	}
	return it, nil
}

// ReadXML reads the XML document in r into memory. It accepts what a Reader accepts, and
// returns the errors of a Reader. After an invalid entry, it continues and reports the
// errors of further entries in Error.More. If all errors are about entries, it also returns
// the document, without its entries.
func ReadXML(r io.Reader, l Limits) (*Document, error) {
	m := l.newMeter(r, xmlExpansion)
	in := NewXMLReader(m, l)
	h, err := in.Header()
	if err != nil {
		return nil, err
	}
	d := &Document{Header: h}
	errs := &errorList{meter: m}
	for {
		var it Item
		err := in.readItem(&it)
		if err == nil {
			err = m.addEntry(&it.Change)
		}
		if err == nil && l.Check != nil {
			err = in.locateChecked(l.Check(&it.Change), it.Loc)
		}
		switch {
		case err == nil && len(errs.list) == 0:
			d.Items = append(d.Items, it)
		case err == nil:
		case err == io.EOF && len(errs.list) == 0:
			return d, nil
		case err == io.EOF:
			d.Items = nil
			return d, errs.result(nil)
		case !errs.add(err) || in.err != nil && !in.SkipInvalid(): // after an error of Check there is nothing to skip
			return nil, errs.result(err)
		}
	}
}

// locateChecked sets the position of an *Error about the entry that was read last.
func (r *Reader) locateChecked(err error, loc string) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.Line = r.line
	}
	return inEntry(err, r.entries, loc)
}

// SkipInvalid skips the rest of an invalid entry, so that Next continues after it. It
// returns false if the last error is not about an entry or does not wrap ErrInvalid, or if
// the end of the entry cannot be found.
func (r *Reader) SkipInvalid() bool {
	if !r.inEntry || !errors.Is(r.err, ErrInvalid) {
		return false
	}
	for len(r.tokens.open) > 1 {
		if r.tokens.broken {
			return false
		}
		_, _ = r.tokens.next()
	}
	if r.tokens.broken || len(r.tokens.open) == 0 {
		return false
	}
	r.inEntry, r.err = false, nil
	return true
}

// readItem reads the next entry into it. It returns the errors of Next.
func (r *Reader) readItem(it *Item) error {
	r.meter.entryStart = r.meter.read
	r.readHeader()
	if r.err != nil {
		return r.err
	}
	err := r.locate(r.nextEntry(it))
	if r.badLoc != "" && err == nil {
		return inEntry(&Error{Err: ErrLoc, Line: r.line, Msg: r.badLoc}, r.entries, r.loc)
	}
	r.err = err
	return err
}

// locate sets the entry of an *Error, if the Reader is in one.
func (r *Reader) locate(err error) error {
	if r.inEntry {
		return inEntry(err, r.entries, r.loc)
	}
	return err
}

// readHeader reads the header, unless reading has started.
func (r *Reader) readHeader() {
	if r.started {
		return
	}
	r.started = true
	r.err = r.locate(r.parseHeader())
	r.headerOK = r.err == nil
}

// parseHeader reads the root and everything before the first entry.
func (r *Reader) parseHeader() error {
	tok, err := r.tokens.next()
	if err != nil {
		return err
	}
	root, _ := tok.(xml.StartElement) // always the first token of a document
	if local := root.Name.Local; r.report != nil && root.Name.Space != sitemapNS && (local == "urlset" || local == "sitemapindex") {
		_ = r.tolerate(r.tokens.errorf("namespace of %s: got %s, want %s", local, quote(root.Name.Space), sitemapNS))
		space := root.Name.Space
		r.tokens.alias = &space
		root.Name.Space = sitemapNS
	}
	switch {
	case root.Name == xml.Name{Space: sitemapNS, Local: "urlset"}:
		r.entry = "url"
	case root.Name == xml.Name{Space: sitemapNS, Local: "sitemapindex"}:
		r.entry = "sitemap"
		r.header.Index = true
	default:
		return r.tokens.errorf("root element: got %s in namespace %s, want urlset or sitemapindex in %s",
			Shorten(root.Name.Local), quote(root.Name.Space), sitemapNS)
	}
	var seen bool
	for {
		el, err := r.nextChild("the document")
		if err != nil || el == nil {
			return err
		}
		switch el.Name {
		case xml.Name{Space: sitemapNS, Local: r.entry}:
			r.pending = el
			return nil
		case xml.Name{Space: rsNS, Local: "md"}:
			if seen {
				if err := r.tolerate(r.tokens.errorf("document has more than one rs:md of its own")); err != nil {
					return err
				}
				break
			}
			seen = true
			var it Item
			if err := r.parseMetadata(&it, el.Attr); err != nil {
				return err
			}
			h := &r.header
			h.Capability, h.From, h.Until, h.At, h.Completed, h.Attrs = it.Capability, it.From, it.Until, it.At, it.Completed, it.Attrs
		case xml.Name{Space: rsNS, Local: "ln"}:
			if err := r.parseLink(&r.header.Links, el.Attr); err != nil {
				return err
			}
		default:
			if err := r.checkNonEntry(el); err != nil {
				return err
			}
		}
		if err := r.skipElement(); err != nil {
			return err
		}
	}
}

// nextEntry reads up to the next entry, and that entry into it.
func (r *Reader) nextEntry(it *Item) error {
	el := r.pending
	r.pending = nil
	for el == nil {
		var err error
		if el, err = r.nextChild("the document"); err != nil {
			return err
		}
		if el == nil {
			return r.checkEnd()
		}
		if el.Name == (xml.Name{Space: sitemapNS, Local: r.entry}) {
			break
		}
		if el.Name.Space == rsNS {
			err = r.tolerate(r.tokens.errorf("rs:%s of the document must precede the first entry", Shorten(el.Name.Local)))
		} else {
			err = r.checkNonEntry(el)
		}
		if err == nil {
			err = r.skipElement()
		}
		if err != nil {
			return err
		}
		el = nil
	}
	r.entries++
	r.inEntry, r.loc, r.badLoc = true, "", ""
	if r.entries > r.limits.Entries {
		e := r.limits.tooMany(r.entries)
		e.Line = r.tokens.line
		return e
	}
	return r.parseEntry(it)
}

// checkEnd returns io.EOF if nothing follows the root.
func (r *Reader) checkEnd() error {
	_, err := r.tokens.next()
	if err == nil {
		return r.tokens.errorf("unexpected content after the root element")
	}
	return err
}

// parseEntry parses the entry whose start element was read last into it.
func (r *Reader) parseEntry(it *Item) error {
	r.line = r.tokens.line
	var loc, lastmod, changefreq, md bool
	for {
		el, err := r.nextChild(r.entry)
		if err != nil {
			return err
		}
		if el == nil {
			break
		}
		switch el.Name {
		case xml.Name{Space: sitemapNS, Local: "loc"}:
			err = r.readText("loc", &loc, &it.Loc)
			r.loc = it.Loc
			if r.report != nil && xmlrepair.IsDamaged(r.text) {
				r.badLoc = `loc is not well-formed XML: got a bare "&", an undefined entity or a forbidden character`
			}
		case xml.Name{Space: sitemapNS, Local: "lastmod"}:
			var s string
			if lastmod && r.report != nil {
				_ = r.tolerate(r.tokens.errorf("entry has more than one lastmod"))
				lastmod = false
			}
			if err = r.readText("lastmod", &lastmod, &s); err == nil {
				err = r.parseTime(&it.Lastmod, "lastmod", s)
			}
		case xml.Name{Space: sitemapNS, Local: "changefreq"}:
			err = r.readText("changefreq", &changefreq, &it.Changefreq)
		case xml.Name{Space: sitemapNS, Local: "priority"}:
			err = r.skipElement()
		case xml.Name{Space: rsNS, Local: "md"}:
			if md {
				err = r.tolerate(r.tokens.errorf("entry has more than one rs:md"))
			} else {
				err = r.parseMetadata(it, el.Attr)
			}
			md = true
			if err == nil {
				err = r.skipElement()
			}
		case xml.Name{Space: rsNS, Local: "ln"}:
			if err = r.parseLink(&it.Links, el.Attr); err == nil {
				err = r.skipElement()
			}
		case xml.Name{Space: sitemapNS, Local: r.entry}:
			r.tokens.broken = true // end tags can no longer be matched
			err = r.tokens.errorf("</%s> is missing: the entry on line %d does not end before the next <%[1]s>", r.entry, r.line)
		default:
			if err = r.checkUnexpected(el); err == nil {
				err = r.skipElement()
			}
		}
		if err != nil {
			return err
		}
	}
	if r.header.Capability == FrameworkNotification {
		it.Attrs, it.Capability = append(it.Attrs, CapabilityAttr(it.Capability)), ""
	}
	switch {
	case it.Loc != "":
	case r.report != nil:
		r.badLoc = "loc is missing"
	default:
		r.tokens.line = r.line
		return r.tokens.errorf("loc is missing")
	}
	r.inEntry = false
	return nil
}

// nextChild returns the start of the next element in the current one, or nil at the end of
// the current one. parent describes the current element, for errors.
func (r *Reader) nextChild(parent string) (*xml.StartElement, error) {
	for {
		tok, err := r.tokens.next()
		if err != nil {
			return nil, err
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			return &tok, nil
		case xml.EndElement:
			return nil, nil
		case xml.CharData:
			if !isBlank(tok) {
				if err := r.tolerate(r.tokens.errorf("unexpected text in %s, outside its elements", parent)); err != nil {
					return nil, err
				}
			}
		}
	}
}

// checkNonEntry rejects an element outside of entries that might be an entry in whatever
// namespace, even if violations are tolerated: skipping it would lose a resource. It passes
// other elements to checkUnexpected.
func (r *Reader) checkNonEntry(el *xml.StartElement) error {
	if local := strings.ToLower(el.Name.Local); el.Name.Space == sitemapNS || local == "url" || local == "sitemap" {
		return r.tokens.errorf("unexpected element %s in namespace %s; want %s in namespace %s", quote(el.Name.Local), quote(el.Name.Space), r.entry, sitemapNS)
	}
	return r.checkUnexpected(el)
}

// checkUnexpected rejects an unexpected element in a namespace of the standard. It accepts
// an element in any other namespace.
func (r *Reader) checkUnexpected(el *xml.StartElement) error {
	switch el.Name.Space {
	case sitemapNS:
		return r.tolerate(r.tokens.errorf("unexpected element %s", quote(el.Name.Local)))
	case rsNS:
		return r.tolerate(r.tokens.errorf("unknown ResourceSync element %s", quote("rs:"+el.Name.Local)))
	}
	return nil
}

// skipElement reads up to the end of the current element.
func (r *Reader) skipElement() error {
	for depth := 1; depth > 0; {
		tok, err := r.tokens.next()
		if err != nil {
			return err
		}
		switch tok := tok.(type) {
		case xml.CharData:
			r.tokens.checkDamage(tok, "an ignored element")
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		}
	}
	return nil
}

// readText reads the text of the current element, without surrounding space, into dst. It
// returns an error if *seen is set, because an entry has such an element only once.
// Otherwise it sets *seen.
func (r *Reader) readText(name string, seen *bool, dst *string) error {
	if *seen {
		return r.tokens.errorf("entry has more than one %s", name)
	}
	*seen = true
	r.text = r.text[:0]
	for {
		tok, err := r.tokens.next()
		if err != nil {
			return err
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			return r.tokens.errorf("%s: got an element, want text", name)
		case xml.EndElement:
			*dst = trim(string(r.text))
			return nil
		case xml.CharData:
			r.text = append(r.text, tok...)
		}
	}
}
