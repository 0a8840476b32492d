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

// single returns the values of attributes that have one at most, without white space around them.
func (o *Object) single(names ...string) (map[string]string, error) {
	values := map[string]string{}
	for _, name := range names {
		all := o.Values(name)
		if len(all) > 1 {
			return nil, resourcesync.Invalidf("attribute %s has %d values, and may have one", name, len(all))
		}
		values[name] = strings.TrimSpace(strings.Join(all, ""))
	}
	return values, nil
}

const (
	maxObject     = 1 << 20 // bytes that an object has at most when it is read
	attributeRoom = 64      // bytes for which each attribute counts besides its text: it takes them in memory
)

// attributeHead is what stands before a value: its name, its size in bytes, and a colon.
var attributeHead = regexp.MustCompile(`^([\w.-]+)\{(\d+)\}:$`)

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
// names the object, the attribute and the rule. Other errors wrap those of the reader. After an
// error, Next returns the same one again.
func (r *Reader) Next() (*Object, error) {
	if r.err != nil {
		return nil, r.err
	}
	r.left = maxObject
	begin := r.word()
	if r.err == io.EOF {
		return nil, r.err
	}
	r.n++
	o := new(Object)
	if r.object(o, begin); r.err == nil {
		return o, nil
	}
	r.err = r.about(o, ofText(r.err))
	return nil, r.err
}

// ofText makes an error about the text of one of reading, if the text is at fault.
func ofText(err error) error {
	if wrong, ok := errors.AsType[*resourcesync.Error](problem.BodyError(err)); ok {
		return wrong
	}
	return err
}

// about returns an error that names the newest object, as far as it was read.
func (r *Reader) about(o *Object, err error) error {
	return resourcesync.Wrap(fmt.Sprintf("object %d (%s)", r.n, resourcesync.Shorten("@"+o.Type+" "+o.URL)), err)
}

// object reads an object whose first word was read, unless there is an error already.
func (r *Reader) object(o *Object, begin string) {
	const form = "an object begins with @, its type, { and its URL, or - if it has none, as in @DOCUMENT { -"
	var ok bool
	if o.Type, ok = strings.CutPrefix(begin, "@"); !ok || o.Type == "" {
		r.fail("%q is not expected here: %s", resourcesync.Shorten(begin), form)
	}
	if brace := r.word(); brace != "{" {
		r.fail("%q is not expected here: %s", resourcesync.Shorten(brace), form)
	}
	if o.URL = r.word(); o.URL == "}" {
		r.fail("it has no URL: %s", form)
	}
	for word := r.word(); word != "}" && r.err == nil; word = r.word() {
		head := attributeHead.FindStringSubmatch(word)
		if head == nil {
			r.fail("%q is not expected here: a name is followed by the size of the value in braces, a colon and a tab, as in Title{5}:\tHello", resourcesync.Shorten(word))
			return
		}
		value := r.value(head[2])
		if r.err != nil {
			r.err = resourcesync.Wrap("attribute "+head[1], ofText(r.err))
		}
		o.Attributes = append(o.Attributes, Attribute{head[1], value})
		r.left -= attributeRoom
	}
}

// value reads the tab before a value, or another white space, and the value.
func (r *Reader) value(digits string) string {
	size, err := strconv.Atoi(digits)
	if err != nil || size > r.left {
		r.tooLarge()
		return ""
	}
	var text bytes.Buffer // it grows with what comes, whatever size is said
	if _, r.err = io.CopyN(&text, r.in, int64(1+size)); r.err != nil {
		if r.err == io.EOF {
			r.err = io.ErrUnexpectedEOF
		}
		return ""
	}
	r.left -= text.Len()
	var behind []byte
	if behind, r.err = r.in.Peek(1); r.err == nil && !isBlank(behind[0]) {
		r.fail("its value does not end after %d bytes, where %q follows: the size counts bytes, and a line ends behind the value", size, behind[0])
	}
	return text.String()[1:]
}

// word reads what stands between white spaces, and not the second of these. After an error it
// returns nothing.
func (r *Reader) word() string {
	var word []byte
	for ; r.err == nil; r.left-- {
		c, err := r.in.ReadByte()
		switch {
		case err == io.EOF && len(word) > 0:
			return string(word)
		case err != nil:
			r.err = err
		case r.left <= 0:
			r.tooLarge()
		case !isBlank(c):
			word = append(word, c)
		case len(word) > 0:
			r.err = r.in.UnreadByte()
			return string(word)
		}
	}
	return ""
}

// fail sets the error, if there is none yet.
func (r *Reader) fail(rule string, args ...any) {
	if r.err == nil {
		r.err = resourcesync.Invalidf(rule, args...)
	}
}

func (r *Reader) tooLarge() {
	r.err = &resourcesync.Error{Err: resourcesync.ErrTooLarge, Msg: fmt.Sprintf("an object has at most %d bytes", maxObject)}
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
