package resourcesync

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"

	"github.com/rshub/rshub/internal/xmlrepair"
)

// A Reader reads an XML document one entry at a time, in bounded memory. It accepts
// the documents of core section 7 and of its schema, in every version since 0.8. It
// ignores elements of other namespaces, but for one that may be an entry. It checks that values
// can be read, that every entry has a loc, and that every link has a rel and an href.
// Change.Validate checks whether the values make sense. Only one goroutine may use a Reader at a
// time.
//
// An error is an *Error, with the line, and with the entry if it is about one; or it
// wraps the error of the reader that the document comes from.
type Reader struct {
	in      *xmlTokens
	room    *room // bounds the text of one entry: the decoder holds it, also blanks
	limits  Limits
	header  Header
	entry   string            // name of the element of an entry: url or sitemap
	begun   bool              // reading has begun
	headed  bool              // the header was read without an error
	pending *xml.StartElement // the first entry, which ended the header
	entries int               // how many entries have begun
	inEntry bool              // the reader is within an entry
	line    int               // where the entry begins
	loc     string            // the loc of this entry, as far as it was read
	badLoc  string            // why the loc of this entry cannot be read; empty if it can or if mistakes end the reading
	text    []byte            // buffer of textElement
	odd     func(*Error)      // is told of mistakes that are passed over; nil: they end the reading
	err     error             // the error that ended the reading, if any
}

// NewXMLReader returns a Reader of the XML document in r. It reads nothing
// until Header or Next.
func NewXMLReader(r io.Reader, l Limits) *Reader {
	l = l.withDefaults()
	m := &room{r: r}
	return &Reader{in: newXMLTokens(m, l.Bytes), room: m, limits: l}
}

// Tolerate lets the Reader ignore mistakes of real documents that lose no entry: text of
// other elements that is not well-formed, an element, an attribute or text in the wrong
// place, a value that cannot be read, another namespace for sitemaps, a prefix that is not
// declared, a document type without declarations. It omits what is wrong, and calls odd with
// the mistake. A loc that is missing or not well-formed is an ErrLoc of its entry. Any other mistake that
// may lose an entry ends the reading. The document must be in UTF-8, whatever encoding it
// declares. Tolerate must be called before Header and Next.
func (r *Reader) Tolerate(odd func(*Error)) {
	r.odd = odd
	r.in.tolerate(func(e *Error) { _ = r.mistake(e) })
}

// mistake returns e, or nil when e is passed over.
func (r *Reader) mistake(e *Error) error {
	if r.odd == nil {
		return e
	}
	r.odd(r.locate(e).(*Error))
	return nil
}

// Header returns what the document says of itself. The first call of Header or Next
// reads up to the first entry. Header may be called again at any time.
func (r *Reader) Header() (Header, error) {
	r.begin()
	if !r.headed {
		return Header{}, r.err
	}
	return r.header, nil
}

// Next returns the next entry, which belongs to the caller. After the last entry, if
// the document ends properly, it returns io.EOF. With an ErrLoc it also returns the entry,
// and the next call returns the entry after it. After any other error, Next returns the same
// error again and again.
func (r *Reader) Next() (*Item, error) {
	it := new(Item)
	if err := r.read(it); err != nil {
		if errors.Is(err, ErrLoc) {
			return it, err
		}
		return nil, err
	}
	return it, nil
}

// ReadXML reads the XML document in r into memory. It accepts what a Reader accepts,
// and returns the errors of a Reader. After an entry that is wrong it goes on, and reports
// the other ones that are wrong in Error.More. If nothing but entries is wrong, it also
// returns the document, without entries.
func ReadXML(r io.Reader, l Limits) (*Document, error) {
	m := l.room(r, xmlBlowUp)
	in := NewXMLReader(m, l)
	h, err := in.Header()
	if err != nil {
		return nil, err
	}
	d := &Document{Header: h}
	wrong := &mistakes{room: m}
	for {
		var it Item
		err := in.read(&it)
		if err == nil {
			err = m.add(&it.Change)
		}
		if err == nil && l.Check != nil {
			err = in.place(l.Check(&it.Change), it.Loc)
		}
		switch {
		case err == nil && len(wrong.all) == 0:
			d.Items = append(d.Items, it)
		case err == nil:
		case err == io.EOF && len(wrong.all) == 0:
			return d, nil
		case err == io.EOF:
			d.Items = nil
			return d, wrong.end(nil)
		case !wrong.add(err) || in.err != nil && !in.SkipInvalid(): // the entry that Check refuses was read
			return nil, wrong.end(err)
		}
	}
}

