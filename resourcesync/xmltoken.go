package resourcesync

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/rshub/rshub/internal/xmlrepair"
)

// maxAttributes is how many attributes an element of the input may have, with the
// declarations of namespaces. The time to look for duplicates grows with the square of
// this number.
const maxAttributes = 256

// maxDepth is how deep elements may be nested.
const maxDepth = 16

// xmlTokens reads well-formed XML 1.0 with namespaces as start elements, end elements
// and text. It uses the raw tokens of encoding/xml, because that package is not strict
// enough. xmlTokens itself matches tags and resolves namespaces. It refuses prefixes
// that are not declared, duplicate attributes, document types, and anything after the
// root.
type xmlTokens struct {
	in       *bufio.Reader
	dec      *xml.Decoder
	open     []openElement
	bindings []binding
	raw      []rawName    // the names of the current element's attributes
	alias    *string      // a namespace of elements that is read as that of sitemaps, if not nil
	started  bool         // the root has begun
	typed    bool         // there was a document type declaration
	line     int          // where the last token begins; 0 before the first
	broken   bool         // a token could not be read
	odd      func(*Error) // called with mistakes that are ignored; nil if none are
}

type rawName struct{ prefix, local string }

func (n rawName) String() string {
	if n.prefix == "" {
		return n.local
	}
	return n.prefix + ":" + n.local
}

type openElement struct {
	name     rawName
	line     int // where it begins
	bindings int // how many bindings were in force outside the element
}

type binding struct{ prefix, uri string }

func newXMLTokens(r io.Reader, maxBytes int64) *xmlTokens {
	in := bufio.NewReaderSize(newLimitReader(r, maxBytes), 32<<10)
	t := &xmlTokens{in: in, bindings: []binding{{"xml", xmlNS}}}
	t.dec = xml.NewDecoder(in)
	t.dec.CharsetReader = charset
	return t
}

// tolerate ignores text that is not well-formed, and calls odd with it.
func (t *xmlTokens) tolerate(odd func(*Error)) {
	t.dec = xml.NewDecoder(xmlrepair.NewReader(t.in, nil))
	t.dec.Strict = false
	t.dec.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	t.odd = odd
}

// encoding skips a byte order mark of UTF-8, and refuses UTF-16 and UTF-32. It ignores
// an error of reading: the read of the first token returns that error again.
func (t *xmlTokens) encoding() error {
	mark, _ := t.in.Peek(3)
	switch {
	case bytes.HasPrefix(mark, []byte("\xEF\xBB\xBF")):
		_, _ = t.in.Discard(3)
	case bytes.HasPrefix(mark, []byte("\xFE\xFF")), bytes.HasPrefix(mark, []byte("\xFF\xFE")), bytes.IndexByte(mark, 0) >= 0:
		return t.fail("the document must be UTF-8, not UTF-16 or UTF-32")
	}
	return nil
}

// charset is called when a document declares an encoding other than UTF-8. It accepts
// only US-ASCII, which is a part of UTF-8.
func charset(name string, r io.Reader) (io.Reader, error) {
	switch strings.ToLower(name) {
	case "us-ascii", "ascii":
		return r, nil
	}
	return nil, &Error{Err: ErrInvalid, Msg: "the document must be UTF-8; its declaration says " + quote(name)}
}

// next returns an xml.StartElement, an xml.EndElement, or xml.CharData. In a start
// element the names have their namespaces, and the declarations of namespaces are left
// out. CharData is valid until the next call. At the end of the document next returns
// io.EOF.
func (t *xmlTokens) next() (xml.Token, error) {
	tok, err := t.read()
	t.broken = t.broken || err != nil
	return tok, err
}

