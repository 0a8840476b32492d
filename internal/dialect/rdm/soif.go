package rdm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// An Object is an object of SOIF, Harvest's Summary Object Interchange Format: the attributes of
// the resource at a URL.
type Object struct {
	Type       string // such as DOCUMENT
	URL        string // "-" if the object is not about a resource
	Attributes []Attribute
}

// An Attribute is a name and a value, which may contain any bytes.
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

// add adds an attribute. It does nothing if the value is empty.
func (o *Object) add(name, value string) {
	if value != "" {
		o.Attributes = append(o.Attributes, Attribute{name, value})
	}
}

// Values returns the values of an attribute in order, including those of its numbered names, such
// as title-1 and title-2. Case is ignored.
func (o *Object) Values(name string) []string {
	var all []string
	for _, a := range o.Attributes {
		if strings.EqualFold(a.Name, name) || strings.EqualFold(trimNumber(a.Name), name) {
			all = append(all, a.Value)
		}
	}
	return all
}

// trimNumber returns a name without the number at its end.
func trimNumber(name string) string {
	i := strings.LastIndexByte(name, '-')
	if i < 0 || i+1 == len(name) || strings.Trim(name[i+1:], "0123456789") != "" {
		return name
	}
	return name[:i]
}

// singleValues returns the values of attributes without surrounding white space. It returns an
// error for an attribute with several values.
func (o *Object) singleValues(names ...string) (map[string]string, error) {
	values := map[string]string{}
	for _, name := range names {
		all := o.Values(name)
		if len(all) > 1 {
			return nil, resourcesync.Invalidf("attribute %s: got %d values, want at most 1", name, len(all))
		}
		values[name] = strings.TrimSpace(strings.Join(all, ""))
	}
	return values, nil
}

const (
	maxObject         = 1 << 20 // maximum size of an object to read in bytes
	attributeOverhead = 64      // bytes added to the size of each attribute for its memory
)

// attributeHead matches the text before a value: the name, the size in bytes in braces, and a
// colon.
var attributeHead = regexp.MustCompile(`^([\w.-]+)\{(\d+)\}:$`)

// A Reader reads a stream of objects.
type Reader struct {
	in        *bufio.Reader
	n         int   // number of the current object
	remaining int   // number of bytes that the current object may still have
	err       error // first error; after it, nothing more is read
}

// NewReader returns a Reader. It reads from r only during Next, and may read ahead.
func NewReader(r io.Reader) *Reader { return &Reader{in: bufio.NewReader(r)} }

// Next returns the next object, or io.EOF. A syntax error is a *resourcesync.Error that names the
// object, the attribute and the rule. Other errors wrap those of the underlying reader. After an
// error, Next returns the same error again.
func (r *Reader) Next() (*Object, error) {
	if r.err != nil {
		return nil, r.err
	}
	r.remaining = maxObject
	begin := r.readWord()
	if r.err == io.EOF {
		return nil, r.err
	}
	r.n++
	o := new(Object)
	if r.readObject(o, begin); r.err == nil {
		return o, nil
	}
	r.err = r.wrapError(o, textError(r.err))
	return nil, r.err
}

// textError returns the *resourcesync.Error for a read error that is caused by the text, and other
// errors unchanged.
func textError(err error) error {
	if invalid, ok := errors.AsType[*resourcesync.Error](problem.BodyError(err)); ok {
		return invalid
	}
	return err
}

// wrapError returns an error that names the current object, as far as it was read.
func (r *Reader) wrapError(o *Object, err error) error {
	return resourcesync.Wrap(fmt.Sprintf("object %d (%s)", r.n, resourcesync.Shorten("@"+o.Type+" "+o.URL)), err)
}

// readObject reads the rest of an object whose first word was read. It does nothing after an error.
func (r *Reader) readObject(o *Object, begin string) {
	const form = "want @, the type, { and the URL of an object, or - without a URL, as in @DOCUMENT { -"
	var ok bool
	if o.Type, ok = strings.CutPrefix(begin, "@"); !ok || o.Type == "" {
		r.fail("unexpected %q; %s", resourcesync.Shorten(begin), form)
	}
	if brace := r.readWord(); brace != "{" {
		r.fail("unexpected %q; %s", resourcesync.Shorten(brace), form)
	}
	if o.URL = r.readWord(); o.URL == "}" {
		r.fail("missing URL; %s", form)
	}
	for word := r.readWord(); word != "}" && r.err == nil; word = r.readWord() {
		head := attributeHead.FindStringSubmatch(word)
		if head == nil {
			r.fail("unexpected %q; want a name, the size of the value in braces, a colon and a tab, as in Title{5}:\tHello", resourcesync.Shorten(word))
			return
		}
		value := r.readValue(head[2])
		if r.err != nil {
			r.err = resourcesync.Wrap("attribute "+head[1], textError(r.err))
		}
		o.Attributes = append(o.Attributes, Attribute{head[1], value})
		r.remaining -= attributeOverhead
	}
}

// readValue reads the white-space character before a value, and the value.
func (r *Reader) readValue(digits string) string {
	size, err := strconv.Atoi(digits)
	if err != nil || size > r.remaining {
		r.failTooLarge()
		return ""
	}
	var text bytes.Buffer // it grows as data arrives, regardless of the declared size
	if _, r.err = io.CopyN(&text, r.in, int64(1+size)); r.err != nil {
		if r.err == io.EOF {
			r.err = io.ErrUnexpectedEOF
		}
		return ""
	}
	r.remaining -= text.Len()
	var next []byte
	if next, r.err = r.in.Peek(1); r.err == nil && !isSpace(next[0]) {
		r.fail("value does not end after %d bytes: got %q, want the end of the line; the size is in bytes", size, next[0])
	}
	return text.String()[1:]
}

// readWord reads the next word and skips the white space before it, but not that after it. After an
// error it returns "".
func (r *Reader) readWord() string {
	var word []byte
	for ; r.err == nil; r.remaining-- {
		c, err := r.in.ReadByte()
		switch {
		case err == io.EOF && len(word) > 0:
			return string(word)
		case err != nil:
			r.err = err
		case r.remaining <= 0:
			r.failTooLarge()
		case !isSpace(c):
			word = append(word, c)
		case len(word) > 0:
			r.err = r.in.UnreadByte()
			return string(word)
		}
	}
	return ""
}

// fail sets the error, unless it is already set.
func (r *Reader) fail(rule string, args ...any) {
	if r.err == nil {
		r.err = resourcesync.Invalidf(rule, args...)
	}
}

func (r *Reader) failTooLarge() {
	r.err = &resourcesync.Error{Err: resourcesync.ErrTooLarge, Msg: fmt.Sprintf("object is too large; want at most %d bytes", maxObject)}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
