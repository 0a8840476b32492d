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

// maxAttributes is the maximum number of attributes of an element, including declarations of
// namespaces. The time to find duplicates is quadratic in this number.
const maxAttributes = 256

// maxDepth is the maximum depth of nested elements.
const maxDepth = 16

// An xmlTokenizer splits well-formed XML 1.0 with namespaces into start elements, end
// elements and text. It is based on the raw tokens of encoding/xml, because that package
// is not strict enough: it matches tags and resolves namespaces itself, and rejects
// undeclared prefixes, duplicate attributes, document types, and anything after the root.
type xmlTokenizer struct {
	in         *bufio.Reader
	dec        *xml.Decoder
	open       []openElement // open elements, outermost first
	bindings   []binding     // bindings in scope, innermost last
	raw        []rawName     // names of the attributes of the current element
	alias      *string       // namespace of elements that is treated like the sitemap namespace; nil if none
	hasRoot    bool          // whether the root has started
	hasDoctype bool          // whether a document type declaration was read
	line       int           // line on which the last token starts; 0 before the first
	broken     bool          // whether a token could not be read
	report     func(*Error)  // called with each tolerated violation; nil if none is tolerated
}

// A rawName is a qualified name before its prefix is resolved.
type rawName struct{ prefix, local string }

func (n rawName) String() string {
	if n.prefix == "" {
		return n.local
	}
	return n.prefix + ":" + n.local
}

// An openElement is an element whose end was not read yet.
type openElement struct {
	name     rawName
	line     int // line on which the element starts
	bindings int // number of bindings in scope outside the element
}

// A binding of a prefix, which is empty for the default namespace, to a namespace.
type binding struct{ prefix, uri string }

// newXMLTokenizer returns an xmlTokenizer that reads up to maxBytes from r.
func newXMLTokenizer(r io.Reader, maxBytes int64) *xmlTokenizer {
	in := bufio.NewReaderSize(newLimitReader(r, maxBytes), 32<<10)
	t := &xmlTokenizer{in: in, bindings: []binding{{"xml", xmlNS}}}
	t.dec = xml.NewDecoder(in)
	t.dec.CharsetReader = charsetReader
	return t
}

// tolerateDamage makes t repair text that is not well-formed, and tolerate other violations
// that lose no element. It calls report with each of them. It must be called before next.
func (t *xmlTokenizer) tolerateDamage(report func(*Error)) {
	t.dec = xml.NewDecoder(xmlrepair.NewReader(t.in, nil))
	t.dec.Strict = false
	t.dec.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	t.report = report
}

// checkEncoding skips a byte order mark of UTF-8, and rejects UTF-16 and UTF-32. It ignores
// a read error, because the read of the first token returns it again.
func (t *xmlTokenizer) checkEncoding() error {
	mark, _ := t.in.Peek(3)
	switch {
	case bytes.HasPrefix(mark, []byte("\xEF\xBB\xBF")):
		_, _ = t.in.Discard(3)
	case bytes.HasPrefix(mark, []byte("\xFE\xFF")), bytes.HasPrefix(mark, []byte("\xFF\xFE")), bytes.IndexByte(mark, 0) >= 0:
		return t.errorf("document encoding: got UTF-16 or UTF-32, want UTF-8")
	}
	return nil
}

// charsetReader is called for a document that declares an encoding other than UTF-8. It
// accepts only US-ASCII, which is a subset of UTF-8.
func charsetReader(name string, r io.Reader) (io.Reader, error) {
	switch strings.ToLower(name) {
	case "us-ascii", "ascii":
		return r, nil
	}
	return nil, &Error{Err: ErrInvalid, Msg: "document encoding: got " + quote(name) + ", want UTF-8"}
}

// next returns the next xml.StartElement, xml.EndElement or xml.CharData. The names of a
// start element are resolved to namespaces, and its declarations of namespaces are omitted.
// CharData is valid until the next call. At the end of the document, next returns io.EOF.
func (t *xmlTokenizer) next() (xml.Token, error) {
	tok, err := t.readToken()
	t.broken = t.broken || err != nil
	return tok, err
}

