package resourcesync

import "strconv"

// Terms is the namespace of rshub's own attributes. Readers drop attributes of
// this namespace, so that what a hub wrote can be published again without its
// positions passing for the new hub's.
const Terms = "https://github.com/rshub/rshub/terms/"

const (
	sitemapNS = "http://www.sitemaps.org/schemas/sitemap/0.9"
	rsNS      = "http://www.openarchives.org/rs/terms/"
	xmlNS     = "http://www.w3.org/XML/1998/namespace"
	xmlnsNS   = "http://www.w3.org/2000/xmlns/"
	xsiNS     = "http://www.w3.org/2001/XMLSchema-instance"
)

// Namespaces are the prefixes that a written document declares at its root for
// foreign namespaces. A nil *Namespaces declares none, like the zero value. It
// is read only while in use, so that encoders can share one.
type Namespaces struct {
	Index  bool // entries are written as sitemap instead of url
	Micros bool // datetime, from, until, at and completed have six digits of fraction, always
	pairs  []declaration
}

type declaration struct{ prefix, uri string }

// NewNamespaces returns Namespaces with the given pairs of prefix and URI. A
// pair that cannot be declared is left out, and so is one whose prefix is ns
// and a number, which is how local declarations are named; its attributes are
// still written, with a local declaration.
func NewNamespaces(pairs ...string) *Namespaces {
	ns := new(Namespaces)
	for i := 0; i+1 < len(pairs); i += 2 {
		d := declaration{pairs[i], pairs[i+1]}
		if !isNCName(d.prefix) || isLocalPrefix(d.prefix) || !isForeign(d.uri) || badText(d.uri) != "" || ns.declares(d) {
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

// isForeign says whether attributes of the namespace uri may stand on an
// element of the standard.
func isForeign(uri string) bool {
	switch uri {
	case "", sitemapNS, rsNS, xmlNS, xmlnsNS:
		return false
	}
	return true
}

// dropped says whether readers leave attributes of the namespace uri out: they
// are the hub's own, or speak of the text's schema and not of the resource.
func dropped(uri string) bool {
	return uri == Terms || uri == xsiNS
}

func isLocalPrefix(s string) bool {
	if len(s) < 3 || s[:2] != "ns" {
		return false
	}
	_, err := strconv.ParseUint(s[2:], 10, 64)
	return err == nil
}

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
		dst = appendEscaped(dst, ns.pairs[i].uri)
		dst = append(dst, '"')
	}
	return dst
}

// appendForeign appends attrs, and before the first one of a namespace that ns
// does not know its declaration. The prefix is the number of that first one,
// so that nothing needs to be remembered.
func appendForeign(dst []byte, attrs []Attr, ns *Namespaces) []byte {
	for i := range attrs {
		a := &attrs[i]
		if !writable(a) {
			continue
		}
		if prefix := ns.prefix(a.Namespace); prefix != "" {
			dst = append(dst, ' ')
			dst = append(dst, prefix...)
		} else {
			first := 0
			for !writable(&attrs[first]) || attrs[first].Namespace != a.Namespace {
				first++
			}
			if first == i {
				dst = append(dst, " xmlns:ns"...)
				dst = strconv.AppendInt(dst, int64(first)+1, 10)
				dst = append(dst, `="`...)
				dst = appendEscaped(dst, a.Namespace)
				dst = append(dst, '"')
			}
			dst = append(dst, " ns"...)
			dst = strconv.AppendInt(dst, int64(first)+1, 10)
		}
		dst = append(dst, ':')
		dst = append(dst, a.Name...)
		dst = append(dst, `="`...)
		dst = appendEscaped(dst, a.Value)
		dst = append(dst, '"')
	}
	return dst
}

// writable says whether a can be an attribute in XML at all.
func writable(a *Attr) bool {
	return (isForeign(a.Namespace) || a.Namespace == xmlNS) && isNCName(a.Name) && badText(a.Namespace) == ""
}
