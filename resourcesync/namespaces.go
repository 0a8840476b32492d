package resourcesync

import "strconv"

// Terms is the namespace of the attributes that rshub defines. Readers drop attributes in
// this namespace, so that a hub's document can be published to another hub without that
// hub mistaking its positions for the other hub's own.
const Terms = "https://github.com/rshub/rshub/terms/"

const (
	sitemapNS = "http://www.sitemaps.org/schemas/sitemap/0.9"
	rsNS      = "http://www.openarchives.org/rs/terms/"
	xmlNS     = "http://www.w3.org/XML/1998/namespace"
	xmlnsNS   = "http://www.w3.org/2000/xmlns/"
	xsiNS     = "http://www.w3.org/2001/XMLSchema-instance"

	undeclaredNS = "undeclared:" // stands for the namespace of an undeclared prefix
)

// Namespaces configure how documents are written: which prefixes the root declares for
// foreign namespaces, and two details. A nil *Namespaces and the zero value declare none.
// The functions of this package only read a Namespaces, so goroutines may share one.
type Namespaces struct {
	Index  bool // whether entries are sitemap elements instead of url elements
	Micros bool // whether datetime, at, completed, from and until have exactly six digits after the second
	pairs  []declaration
}

// A declaration binds a prefix to the URI of a namespace.
type declaration struct{ prefix, uri string }

// NewNamespaces returns Namespaces that declare the given pairs of a prefix and a URI. It
// ignores a pair that cannot be declared, or whose prefix or URI an earlier pair uses. It
// also ignores a prefix that is "ns" and a number, because local declarations use these.
// Attributes in an ignored namespace are written with a local declaration.
func NewNamespaces(pairs ...string) *Namespaces {
	ns := new(Namespaces)
	for i := 0; i+1 < len(pairs); i += 2 {
		d := declaration{pairs[i], pairs[i+1]}
		if !isNCName(d.prefix) || isLocalPrefix(d.prefix) || !declarable(d.uri) || ns.declares(d) {
			continue
		}
		switch d.prefix {
		case "rs", "xml", "xmlns":
			continue
		}
		ns.pairs = append(ns.pairs, d)
	}
	return ns
}

// declares reports whether ns declares the prefix or the URI of d.
func (ns *Namespaces) declares(d declaration) bool {
	for _, p := range ns.pairs {
		if p.prefix == d.prefix || p.uri == d.uri {
			return true
		}
	}
	return false
}

// isForeign reports whether an element of the standard may have attributes in the
// namespace uri because it is foreign to the standard and to XML.
func isForeign(uri string) bool {
	switch uri {
	case "", sitemapNS, rsNS, xmlNS, xmlnsNS:
		return false
	}
	return true
}

// isDropped reports whether readers drop attributes in the namespace uri. Attributes in
// Terms belong to a hub. Those of XML Schema instances describe the document instead of
// the resource. Those whose prefix is undeclared have an unknown meaning.
func isDropped(uri string) bool {
	return uri == Terms || uri == xsiNS || uri == undeclaredNS
}

// isLocalPrefix reports whether s has the form of the prefix of a local declaration.
func isLocalPrefix(s string) bool {
	if len(s) < 3 || s[:2] != "ns" {
		return false
	}
	_, err := strconv.ParseUint(s[2:], 10, 64)
	return err == nil
}

// prefix returns the prefix of the namespace uri if it needs no local declaration, and ""
// otherwise.
func (ns *Namespaces) prefix(uri string) string {
	if uri == xmlNS {
		return "xml" // predefined by XML
	}
	if ns == nil {
		return ""
	}
	for i := range ns.pairs {
		if ns.pairs[i].uri == uri {
			return ns.pairs[i].prefix
		}
	}
	return ""
}

// appendDeclarations appends the attributes that declare the prefixes of ns.
func (ns *Namespaces) appendDeclarations(dst []byte) []byte {
	if ns == nil {
		return dst
	}
	for i := range ns.pairs {
		dst = append(dst, " xmlns:"...)
		dst = append(dst, ns.pairs[i].prefix...)
		dst = append(dst, `="`...)
		dst = AppendXMLText(dst, ns.pairs[i].uri)
		dst = append(dst, '"')
	}
	return dst
}

// appendForeign appends attrs. If ns does not declare the namespace of an attribute,
// appendForeign declares it before the first attribute in that namespace. The prefix of
// such a local declaration is "ns" and the number of that attribute, so no table of
// prefixes is needed. Attributes that XML cannot represent are left out.
func appendForeign(dst []byte, attrs []Attr, ns *Namespaces) []byte {
	for i := range attrs {
		a := &attrs[i]
		if a.isCapability() {
			dst = appendAttr(dst, ` capability="`, a.Value)
			continue
		}
		prefix := ns.prefix(a.Namespace)
		if !isNCName(a.Name) || prefix == "" && !declarable(a.Namespace) {
			continue // XML cannot represent it
		}
		if prefix != "" {
			dst = append(dst, ' ')
			dst = append(dst, prefix...)
		} else {
			first := 0
			for !isNCName(attrs[first].Name) || attrs[first].Namespace != a.Namespace {
				first++
			}
			if first == i {
				dst = append(dst, " xmlns:ns"...)
				dst = strconv.AppendInt(dst, int64(first)+1, 10)
				dst = append(dst, `="`...)
				dst = AppendXMLText(dst, a.Namespace)
				dst = append(dst, '"')
			}
			dst = append(dst, " ns"...)
			dst = strconv.AppendInt(dst, int64(first)+1, 10)
		}
		dst = append(dst, ':')
		dst = append(dst, a.Name...)
		dst = append(dst, `="`...)
		dst = AppendXMLText(dst, a.Value)
		dst = append(dst, '"')
	}
	return dst
}

// declarable reports whether an element of the standard can declare a prefix for the
// namespace uri and have attributes in it.
func declarable(uri string) bool { return isForeign(uri) && badText(uri) == "" }
