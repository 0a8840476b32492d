package resourcesync

import "strconv"

// Terms is the namespace of rshub's own attributes. Readers drop attributes of this
// namespace. So a hub's document can be published to another hub, and the other hub does
// not take the positions in it for its own.
const Terms = "https://github.com/rshub/rshub/terms/"

const (
	sitemapNS = "http://www.sitemaps.org/schemas/sitemap/0.9"
	rsNS      = "http://www.openarchives.org/rs/terms/"
	xmlNS     = "http://www.w3.org/XML/1998/namespace"
	xmlnsNS   = "http://www.w3.org/2000/xmlns/"
	xsiNS     = "http://www.w3.org/2001/XMLSchema-instance"

	undeclaredNS = "undeclared:" // of a prefix that is not declared
)

// Namespaces say how a document is written: which prefixes for foreign namespaces its
// root declares, and two details. A nil *Namespaces and the zero value declare no
// prefix. The functions that write only read it, so several goroutines may share one.
type Namespaces struct {
	Index  bool // entries are written as sitemap elements instead of url elements
	Micros bool // datetime, from, until, at and completed always have six digits after the second
	pairs  []declaration
}

type declaration struct{ prefix, uri string }

// NewNamespaces returns Namespaces with the given pairs of prefix and URI. It leaves
// out a pair that cannot be declared. It also leaves out a pair whose prefix is "ns"
// and a number, because the prefixes of local declarations look like that. Attributes
// of a namespace that was left out are written with a local declaration.
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

func (ns *Namespaces) declares(d declaration) bool {
	for _, p := range ns.pairs {
		if p.prefix == d.prefix || p.uri == d.uri {
			return true
		}
	}
	return false
}

// isForeign reports whether an element of the standard may have attributes of the
// namespace uri.
func isForeign(uri string) bool {
	switch uri {
	case "", sitemapNS, rsNS, xmlNS, xmlnsNS:
		return false
	}
	return true
}

// dropped reports whether readers leave out attributes of the namespace uri. Those of
// Terms are a hub's own, those of XML Schema describe the document and not the
// resource, and the meaning of those without a declaration is unknown.
func dropped(uri string) bool {
	return uri == Terms || uri == xsiNS || uri == undeclaredNS
}

func isLocalPrefix(s string) bool {
	if len(s) < 3 || s[:2] != "ns" {
		return false
	}
	_, err := strconv.ParseUint(s[2:], 10, 64)
	return err == nil
}

// prefix returns the prefix for a namespace that needs no declaration, or "".
func (ns *Namespaces) prefix(uri string) string {
	if uri == xmlNS {
		return "xml" // bound by the standard, never declared
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

// appendForeign appends attrs. If ns does not know a namespace, appendForeign declares
// it before the first attribute that has it. The prefix of this local declaration is
// "ns" and the number of that attribute. So no table of prefixes is needed.
func appendForeign(dst []byte, attrs []Attr, ns *Namespaces) []byte {
	for i := range attrs {
		a := &attrs[i]
		if a.isCapability() {
			dst = appendAttr(dst, ` capability="`, a.Value)
			continue
		}
		prefix := ns.prefix(a.Namespace)
		if !isNCName(a.Name) || prefix == "" && !declarable(a.Namespace) {
			continue // XML cannot carry it
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
// namespace uri, and have attributes of it.
func declarable(uri string) bool { return isForeign(uri) && badText(uri) == "" }