func (t *xmlTokens) read() (xml.Token, error) {
	if t.line == 0 {
		t.line = 1
		if err := t.encoding(); err != nil {
			return nil, err
		}
	}
	for {
		t.line, _ = t.dec.InputPos()
		start := t.dec.InputOffset()
		tok, err := t.dec.RawToken()
		if err != nil {
			return nil, t.wrap(err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			return t.start(tok)
		case xml.EndElement:
			return tok, t.end(rawName{tok.Name.Space, tok.Name.Local})
		case xml.CharData:
			if len(t.open) > 0 {
				return tok, nil
			}
			if !blank(tok) {
				return nil, t.fail("text stands outside of the root element; that is no XML document")
			}
		case xml.Comment:
			if !utf8.Valid(tok) {
				return nil, t.fail("a comment is not valid UTF-8")
			}
			t.checkDamage(tok, "a comment")
		case xml.ProcInst:
			if strings.EqualFold(tok.Target, "xml") && start > 0 {
				return nil, t.fail("the XML declaration stands at the very beginning")
			}
		case xml.Directive:
			if err := t.documentType(tok); err != nil {
				return nil, err
			}
		}
	}
}

// documentType refuses a declaration, unless mistakes are ignored and it is a document type
// without declarations of its own.
func (t *xmlTokens) documentType(text []byte) error {
	if fields := bytes.Fields(text); len(fields) > 1 && bytes.EqualFold(fields[0], []byte("DOCTYPE")) && bytes.EqualFold(fields[1], []byte("html")) {
		return t.fail(webPage)
	}
	if t.odd == nil {
		return t.fail("a document type declaration (<!DOCTYPE) is not allowed")
	}
	if rule := xmlrepair.DeclarationRule(text, !t.started && !t.typed); rule != "" {
		return t.fail("%s", rule)
	}
	t.typed = true
	return nil
}

// webPage is the rule that an HTML page in place of a document breaks.
const webPage = "this is a web page (HTML)"

// checkDamage calls odd if a text is not well-formed; name says what has it.
func (t *xmlTokens) checkDamage(text []byte, name string) {
	if t.odd != nil && xmlrepair.IsDamaged(text) {
		t.odd(t.fail("%s has text that is not well-formed XML", name))
	}
}

func (t *xmlTokens) start(el xml.StartElement) (xml.Token, error) {
	if len(t.open) == 0 && t.started {
		return nil, t.fail("an element stands after the root element")
	}
	t.started = true
	if len(t.open) >= maxDepth {
		return nil, &Error{Err: ErrTooLarge, Line: t.line, Msg: fmt.Sprintf("a document nests at most %d levels", maxDepth)}
	}
	if len(el.Attr) > maxAttributes {
		return nil, t.fail("an element has at most %d attributes", maxAttributes)
	}
	name := rawName{el.Name.Space, el.Name.Local}
	t.open = append(t.open, openElement{name, t.line, len(t.bindings)})

	attrs := el.Attr[:0]
	t.raw = t.raw[:0]
	for _, a := range el.Attr {
		prefix, declares := "", false
		switch {
		case a.Name.Space == "xmlns":
			prefix, declares = a.Name.Local, true
		case a.Name.Space == "" && a.Name.Local == "xmlns":
			declares = true
		}
		damaged := t.odd != nil && xmlrepair.IsDamaged([]byte(a.Value))
		raw := rawName{a.Name.Space, a.Name.Local}
		switch {
		case declares && damaged:
			return nil, t.fail("the namespace of prefix %s is not well-formed XML", quote(prefix))
		case declares:
			if err := t.bind(prefix, a.Value); err != nil {
				return nil, err
			}
		case damaged && name.local == "md" && (raw.local == "capability" || raw.local == "change"): // it says what the document is, or that a resource is deleted
			return nil, t.fail("attribute %s of %s is not well-formed XML", quote(raw.String()), quote(name.String()))
		case damaged:
			t.checkDamage([]byte(a.Value), fmt.Sprintf("an attribute, %s of %s,", quote(raw.String()), quote(name.String())))
		default:
			attrs = append(attrs, a)
			t.raw = append(t.raw, raw)
		}
	}
	var err error
	if el.Name.Space, err = t.resolve(name, true); err != nil {
		return nil, err
	}
	if t.alias != nil && el.Name.Space == *t.alias {
		el.Name.Space = sitemapNS
	}
	for i := range attrs {
		if attrs[i].Name.Space, err = t.resolve(t.raw[i], false); err != nil {
			return nil, err
		}
		for j := range i {
			if attrs[j].Name != attrs[i].Name {
				continue
			}
			e := t.fail("attribute %s of %s is there twice", quote(t.raw[i].String()), quote(name.String()))
			if t.odd == nil || el.Name.Space == sitemapNS || el.Name.Space == rsNS {
				return nil, e
			}
			t.odd(e)
			break
		}
	}
	el.Attr = attrs
	return el, nil
}

// bind puts a declaration of the current element in force.
func (t *xmlTokens) bind(prefix, uri string) error {
	for _, b := range t.bindings[t.open[len(t.open)-1].bindings:] {
		if b.prefix == prefix {
			return t.fail("the namespace prefix %s is declared twice on one element", quote(prefix))
		}
	}
	switch {
	case prefix == "xml" && uri == xmlNS:
		return nil
	case prefix == "xml" || prefix == "xmlns" || uri == xmlNS || uri == xmlnsNS:
		return t.fail("the prefixes xml and xmlns and their namespaces cannot be declared anew")
	case prefix != "" && uri == "":
		return t.fail("the namespace of prefix %s is empty", quote(prefix))
	case strings.Contains(prefix, ":"):
		return t.fail("%s is not a namespace prefix", quote(prefix))
	}
	t.bindings = append(t.bindings, binding{prefix, uri})
	return nil
}

// resolve returns the namespace of a name. An attribute without a prefix has no
// namespace: the default namespace is for elements only.
func (t *xmlTokens) resolve(n rawName, element bool) (string, error) {
	if strings.Contains(n.local, ":") {
		return "", t.fail("%s is not a name with a namespace prefix", quote(n.String()))
	}
	if n.prefix == "" && !element {
		return "", nil
	}
	for i := len(t.bindings) - 1; i >= 0; i-- {
		if t.bindings[i].prefix == n.prefix {
			return t.bindings[i].uri, nil
		}
	}
	if n.prefix == "" {
		return "", nil
	}
	e := t.fail("the namespace prefix %s is not declared", quote(n.prefix))
	if t.odd == nil || element && (n.prefix == "rs" || n.local == "md" || n.local == "ln") { // it may say what the document is, or that a resource is deleted
		return "", e
	}
	t.odd(e)
	return undeclaredNS, nil
}

func (t *xmlTokens) end(name rawName) error {
	last := len(t.open) - 1
	if last < 0 {
		return t.fail("the end tag </%s> closes no element", Shorten(name.String()))
	}
	if open := t.open[last]; open.name != name {
		return t.fail("</%s> is missing: <%[1]s> of line %d has no end before </%s>", Shorten(open.name.String()), open.line, Shorten(name.String()))
	}
	t.bindings = t.bindings[:t.open[last].bindings]
	t.open = t.open[:last]
	return nil
}

// fail returns the error for a broken rule at the current token.
func (t *xmlTokens) fail(format string, args ...any) *Error {
	return &Error{Err: ErrInvalid, Line: t.line, Msg: fmt.Sprintf(format, args...)}
}

// wrap makes an *Error of an error of the decoder. It wraps an error of the reader
// that the document comes from.
func (t *xmlTokens) wrap(err error) error {
	var own *Error
	var syntax *xml.SyntaxError
	switch {
	case errors.As(err, &own):
		own.Line = t.line
		return own
	case err == io.EOF && !t.started:
		return t.fail("the document is empty")
	case err == io.EOF && len(t.open) == 0:
		return io.EOF
	case err == io.EOF:
		open := t.open[len(t.open)-1]
		return t.fail("the document ends early: </%s> is missing, for <%[1]s> of line %d", Shorten(open.name.String()), open.line)
	case errors.As(err, &syntax):
		t.line = syntax.Line
		if syntax.Msg == "unexpected EOF" {
			return t.fail("the document ends early")
		}
		if entity, ok := strings.CutPrefix(syntax.Msg, "invalid character entity "); ok {
			return t.fail("unknown entity %s: a document has those of XML and character references only", Shorten(entity))
		}
		return t.fail("not well-formed XML: %s", Shorten(syntax.Msg))
	case strings.HasPrefix(err.Error(), "xml: "):
		return t.fail("not well-formed XML: %s", Shorten(strings.TrimPrefix(err.Error(), "xml: ")))
	}
	return fmt.Errorf("read document: %w", err)
}
