package resourcesync

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendJSONMembers appends the members of c's JSON object without the braces, so
// that the caller can add members. The first member is always loc. Then follow
// change, datetime, lastmod, changefreq, hash, length, type, encoding, path, ln and
// the foreign attributes, as far as c has them. The name of an attribute is
// "{namespace}name". An attribute without a namespace is left out.
//
// The text is one line and always valid JSON: bytes that are not UTF-8 become U+FFFD.
// (Validate refuses them.)
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

// appendMember appends a member, unless its value is empty. name is the name with the
// comma before it and the colon after it.
func appendMember(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return appendQuoted(append(dst, name...), value)
}

func appendTimeMember(dst []byte, name string, t time.Time) []byte {
	if t.IsZero() {
		return dst
	}
	dst = append(dst, name...)
	dst = append(dst, '"')
	dst = AppendTime(dst, t)
	return append(dst, '"')
}

func appendLengthMember(dst []byte, length *int64) []byte {
	if length == nil {
		return dst
	}
	return strconv.AppendInt(append(dst, `,"length":`...), *length, 10)
}

func appendAttrMembers(dst []byte, attrs []Attr) []byte {
	for i := range attrs {
		a := &attrs[i]
		if a.isCapability() {
			dst = appendMember(dst, `,"capability":`, a.Value)
		}
		if a.Namespace == "" {
			continue
		}
		// The name is quoted piece by piece. That gives the same text as quoting it
		// whole, because escapes do not depend on their neighbours.
		dst = append(dst, `,"{`...)
		dst = appendInside(dst, a.Namespace)
		dst = append(dst, '}')
		dst = appendInside(dst, a.Name)
		dst = append(dst, `":`...)
		dst = appendQuoted(dst, a.Value)
	}
	return dst
}

func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	dst = appendInside(dst, s)
	return append(dst, '"')
}

// appendInside appends s as it is written between quotes. Most values are plain ASCII
// without escapes, and are copied whole.
func appendInside(dst []byte, s string) []byte {
	if plainLen(s) == len(s) {
		return append(dst, s...)
	}
	n := len(dst)
	dst, _ = jsontext.AppendQuote(dst, s) // it has replaced what is not UTF-8
	copy(dst[n:], dst[n+1:len(dst)-1])
	return dst[:len(dst)-2]
}
