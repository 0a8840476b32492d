package resourcesync

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendJSONMembers appends the members of the JSON object of c to dst, without the
// braces, so that the caller can add members. It returns the extended buffer. The first
// member is always loc. Those that c has of the following come next, in this order:
// change, datetime, lastmod, changefreq, hash, length, type, encoding, path, ln and the
// foreign attributes. The name of an attribute is "{namespace}name". An attribute without
// a namespace is omitted, except for CapabilityAttr.
//
// The text is one line and always valid JSON: bytes that are not UTF-8 become U+FFFD.
// (Validate rejects them.)
func AppendJSONMembers(dst []byte, c *Change) []byte {
	dst = append(dst, `"loc":`...)
	dst = appendQuoted(dst, c.Loc)
	dst = appendMember(dst, `,"change":`, string(c.Change))
	dst = appendTimeMember(dst, `,"datetime":`, c.Datetime)
	dst = appendTimeMember(dst, `,"lastmod":`, c.Lastmod)
	dst = appendMember(dst, `,"changefreq":`, c.Changefreq)
	dst = appendMember(dst, `,"hash":`, c.Hash)
	dst = appendLengthMember(dst, c.Length)
	dst = appendMember(dst, `,"type":`, c.Type)
	dst = appendMember(dst, `,"encoding":`, c.Encoding)
	dst = appendMember(dst, `,"path":`, c.Path)
	for i := range c.Links {
		if i == 0 {
			dst = append(dst, `,"ln":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = appendJSONLink(dst, &c.Links[i])
	}
	if len(c.Links) > 0 {
		dst = append(dst, ']')
	}
	return appendAttrMembers(dst, c.Attrs)
}

// appendJSONLink appends l as a JSON object.
func appendJSONLink(dst []byte, l *Link) []byte {
	dst = append(dst, `{"rel":`...)
	dst = appendQuoted(dst, l.Rel)
	dst = append(dst, `,"href":`...)
	dst = appendQuoted(dst, l.Href)
	if l.Pri != 0 {
		dst = append(dst, `,"pri":`...)
		dst = strconv.AppendInt(dst, int64(l.Pri), 10)
	}
	dst = appendTimeMember(dst, `,"modified":`, l.Modified)
	dst = appendMember(dst, `,"hash":`, l.Hash)
	dst = appendLengthMember(dst, l.Length)
	dst = appendMember(dst, `,"type":`, l.Type)
	dst = appendMember(dst, `,"encoding":`, l.Encoding)
	dst = appendMember(dst, `,"path":`, l.Path)
	dst = appendMember(dst, `,"profile":`, l.Profile)
	dst = appendAttrMembers(dst, l.Attrs)
	return append(dst, '}')
}

// appendMember appends a member, unless value is empty. name is the quoted name with the
// comma before it and the colon after it.
func appendMember(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return appendQuoted(append(dst, name...), value)
}

// appendTimeMember is like appendMember for a time.
func appendTimeMember(dst []byte, name string, t time.Time) []byte {
	if t.IsZero() {
		return dst
	}
	dst = append(dst, name...)
	dst = append(dst, '"')
	dst = AppendTime(dst, t)
	return append(dst, '"')
}

// appendLengthMember appends the member length, unless length is nil.
func appendLengthMember(dst []byte, length *int64) []byte {
	if length == nil {
		return dst
	}
	return strconv.AppendInt(append(dst, `,"length":`...), *length, 10)
}

// appendAttrMembers appends attrs as members.
func appendAttrMembers(dst []byte, attrs []Attr) []byte {
	for i := range attrs {
		a := &attrs[i]
		if a.isCapability() {
			dst = appendMember(dst, `,"capability":`, a.Value)
		}
		if a.Namespace == "" {
			continue
		}
		// Escaping the parts of the name separately gives the same text as escaping
		// the whole name, because escapes do not depend on adjacent characters.
		dst = append(dst, `,"{`...)
		dst = appendUnquoted(dst, a.Namespace)
		dst = append(dst, '}')
		dst = appendUnquoted(dst, a.Name)
		dst = append(dst, `":`...)
		dst = appendQuoted(dst, a.Value)
	}
	return dst
}

// appendQuoted appends s as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	dst = appendUnquoted(dst, s)
	return append(dst, '"')
}

// appendUnquoted appends s as a JSON string without the quotes. Most values are ASCII that
// needs no escapes, and are copied.
func appendUnquoted(dst []byte, s string) []byte {
	if plainLen(s) == len(s) {
		return append(dst, s...)
	}
	n := len(dst)
	dst, _ = jsontext.AppendQuote(dst, s) // replaces bytes that are not UTF-8
	copy(dst[n:], dst[n+1:len(dst)-1])
	return dst[:len(dst)-2]
}
