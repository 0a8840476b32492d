package rdm

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// An Object is an object of SOIF, Harvest's Summary Object Interchange Format: attributes of the
// resource at a URL.
type Object struct {
	Type       string // such as DOCUMENT
	URL        string // "-": the object is about no resource
	Attributes []Attribute
}

// An Attribute has any bytes as its value.
type Attribute struct{ Name, Value string }

// Append appends the text of the object to dst.
func (o *Object) Append(dst []byte) []byte {
	dst = append(append(append(append(append(dst, '@'), o.Type...), " { "...), o.URL...), '\n')
	for _, a := range o.Attributes {
		dst = append(strconv.AppendInt(append(append(dst, a.Name...), '{'), int64(len(a.Value)), 10), "}:\t"...)
		dst = append(append(dst, a.Value...), '\n')
	}
	return append(dst, "}\n"...)
}

// add adds an attribute, unless its value is empty.
func (o *Object) add(name, value string) {
	if value != "" {
		o.Attributes = append(o.Attributes, Attribute{name, value})
	}
}

// Values returns the values of an attribute, as they come: that of its name, and those of its
// name with a number, such as title-1 and title-2. Upper case and lower case are the same.
func (o *Object) Values(name string) []string {
	var all []string
	for _, a := range o.Attributes {
		if strings.EqualFold(a.Name, name) || strings.EqualFold(unnumbered(a.Name), name) {
			all = append(all, a.Value)
		}
	}
	return all
}

// unnumbered returns a name without the number at its end.
func unnumbered(name string) string {
	i := strings.LastIndexByte(name, '-')
	if i < 0 || i+1 == len(name) || strings.Trim(name[i+1:], "0123456789") != "" {
		return name
	}
	return name[:i]
}

// value returns the value of an attribute that has one at most, without white space around it.
func (o *Object) value(name string) (string, error) {
	all := o.Values(name)
	if len(all) > 1 {
		return "", resourcesync.Invalid("attribute %s has %d values, and may have one", name, len(all))
	}
	return strings.TrimSpace(strings.Join(all, "")), nil
}

// Bounds of an object that is read.
const (
	maxValues     = 1 << 20 // bytes of its values together
	maxAttributes = 1_000
	maxName       = 128 // bytes
	maxURL        = 4 << 10
)

// A Reader reads a stream of objects, one at a time.
type Reader struct {
	in  *bufio.Reader
	n   int   // number of the newest object
	err error // the first one; nothing is read behind it
}

// NewReader returns a Reader. It reads from r only during Next, but more than it returns.
func NewReader(r io.Reader) *Reader { return &Reader{in: bufio.NewReader(r)} }

// Next returns the next object, or io.EOF. An error about the text is a *resourcesync.Error that
// names the object, the attribute and the rule. Other errors are those of the reader. After an
// error, Next returns the same one again.
func (r *Reader) Next() (*Object, error) {
	o := new(Object)
	if r.blank(); r.err != nil {
		return nil, r.err
	}
	r.n++
	if r.object(o); r.err == nil {
		return o, nil
	}
	r.err = r.about(o, ofText(r.err))
	return nil, r.err
}

// ofText makes an error about the text of one of reading, if the text is at fault.
func ofText(err error) error {
	_, corrupt := errors.AsType[flate.CorruptInputError](err)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return resourcesync.Invalid("it ends early")
	case corrupt, errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		return resourcesync.Invalid("the body is not the gzip that Content-Encoding promises")
	}
	return err
}

// about returns an error that names the newest object, as far as it was read.
func (r *Reader) about(o *Object, err error) error {
	return resourcesync.About(fmt.Sprintf("object %d (%s)", r.n, resourcesync.Shorten("@"+o.Type+" "+o.URL)), err)
}

func (r *Reader) object(o *Object) {
	r.expect("@", "an object begins with @, as in @DOCUMENT { URL")
	o.Type = r.word("the type of an object", maxName, isName)
	r.blank()
	r.expect("{", "a { follows the type of an object")
	r.blank()
	if o.URL = r.word("the URL of an object", maxURL, func(c byte) bool { return !isBlank(c) }); o.URL == "}" {
		o.URL = ""
		r.fail(resourcesync.ErrInvalid, "it has no URL: a - stands for none")
	}
	for left := int64(maxValues); ; {
		if r.blank(); r.peek() == '}' || r.err != nil {
			_, _ = r.in.Discard(1) // it is there
			return
		}
		if len(o.Attributes) == maxAttributes {
			r.fail(resourcesync.ErrTooLarge, "an object has at most %d attributes", maxAttributes)
		}
		a := Attribute{Name: r.word("the name of an attribute", maxName, isName)}
		if r.err != nil {
			return
		}
		if a.Value = r.attribute(left); r.err != nil {
			r.err = resourcesync.About("attribute "+a.Name, ofText(r.err))
			return
		}
		left -= int64(len(a.Value))
		o.Attributes = append(o.Attributes, a)
	}
}

// attribute reads the size and the value of an attribute, of so many bytes at most.
func (r *Reader) attribute(most int64) string {
	const form = "a name is followed by the size of the value in braces, a colon and a tab, as in Title{5}:\tHello"
	r.expect("{", form)
	digits := r.word("the size of a value", 10, func(c byte) bool { return '0' <= c && c <= '9' })
	r.expect("}", form)
	r.expect(":", form)
	r.expect("\t ", form) // a space, because the examples of the standard are often copied so
	size, _ := strconv.ParseInt(digits, 10, 64)
	if size > most {
		r.fail(resourcesync.ErrTooLarge, "the values of an object have at most %d bytes together", maxValues)
	}
	if r.err != nil {
		return ""
	}
	var value bytes.Buffer // grows with what comes, and not with what was promised
	_, r.err = io.CopyN(&value, r.in, size)
	if c := r.peek(); r.err == nil && !isBlank(c) {
		r.fail(resourcesync.ErrInvalid, "its value does not end after %d bytes, where %q follows: the size counts bytes, and a line ends behind the value", size, c)
	}
	return value.String()
}

// fail sets the error, if there is none yet.
func (r *Reader) fail(err error, rule string, args ...any) {
	if r.err == nil {
		r.err = &resourcesync.Error{Err: err, Rule: fmt.Sprintf(rule, args...)}
	}
}

// peek returns the next byte, and leaves it.
func (r *Reader) peek() byte {
	if r.err == nil {
		var b []byte
		if b, r.err = r.in.Peek(1); r.err == nil {
			return b[0]
		}
	}
	return 0
}

// word reads a text of characters that are good, at least one of them.
func (r *Reader) word(what string, most int, good func(byte) bool) string {
	var b []byte
	for {
		switch c := r.peek(); {
		case r.err != nil:
		case !good(c) && len(b) == 0:
			r.fail(resourcesync.ErrInvalid, "%q is not in %s", c, what)
		case !good(c):
			return string(b)
		case len(b) == most:
			r.fail(resourcesync.ErrTooLarge, "%s has at most %d characters", what, most)
		default:
			b = append(b, c)
			_, r.err = r.in.Discard(1)
			continue
		}
		return string(b)
	}
}

// expect reads one of the characters in any.
func (r *Reader) expect(any, rule string) {
	if c := r.peek(); strings.IndexByte(any, c) < 0 {
		r.fail(resourcesync.ErrInvalid, "%q is not expected here: %s", c, rule)
	} else if r.err == nil {
		_, r.err = r.in.Discard(1)
	}
}

// blank skips white space.
func (r *Reader) blank() {
	for isBlank(r.peek()) && r.err == nil {
		_, r.err = r.in.Discard(1)
	}
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func isName(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}
