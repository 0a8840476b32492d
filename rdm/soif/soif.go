// Package soif reads and writes the Summary Object Interchange Format of Harvest, as
// Resource Description Messages 1.0 extend it: an object may have no attributes, and an
// attribute with several values is written as name-1, name-2 and so on. Values are counted
// in bytes, so they may be anything. The package knows no message and no hub.
package soif

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// An Object is a list of attributes about what a URL names.
type Object struct {
	Type       string // template type, such as DOCUMENT
	URL        string // empty: the object has none, which is written as "-"
	Attributes []Attribute
}

// An Attribute is a name and one value. The value is bytes; it need not be text.
type Attribute struct{ Name, Value string }

// Split returns the name of an attribute without the number of its value, and the number:
// title and 2 for title-2. The number is 0 if the name has none. A name that only looks
// numbered, such as SHA-256, is split all the same.
func Split(name string) (base string, n int) {
	at := strings.LastIndexByte(name, '-')
	if at <= 0 || at+1 == len(name) || name[at+1] == '0' {
		return name, 0
	}
	for _, c := range []byte(name[at+1:]) {
		if c < '0' || c > '9' {
			return name, 0
		}
	}
	n, err := strconv.Atoi(name[at+1:])
	if err != nil {
		return name, 0
	}
	return name[:at], n
}

// Get returns the value of the first attribute of a name. Letter case does not matter.
func (o *Object) Get(name string) (value string, ok bool) {
	for i := range o.Attributes {
		if strings.EqualFold(o.Attributes[i].Name, name) {
			return o.Attributes[i].Value, true
		}
	}
	return "", false
}

// Add appends an attribute.
func (o *Object) Add(name, value string) {
	o.Attributes = append(o.Attributes, Attribute{name, value})
}

// Append appends an object to dst. An error says why the object cannot be written: its type
// or the name of an attribute is no identifier, or the URL has a space.
func (o *Object) Append(dst []byte) ([]byte, error) {
	url := o.URL
	if url == "" {
		url = "-"
	}
	if !IsIdentifier(o.Type) {
		return dst, fmt.Errorf("%s is no type of an object: %s", strconv.Quote(o.Type), identifierRule)
	}
	if o.URL == "-" || len(url) > maxURL || strings.ContainsFunc(url, func(c rune) bool { return !inURL(c) }) {
		return dst, errors.New(strconv.Quote(o.URL) + " is no URL of an object: " + urlRule)
	}
	dst = append(append(append(append(append(dst, '@'), o.Type...), " { "...), url...), '\n')
	for i := range o.Attributes {
		a := &o.Attributes[i]
		if !IsIdentifier(a.Name) {
			return dst, fmt.Errorf("%s is no name of an attribute: %s", strconv.Quote(a.Name), identifierRule)
		}
		dst = append(append(dst, a.Name...), '{')
		dst = append(strconv.AppendInt(dst, int64(len(a.Value)), 10), "}:\t"...)
		dst = append(append(dst, a.Value...), '\n')
	}
	return append(dst, "}\n"...), nil
}

const (
	maxIdentifier = 256
	maxURL        = 2048
)

var (
	identifierRule = fmt.Sprintf("it is 1 to %d letters, digits, hyphens, underscores and dots", maxIdentifier)
	urlRule        = fmt.Sprintf(`it is 1 to %d bytes without spaces, or "-" if there is none`, maxURL)
)

// IsIdentifier reports whether s may be the type of an object or the name of an attribute.
func IsIdentifier(s string) bool {
	for i := range len(s) {
		if !inIdentifier(s[i]) {
			return false
		}
	}
	return s != "" && len(s) <= maxIdentifier
}

func inIdentifier(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
}

// inURL reports whether a URL may have a character. The bytes of one that is not UTF-8 are
// kept as they are.
func inURL(c rune) bool { return c > ' ' && c != 0x7F }

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