// place adds to an *Error of an entry that was read which one it is.
func (r *Reader) place(err error, loc string) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.Line = r.line
	}
	return inEntry(err, r.entries, loc)
}

// SkipInvalid lets Next go on behind an entry that is wrong. It reports false if there is no such
// entry, or if it cannot find the end of it.
func (r *Reader) SkipInvalid() bool {
	if !r.inEntry || !errors.Is(r.err, ErrInvalid) {
		return false
	}
	for len(r.in.open) > 1 {
		if r.in.broken {
			return false
		}
		_, _ = r.in.next()
	}
	if r.in.broken || len(r.in.open) == 0 {
		return false
	}
	r.inEntry, r.err = false, nil
	return true
}

func (r *Reader) read(it *Item) error {
	r.room.begun = r.room.read
	r.begin()
	if r.err != nil {
		return r.err
	}
	err := r.locate(r.next(it))
	if r.badLoc != "" && err == nil {
		return inEntry(&Error{Err: ErrLoc, Line: r.line, Msg: r.badLoc}, r.entries, r.loc)
	}
	r.err = err
	return err
}

// locate adds to an *Error which entry it is about.
func (r *Reader) locate(err error) error {
	if r.inEntry {
		return inEntry(err, r.entries, r.loc)
	}
	return err
}

func (r *Reader) begin() {
	if r.begun {
		return
	}
	r.begun = true
	r.err = r.locate(r.top())
	r.headed = r.err == nil
}

// top reads the root and everything before the first entry.
func (r *Reader) top() error {
	tok, err := r.in.next()
	if err != nil {
		return err
	}
	root, _ := tok.(xml.StartElement) // the first token of a document is always one
	if local := root.Name.Local; r.odd != nil && root.Name.Space != sitemapNS && (local == "urlset" || local == "sitemapindex") {
		_ = r.mistake(r.in.fail("the namespace of %s is %s, not %s", local, sitemapNS, quote(root.Name.Space)))
		space := root.Name.Space
		r.in.alias = &space
		root.Name.Space = sitemapNS
	}
	switch {
	case root.Name == xml.Name{Space: sitemapNS, Local: "urlset"}:
		r.entry = "url"
	case root.Name == xml.Name{Space: sitemapNS, Local: "sitemapindex"}:
		r.entry = "sitemap"
		r.header.Index = true
	default:
		return r.in.fail("the root element is urlset or sitemapindex in the namespace %s, not %s in %s",
			sitemapNS, Shorten(root.Name.Local), quote(root.Name.Space))
	}
	var seen bool
	for {
		el, err := r.child("the document")
		if err != nil || el == nil {
			return err
		}
		switch el.Name {
		case xml.Name{Space: sitemapNS, Local: r.entry}:
			r.pending = el
			return nil
		case xml.Name{Space: rsNS, Local: "md"}:
			if seen {
				if err := r.mistake(r.in.fail("a document has one rs:md of its own")); err != nil {
					return err
				}
				break
			}
			seen = true
			var it Item
			if err := r.metadata(&it, el.Attr); err != nil {
				return err
			}
			h := &r.header
			h.Capability, h.From, h.Until, h.At, h.Completed, h.Attrs = it.Capability, it.From, it.Until, it.At, it.Completed, it.Attrs
		case xml.Name{Space: rsNS, Local: "ln"}:
			if err := r.link(&r.header.Links, el.Attr); err != nil {
				return err
			}
		default:
			if err := r.besideEntries(el); err != nil {
				return err
			}
		}
		if err := r.skip(); err != nil {
			return err
		}
	}
}

