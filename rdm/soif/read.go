package soif

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Limits bound what a Reader accepts. A field that is 0 has its default.
type Limits struct {
	Bytes      int // of one object, with the space before it; default 1 MiB
	Attributes int // of one object; default 1,000
	Objects    int // of the stream; default: any number
}

// An Error names the rule that a stream breaks, and where.
type Error struct {
	Object    int    // the object, from 1
	Type, URL string // of the object, as far as they were read
	Attribute string // empty: the error is not about an attribute
	Rule      string
	TooLarge  bool // a limit is exceeded
}

// Error names the object, the attribute and the rule.
func (e *Error) Error() string {
	s := fmt.Sprintf("object %d", e.Object)
	if e.Type != "" {
		s += " (" + strings.TrimRight("@"+e.Type+" "+shorten(e.URL), " ") + ")"
	}
	if e.Attribute != "" {
		s += ", attribute " + shorten(e.Attribute)
	}
	return s + ": " + e.Rule
}

func shorten(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// A Reader reads the objects of a stream one by one. It holds one object at a time.
type Reader struct {
	in     *bufio.Reader
	limits Limits
	at     Error // where it is
	left   int   // bytes that the object may still have
	err    error // of the first read that failed; it stays
}

// NewReader returns a Reader of a stream. It may read ahead.
func NewReader(from io.Reader, l Limits) *Reader {
	if l.Bytes == 0 {
		l.Bytes = 1 << 20
	}
	if l.Attributes == 0 {
		l.Attributes = 1000
	}
	return &Reader{in: bufio.NewReader(from), limits: l}
}

// Rest returns what follows the last object that was read.
func (r *Reader) Rest() io.Reader { return r.in }

// Count returns how many objects were begun.
func (r *Reader) Count() int { return r.at.Object }

// Read returns the next object, and io.EOF behind the last one. Any other error is an
// *Error, or that of the stream.
func (r *Reader) Read() (*Object, error) {
	if r.err != nil {
		return nil, r.err
	}
	o, err := r.read()
	if err != nil {
		r.err = err
		return nil, err
	}
	return o, nil
}

func (r *Reader) read() (*Object, error) {
	r.at, r.left = Error{Object: r.at.Object + 1}, r.limits.Bytes
	c, err := r.skip()
	if err == io.EOF {
		r.at.Object--
	}
	switch {
	case err != nil:
		return nil, err
	case c != '@':
		return nil, r.fail("an object begins with @, not with %q", c)
	case r.limits.Objects > 0 && r.at.Object > r.limits.Objects:
		return nil, r.large("a stream has at most %d objects here", r.limits.Objects)
	}
	o := &Object{}
	if o.Type, c, err = r.identifier(0); err != nil {
		return nil, early(err, r)
	}
	if r.at.Type = o.Type; o.Type == "" {
		return nil, r.fail("a type follows the @: %s", identifierRule)
	}
	if isSpace(c) {
		if c, err = r.skip(); err != nil {
			return nil, early(err, r)
		}
	}
	if c != '{' {
		return nil, r.fail("{ follows the type, not %q", c)
	}
	if o.URL, err = r.url(); err != nil {
		return nil, early(err, r)
	}
	r.at.URL = o.URL
	for {
		if c, err = r.skip(); err != nil {
			return nil, early(err, r)
		}
		if c == '}' {
			return o, nil
		}
		if len(o.Attributes) == r.limits.Attributes {
			return nil, r.large("an object has at most %d attributes", r.limits.Attributes)
		}
		a, err := r.attribute(c)
		if err != nil {
			return nil, early(err, r)
		}
		o.Attributes = append(o.Attributes, a)
		r.at.Attribute = ""
	}
}

// url reads the URL of an object.
func (r *Reader) url() (string, error) {
	c, err := r.skip()
	if err != nil {
		return "", err
	}
	var url []byte
	for !isSpace(c) {
		if !inURL(rune(c)) || len(url) == maxURL {
			return "", r.fail("the URL is not good: %s", urlRule)
		}
		url = append(url, c)
		if c, err = r.next(); err != nil {
			return "", err
		}
	}
	if string(url) == "-" {
		return "", nil
	}
	return string(url), nil
}

// attribute reads an attribute whose name begins with c.
func (r *Reader) attribute(c byte) (a Attribute, err error) {
	if a.Name, c, err = r.identifier(c); err != nil {
		return a, err
	}
	if r.at.Attribute = a.Name; a.Name == "" {
		return a, r.fail("an attribute or } is expected, not %q: is the size of the value before it right?", c)
	}
	if c != '{' {
		return a, r.fail("{, the size of the value and } follow the name, not %q: is the size of the value before it right?", c)
	}
	size, digits := 0, 0
	for {
		if c, err = r.next(); err != nil {
			return a, err
		}
		if c < '0' || c > '9' || digits == 10 {
			break
		}
		size, digits = size*10+int(c-'0'), digits+1
	}
	if digits == 0 || c != '}' {
		return a, r.fail("the size of the value is a number of bytes of at most ten digits in { }")
	}
	if c, err = r.next(); err == nil && c == ':' {
		c, err = r.next()
	}
	if err != nil {
		return a, err
	}
	if c != '\t' && c != ' ' {
		return a, r.fail("a colon and a tab stand before the value, and here is %q", c)
	}
	if a.Value, err = r.value(size); err != nil {
		return a, err
	}
	after, err := r.in.Peek(1)
	if err == nil && !isSpace(after[0]) && after[0] != '}' {
		return a, r.fail("the value has %d bytes as it says, and %q follows it in place of a line's end: the size is wrong", size, after[0])
	}
	return a, nil
}

// value reads so many bytes. It takes memory only for bytes that come.
func (r *Reader) value(size int) (string, error) {
	if size > r.left {
		return "", r.large("the value has %d bytes, and an object has at most %d", size, r.limits.Bytes)
	}
	r.left -= size
	var value strings.Builder
	n, err := io.CopyN(&value, r.in, int64(size))
	if err == io.EOF {
		return "", r.fail("the value says that it has %d bytes, and ends after %d", size, n)
	}
	return value.String(), err
}

// identifier reads a name, which begins with first if that is not 0, and the byte behind it.
func (r *Reader) identifier(first byte) (name string, c byte, err error) {
	var text []byte
	if c = first; c == 0 {
		c, err = r.next()
	}
	for err == nil && inIdentifier(c) {
		if len(text) == maxIdentifier {
			return "", 0, r.fail("a name is too long: %s", identifierRule)
		}
		text = append(text, c)
		c, err = r.next()
	}
	return string(text), c, err
}

// skip returns the next byte that is no space.
func (r *Reader) skip() (c byte, err error) {
	for {
		if c, err = r.next(); err != nil || !isSpace(c) {
			return c, err
		}
	}
}

func (r *Reader) next() (byte, error) {
	c, err := r.in.ReadByte()
	if err != nil {
		return 0, err
	}
	if r.left--; r.left < 0 {
		return 0, r.large("an object has at most %d bytes", r.limits.Bytes)
	}
	return c, nil
}

// early returns the error for the end of the stream within an object. Any other err stays.
func early(err error, r *Reader) error {
	if err == io.EOF {
		return r.fail("the object ends early: its } is missing")
	}
	return err
}

func (r *Reader) fail(format string, args ...any) error {
	e := r.at
	e.Rule = fmt.Sprintf(format, args...)
	return &e
}

func (r *Reader) large(format string, args ...any) error {
	e := r.fail(format, args...).(*Error)
	e.TooLarge = true
	return e
}