// readToken is next without the record of failures.
func (t *xmlTokenizer) readToken() (xml.Token, error) {
	if t.line == 0 {
		t.line = 1
		if err := t.checkEncoding(); err != nil {
			return nil, err
		}
	}
	for {
		t.line, _ = t.dec.InputPos()
		start := t.dec.InputOffset()
		tok, err := t.dec.RawToken()
		if err != nil {
			return nil, t.wrapError(err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			return t.startElement(tok)
		case xml.EndElement:
			return tok, t.endElement(rawName{tok.Name.Space, tok.Name.Local})
		case xml.CharData:
			if len(t.open) > 0 {
				return tok, nil
			}
			if !isBlank(tok) {
				return nil, t.errorf("unexpected text outside the root element; want an XML document")
			}
		case xml.Comment:
			if !utf8.Valid(tok) {
				return nil, t.errorf("comment is not valid UTF-8")
			}
			t.checkDamage(tok, "a comment")
		case xml.ProcInst:
			if strings.EqualFold(tok.Target, "xml") && start > 0 {
				return nil, t.errorf("XML declaration is not at the start of the document")
			}
		case xml.Directive:
			if err := t.checkDoctype(tok); err != nil {
				return nil, err
			}
		}
	}
}

// checkDoctype rejects a declaration. If violations are tolerated, it accepts a document type
// without declarations of its own, at most once and before the root.
func (t *xmlTokenizer) checkDoctype(text []byte) error {
	if fields := bytes.Fields(text); len(fields) > 1 && bytes.EqualFold(fields[0], []byte("DOCTYPE")) && bytes.EqualFold(fields[1], []byte("html")) {
		return t.errorf(webPage)
	}
	if t.report == nil {
		return t.errorf("document type declaration (<!DOCTYPE) is not allowed")
	}
	if msg := xmlrepair.DeclarationRule(text, !t.hasRoot && !t.hasDoctype); msg != "" {
		return t.errorf("%s", msg)
	}
	t.hasDoctype = true
	return nil
}

// webPage is the message for an HTML page in place of a document.
const webPage = "this is a web page (HTML)"

// checkDamage reports text that is not well-formed, if violations are tolerated. owner is
// what has the text.
func (t *xmlTokenizer) checkDamage(text []byte, owner string) {
	if t.report != nil && xmlrepair.IsDamaged(text) {
		t.report(t.errorf("text of %s is not well-formed XML", owner))
	}
}

// startElement opens an element, binds the prefixes that it declares, and resolves its
// names.
func (t *xmlTokenizer) startElement(el xml.StartElement) (xml.Token, error) {
	if len(t.open) == 0 && t.hasRoot {
		return nil, t.errorf("unexpected element after the root element")
	}
	t.hasRoot = true
	if len(t.open) >= maxDepth {
		return nil, &Error{Err: ErrTooLarge, Line: t.line, Msg: fmt.Sprintf("document nested too deeply; want at most %d levels", maxDepth)}
	}
	if len(el.Attr) > maxAttributes {
		return nil, t.errorf("element: got %d attributes, want at most %d", len(el.Attr), maxAttributes)
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
		damaged := t.report != nil && xmlrepair.IsDamaged([]byte(a.Value))
		raw := rawName{a.Name.Space, a.Name.Local}
		switch {
		case declares && damaged:
			return nil, t.errorf("namespace of prefix %s is not well-formed XML", quote(prefix))
		case declares:
			if err := t.bindPrefix(prefix, a.Value); err != nil {
				return nil, err
			}
		case damaged && name.local == "md" && (raw.local == "capability" || raw.local == "change"): // the kind of document, or a deletion, would be lost
			return nil, t.errorf("attribute %s of %s is not well-formed XML", quote(raw.String()), quote(name.String()))
		case damaged:
			t.checkDamage([]byte(a.Value), fmt.Sprintf("attribute %s of %s", quote(raw.String()), quote(name.String())))
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
			e := t.errorf("duplicate attribute %s of %s", quote(t.raw[i].String()), quote(name.String()))
			if t.report == nil || el.Name.Space == sitemapNS || el.Name.Space == rsNS {
				return nil, e
			}
			t.report(e)
			break
		}
	}
	el.Attr = attrs
	return el, nil
}

// bindPrefix adds a declaration of the current element to the bindings.
func (t *xmlTokenizer) bindPrefix(prefix, uri string) error {
	for _, b := range t.bindings[t.open[len(t.open)-1].bindings:] {
		if b.prefix == prefix {
			return t.errorf("namespace prefix %s is declared twice on one element", quote(prefix))
		}
	}
	switch {
	case prefix == "xml" && uri == xmlNS:
		return nil
	case prefix == "xml" || prefix == "xmlns" || uri == xmlNS || uri == xmlnsNS:
		return t.errorf("prefixes xml and xmlns and their namespaces must not be redeclared")
	case prefix != "" && uri == "":
		return t.errorf("namespace of prefix %s is empty", quote(prefix))
	case strings.Contains(prefix, ":"):
		return t.errorf("invalid namespace prefix %s", quote(prefix))
	}
	t.bindings = append(t.bindings, binding{prefix, uri})
	return nil
}

// resolve returns the namespace of a name. An attribute without a prefix has no namespace,
// because the default namespace applies to elements only.
func (t *xmlTokenizer) resolve(n rawName, element bool) (string, error) {
	if strings.Contains(n.local, ":") {
		return "", t.errorf("invalid qualified name %s", quote(n.String()))
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
	e := t.errorf("namespace prefix %s is not declared", quote(n.prefix))
	if t.report == nil || element && (n.prefix == "rs" || n.local == "md" || n.local == "ln") { // the kind of document, or a deletion, might be lost
		return "", e
	}
	t.report(e)
	return undeclaredNS, nil
}

// endElement closes the innermost open element, which must have the given name.
func (t *xmlTokenizer) endElement(name rawName) error {
	last := len(t.open) - 1
	if last < 0 {
		return t.errorf("unexpected end tag </%s>", Shorten(name.String()))
	}
	if open := t.open[last]; open.name != name {
		return t.errorf("</%s> is missing: <%[1]s> on line %d is not closed before </%s>", Shorten(open.name.String()), open.line, Shorten(name.String()))
	}
	t.bindings = t.bindings[:t.open[last].bindings]
	t.open = t.open[:last]
	return nil
}

// errorf returns an *Error that wraps ErrInvalid, on the line of the current token.
func (t *xmlTokenizer) errorf(format string, args ...any) *Error {
	return &Error{Err: ErrInvalid, Line: t.line, Msg: fmt.Sprintf(format, args...)}
}

// wrapError converts an error of the decoder to an *Error. It wraps an error of the reader
// that the document comes from, and returns io.EOF after the root.
func (t *xmlTokenizer) wrapError(err error) error {
	var own *Error
	var syntax *xml.SyntaxError
	switch {
	case errors.As(err, &own):
		own.Line = t.line
		return own
	case err == io.EOF && !t.hasRoot:
		return t.errorf("document is empty")
	case err == io.EOF && len(t.open) == 0:
		return io.EOF
	case err == io.EOF:
		open := t.open[len(t.open)-1]
		return t.errorf("document ends early: </%s> is missing for <%[1]s> on line %d", Shorten(open.name.String()), open.line)
	case errors.As(err, &syntax):
		t.line = syntax.Line
		if syntax.Msg == "unexpected EOF" {
			return t.errorf("document ends early")
		}
		if entity, ok := strings.CutPrefix(syntax.Msg, "invalid character entity "); ok {
			return t.errorf("unknown entity %s, want one that XML predefines or a character reference", quote(entity))
		}
		return t.errorf("not well-formed XML: %s", Shorten(syntax.Msg))
	case strings.HasPrefix(err.Error(), "xml: "):
		return t.errorf("not well-formed XML: %s", Shorten(strings.TrimPrefix(err.Error(), "xml: ")))
	}
	return fmt.Errorf("read document: %w", err)
}