// next reads the next entry into it.
func (r *Reader) next(it *Item) error {
	el := r.pending
	r.pending = nil
	for el == nil {
		var err error
		if el, err = r.child("the document"); err != nil {
			return err
		}
		if el == nil {
			return r.finish()
		}
		if el.Name == (xml.Name{Space: sitemapNS, Local: r.entry}) {
			break
		}
		if el.Name.Space == rsNS {
			err = r.mistake(r.in.fail("rs:%s of the document stands before the first entry", Shorten(el.Name.Local)))
		} else {
			err = r.besideEntries(el)
		}
		if err == nil {
			err = r.skip()
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
		e.Line = r.in.line
		return e
	}
	return r.readEntry(it)
}

// finish checks that nothing follows the root. It returns io.EOF if so.
func (r *Reader) finish() error {
	_, err := r.in.next()
	if err == nil {
		return r.in.fail("something follows the root element")
	}
	return err
}

func (r *Reader) readEntry(it *Item) error {
	r.line = r.in.line
	var loc, lastmod, changefreq, md bool
	for {
		el, err := r.child(r.entry)
		if err != nil {
			return err
		}
		if el == nil {
			break
		}
		switch el.Name {
		case xml.Name{Space: sitemapNS, Local: "loc"}:
			err = r.textElement("loc", &loc, &it.Loc)
			r.loc = it.Loc
			if r.odd != nil && xmlrepair.IsDamaged(r.text) {
				r.badLoc = `loc is not well-formed XML: it has a bare "&", an undefined entity or a forbidden character`
			}
		case xml.Name{Space: sitemapNS, Local: "lastmod"}:
			var s string
			if lastmod && r.odd != nil {
				_ = r.mistake(r.in.fail("an entry has one lastmod"))
				lastmod = false
			}
			if err = r.textElement("lastmod", &lastmod, &s); err == nil {
				err = r.time(&it.Lastmod, "lastmod", s)
			}
		case xml.Name{Space: sitemapNS, Local: "changefreq"}:
			err = r.textElement("changefreq", &changefreq, &it.Changefreq)
		case xml.Name{Space: sitemapNS, Local: "priority"}:
			err = r.skip()
		case xml.Name{Space: rsNS, Local: "md"}:
			if md {
				err = r.mistake(r.in.fail("an entry has one rs:md"))
			} else {
				err = r.metadata(it, el.Attr)
			}
			md = true
			if err == nil {
				err = r.skip()
			}
		case xml.Name{Space: rsNS, Local: "ln"}:
			if err = r.link(&it.Links, el.Attr); err == nil {
				err = r.skip()
			}
		case xml.Name{Space: sitemapNS, Local: r.entry}:
			r.in.broken = true // the end tags cannot be matched any more
			err = r.in.fail("</%s> is missing: the entry that begins in line %d has no end before the next <%[1]s>", r.entry, r.line)
		default:
			if err = r.unknown(el); err == nil {
				err = r.skip()
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
	case r.odd != nil:
		r.badLoc = "loc is missing"
	default:
		r.in.line = r.line
		return r.in.fail("loc is missing")
	}
	r.inEntry = false
	return nil
}

// child returns the next element within the current one, or nil at the end of the
// current one. of names the current element, for errors.
func (r *Reader) child(of string) (*xml.StartElement, error) {
	for {
		tok, err := r.in.next()
		if err != nil {
			return nil, err
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			return &tok, nil
		case xml.EndElement:
			return nil, nil
		case xml.CharData:
			if !blank(tok) {
				if err := r.mistake(r.in.fail("text stands in %s, outside of its elements", of)); err != nil {
					return nil, err
				}
			}
		}
	}
}

// besideEntries refuses an element of the document that may be an entry, whatever its
// namespace, and also when mistakes are passed over: to skip it would lose a resource. It
// handles other elements as unknown does.
func (r *Reader) besideEntries(el *xml.StartElement) error {
	if local := strings.ToLower(el.Name.Local); el.Name.Space == sitemapNS || local == "url" || local == "sitemap" {
		return r.in.fail("the element %s has no place here, in the namespace %s: an entry is a %s in %s", quote(el.Name.Local), quote(el.Name.Space), r.entry, sitemapNS)
	}
	return r.unknown(el)
}

// unknown refuses an unexpected element in a namespace of the standard. It accepts an
// element in any other namespace.
func (r *Reader) unknown(el *xml.StartElement) error {
	switch el.Name.Space {
	case sitemapNS:
		return r.mistake(r.in.fail("the element %s has no place here", quote(el.Name.Local)))
	case rsNS:
		return r.mistake(r.in.fail("ResourceSync has no element %s", quote("rs:"+el.Name.Local)))
	}
	return nil
}

// skip reads up to the end of the current element.
func (r *Reader) skip() error {
	for depth := 1; depth > 0; {
		tok, err := r.in.next()
		if err != nil {
			return err
		}
		switch tok := tok.(type) {
		case xml.CharData:
			r.in.checkDamage(tok, "an element that is not read")
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		}
	}
	return nil
}

// textElement reads the text of the current element. An entry may have such an element
// only once, so seen must be false, and is then set.
func (r *Reader) textElement(name string, seen *bool, dst *string) error {
	if *seen {
		return r.in.fail("an entry has one %s", name)
	}
	*seen = true
	r.text = r.text[:0]
	for {
		tok, err := r.in.next()
		if err != nil {
			return err
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			return r.in.fail("%s holds text only", name)
		case xml.EndElement:
			*dst = trim(string(r.text))
			return nil
		case xml.CharData:
			r.text = append(r.text, tok...)
		}
	}
}
