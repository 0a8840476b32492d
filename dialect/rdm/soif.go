package rdm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rshub/rshub/problem"
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

// maxObject is how many bytes an object has at most when it is read.
const maxObject = 1 << 20

// A Reader reads a stream of objects, one at a time.
type Reader struct {
	in   *bufio.Reader
	n    int   // number of the newest object
	left int   // how many bytes more it may have
	err  error // the first one; nothing is read behind it
}

// NewReader returns a Reader. It reads from r only during Next, but more than it returns.
func NewReader(r io.Reader) *Reader { return &Reader{in: bufio.NewReader(r)} }

// Next returns the next object, or io.EOF. An error about the text is a *resourcesync.Error that
// names the object, the attribute and the rule. Other errors are those of the reader. After an
// error, Next returns the same one again.
func (r *Reader) Next() (*Object, error) {
	r.left = maxObject
	if r.blank(); r.err != nil {
		return nil, r.err
	}
	r.n++
	o := new(Object)
	if r.object(o); r.err == nil {
		return o, nil
	}
	r.err = r.about(o, ofText(r.err))
	return nil, r.err
}

// ofText makes an error about the text of one of reading, if the text is at fault.
func ofText(err error) error {
	if wrong, ok := errors.AsType[*resourcesync.Error](problem.Unreadable(err)); ok {
		return wrong
	}
	return err
}

// about returns an error that names the newest object, as far as it was read.
func (r *Reader) about(o *Object, err error) error {
	return resourcesync.About(fmt.Sprintf("object %d (%s)", r.n, resourcesync.Shorten("@"+o.Type+" "+o.URL)), err)
}

func (r *Reader) object(o *Object) {
	r.expect("@", "an object begins with @, as in @DOCUMENT { URL")
	o.Type = r.word("the type of an object", isName)
	r.blank()
	r.expect("{", "a { follows the type of an object")
	r.blank()
	if o.URL = r.word("the URL of an object", func(c byte) bool { return !isBlank(c) }); o.URL == "}" {
		o.URL = ""
		r.fail("it has no URL: a - stands for none")
	}
	for r.blank(); r.peek() != '}' && r.err == nil; r.blank() {
		a := Attribute{Name: r.word("the name of an attribute", isName)}
		if r.err != nil {
			return
		}
		if a.Value = r.value(); r.err != nil {
			r.err = resourcesync.About("attribute "+a.Name, ofText(r.err))
			return
		}
		o.Attributes = append(o.Attributes, a)
	}
	r.skip()
}

// value reads what follows the name of an attribute.
func (r *Reader) value() string {
	const form = "a name is followed by the size of the value in braces, a colon and a tab, as in Title{5}:\tHello"
	r.expect("{", form)
	size, err := strconv.Atoi(r.word("the size of a value", func(c byte) bool { return '0' <= c && c <= '9' }))
	r.expect("}", form)
	r.expect(":", form)
	r.expect("\t ", form) // a space, because the examples of the standard are often copied so
	if err != nil || size > r.left {
		r.tooLarge()
	}
	if r.err != nil {
		return ""
	}
	value := make([]byte, size)
	_, r.err = io.ReadFull(r.in, value)
	r.left -= size
	if c := r.peek(); !isBlank(c) {
		r.fail("its value does not end after %d bytes, where %q follows: the size counts bytes, and a line ends behind the value", size, c)
	}
	return string(value)
}

// fail sets the error, if there is none yet.
func (r *Reader) fail(rule string, args ...any) {
	if r.err == nil {
		r.err = resourcesync.Invalid(rule, args...)
	}
}

func (r *Reader) tooLarge() {
	if r.err == nil {
		r.err = &resourcesync.Error{Err: resourcesync.ErrTooLarge, Rule: fmt.Sprintf("an object has at most %d bytes", maxObject)}
	}
}

// peek returns the next byte, and leaves it; 0 if there is an error.
func (r *Reader) peek() byte {
	if r.left <= 0 {
		r.tooLarge()
	}
	if r.err != nil {
		return 0
	}
	var b []byte
	if b, r.err = r.in.Peek(1); r.err != nil {
		return 0
	}
	return b[0]
}

// skip skips the byte that peek has returned.
func (r *Reader) skip() {
	if r.err == nil {
		_, r.err = r.in.Discard(1)
		r.left--
	}
}

// word reads a text of characters that are good, at least one of them.
func (r *Reader) word(what string, good func(byte) bool) string {
	var b []byte
	for c := r.peek(); r.err == nil && good(c); c = r.peek() {
		b = append(b, c)
		r.skip()
	}
	if len(b) == 0 {
		r.fail("%q is not in %s", r.peek(), what)
	}
	return string(b)
}

// expect reads one of the characters in any.
func (r *Reader) expect(any, rule string) {
	if c := r.peek(); strings.IndexByte(any, c) < 0 {
		r.fail("%q is not expected here: %s", c, rule)
	}
	r.skip()
}

// blank skips white space.
func (r *Reader) blank() {
	for isBlank(r.peek()) {
		r.skip()
	}
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func isName(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}
