package resourcesync

import (
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/rshub/rshub/internal/xmlrepair"
)

// AppendXMLHeader appends everything before the first entry to dst and returns the extended
// buffer: the XML declaration, the start of the root with its namespaces, rs:ln and rs:md.
// The root is sitemapindex if h.Index is set, and urlset otherwise. ns may be nil.
func AppendXMLHeader(dst []byte, h *Header, ns *Namespaces) []byte {
	dst = append(dst, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"...)
	if h.Index {
		dst = append(dst, "<sitemapindex"...)
	} else {
		dst = append(dst, "<urlset"...)
	}
	dst = append(dst, ` xmlns="`+sitemapNS+`" xmlns:rs="`+rsNS+`"`...)
	dst = ns.appendDeclarations(dst)
	dst = append(dst, ">\n"...)
	for i := range h.Links {
		dst = append(dst, "  "...)
		dst = appendXMLLink(dst, &h.Links[i], ns)
		dst = append(dst, '\n')
	}
	start := len(dst)
	dst = append(dst, "  <rs:md"...)
	empty := len(dst)
	dst = appendAttr(dst, ` capability="`, h.Capability)
	dst = ns.appendTimes(dst, h.At, h.Completed, h.From, h.Until)
	dst = appendForeign(dst, h.Attrs, ns)
	if len(dst) == empty {
		return dst[:start]
	}
	return append(dst, "/>\n"...)
}

// AppendXMLFooter appends the end of the root to dst and returns the extended buffer. h is the
// Header that was passed to AppendXMLHeader.
func AppendXMLFooter(dst []byte, h *Header) []byte {
	if h.Index {
		return append(dst, "</sitemapindex>\n"...)
	}
	return append(dst, "</urlset>\n"...)
}

// AppendXMLItem appends an entry and a line feed to dst and returns the extended buffer. Its
// parts are in the order of the schema: loc, lastmod, changefreq, rs:md, rs:ln. If ns.Index is set,
// the entry is a sitemap element and has no changefreq; otherwise it is a url element. ns
// may be nil. A namespace that ns does not declare is declared on the element that needs
// it.
//
// The text is well-formed unless it has a duplicate attribute. A character that XML cannot
// represent becomes U+FFFD, and an attribute that XML cannot represent is omitted. Validate
// rejects all three.
func AppendXMLItem(dst []byte, it *Item, ns *Namespaces) []byte {
	index := ns != nil && ns.Index
	if index {
		dst = append(dst, "  <sitemap><loc>"...)
	} else {
		dst = append(dst, "  <url><loc>"...)
	}
	dst = AppendXMLText(dst, it.Loc)
	dst = append(dst, "</loc>"...)
	if !it.Lastmod.IsZero() {
		dst = append(dst, "<lastmod>"...)
		dst = AppendTime(dst, it.Lastmod)
		dst = append(dst, "</lastmod>"...)
	}
	if it.Changefreq != "" && !index {
		dst = append(dst, "<changefreq>"...)
		dst = AppendXMLText(dst, it.Changefreq)
		dst = append(dst, "</changefreq>"...)
	}
	dst = AppendXMLDetails(dst, it, ns)
	if index {
		return append(dst, "</sitemap>\n"...)
	}
	return append(dst, "</url>\n"...)
}

// AppendXMLDetails appends the parts of an entry that this standard defines, so that documents
// of another standard can have them as well: rs:md, unless it would have no attributes, and
// each rs:ln. The document must bind the prefix rs. It returns the extended buffer.
func AppendXMLDetails(dst []byte, it *Item, ns *Namespaces) []byte {
	dst = appendXMLMetadata(dst, it, ns)
	for i := range it.Links {
		dst = appendXMLLink(dst, &it.Links[i], ns)
	}
	return dst
}

// appendXMLMetadata appends the rs:md of it, unless it would have no attributes.
func appendXMLMetadata(dst []byte, it *Item, ns *Namespaces) []byte {
	start := len(dst)
	dst = append(dst, "<rs:md"...)
	empty := len(dst)
	dst = appendAttr(dst, ` capability="`, it.Capability)
	dst = appendAttr(dst, ` change="`, string(it.Change.Change))
	dst = ns.appendTime(dst, ` datetime="`, it.Datetime)
	dst = ns.appendTimes(dst, it.At, it.Completed, it.From, it.Until)
	dst = appendAttr(dst, ` hash="`, it.Hash)
	dst = appendLengthAttr(dst, it.Length)
	dst = appendAttr(dst, ` type="`, it.Type)
	dst = appendAttr(dst, ` encoding="`, it.Encoding)
	dst = appendAttr(dst, ` path="`, it.Path)
	dst = appendForeign(dst, it.Attrs, ns)
	if len(dst) == empty {
		return dst[:start]
	}
	return append(dst, "/>"...)
}

// appendXMLLink appends l as an rs:ln.
func appendXMLLink(dst []byte, l *Link, ns *Namespaces) []byte {
	dst = append(dst, `<rs:ln rel="`...)
	dst = AppendXMLText(dst, l.Rel)
	dst = append(dst, `" href="`...)
	dst = AppendXMLText(dst, l.Href)
	dst = append(dst, '"')
	if l.Pri != 0 {
		dst = append(dst, ` pri="`...)
		dst = strconv.AppendInt(dst, int64(l.Pri), 10)
		dst = append(dst, '"')
	}
	dst = appendTimeAttr(dst, ` modified="`, l.Modified)
	dst = appendAttr(dst, ` hash="`, l.Hash)
	dst = appendLengthAttr(dst, l.Length)
	dst = appendAttr(dst, ` type="`, l.Type)
	dst = appendAttr(dst, ` encoding="`, l.Encoding)
	dst = appendAttr(dst, ` path="`, l.Path)
	dst = appendAttr(dst, ` profile="`, l.Profile)
	dst = appendForeign(dst, l.Attrs, ns)
	return append(dst, "/>"...)
}

// appendTimes appends the times of a document that are not zero as attributes.
func (ns *Namespaces) appendTimes(dst []byte, at, completed, from, until time.Time) []byte {
	dst = ns.appendTime(dst, ` at="`, at)
	dst = ns.appendTime(dst, ` completed="`, completed)
	dst = ns.appendTime(dst, ` from="`, from)
	return ns.appendTime(dst, ` until="`, until)
}

// appendTime appends a time that the writer of the document sets, not the source of a
// resource. Only such times obey ns.Micros.
func (ns *Namespaces) appendTime(dst []byte, name string, t time.Time) []byte {
	if ns == nil || !ns.Micros || t.IsZero() {
		return appendTimeAttr(dst, name, t)
	}
	dst = append(dst, name...)
	dst = AppendTimeMicro(dst, t.UnixMicro())
	return append(dst, '"')
}

// appendAttr appends an attribute, unless value is empty. name is the name with the space
// before it, and with the equals sign and the quote after it.
func appendAttr(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	dst = append(dst, name...)
	dst = AppendXMLText(dst, value)
	return append(dst, '"')
}

// appendTimeAttr is like appendAttr for a time.
func appendTimeAttr(dst []byte, name string, t time.Time) []byte {
	if t.IsZero() {
		return dst
	}
	dst = append(dst, name...)
	dst = AppendTime(dst, t)
	return append(dst, '"')
}

// appendLengthAttr appends the attribute length, unless length is nil.
func appendLengthAttr(dst []byte, length *int64) []byte {
	if length == nil {
		return dst
	}
	dst = append(dst, ` length="`...)
	dst = strconv.AppendInt(dst, *length, 10)
	return append(dst, '"')
}

// AppendXMLText appends s to dst as text or as the value of an attribute, and returns the
// extended buffer. It escapes tabs and line ends, because a parser would replace them with
// spaces. A character that XML cannot represent becomes U+FFFD.
func AppendXMLText(dst []byte, s string) []byte {
	done := 0
	for i := 0; i < len(s); {
		if classes[s[i]]&xmlChar != 0 {
			i++
			continue
		}
		to, size := escape(s[i:])
		if to != "" {
			dst = append(dst, s[done:i]...)
			dst = append(dst, to...)
			done = i + size
		}
		i += size
	}
	return append(dst, s[done:]...)
}

// escape returns the escape of the first character of s, and the size of that character in
// bytes. The escape is "" if the character needs none.
func escape(s string) (to string, size int) {
	switch s[0] {
	case '&':
		return "&amp;", 1
	case '<':
		return "&lt;", 1
	case '>':
		return "&gt;", 1
	case '"':
		return "&quot;", 1
	case '\t':
		return "&#x9;", 1
	case '\n':
		return "&#xA;", 1
	case '\r':
		return "&#xD;", 1
	}
	r, size := utf8.DecodeRuneInString(s)
	if xmlrepair.IsChar(r) && !(r == utf8.RuneError && size == 1) {
		return "", size
	}
	return "\uFFFD", size
}

// WriteXML writes the document to w, one entry per line. Each element declares the foreign
// namespaces that it needs. WriteXML returns the error of w, if any.
func (d *Document) WriteXML(w io.Writer) error {
	const chunk = 64 << 10
	ns := &Namespaces{Index: d.Index}
	buf := AppendXMLHeader(make([]byte, 0, chunk+4<<10), &d.Header, ns)
	for i := range d.Items {
		buf = AppendXMLItem(buf, &d.Items[i], ns)
		if len(buf) >= chunk {
			if _, err := w.Write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	_, err := w.Write(AppendXMLFooter(buf, &d.Header))
	return err
}
