// Package xmlrepair makes XML readable that is not well-formed in a few places, such as a title
// with a control character or a URL with an unescaped ampersand. Such a place must not hide the
// rest of a document.
//
// It replaces invalid text with a mark, so that a reader can skip the entry. It never repairs
// faults that could hide entries. Packages resourcesync (if its Reader tolerates faults), harvest
// and oaipmh use it; documents sent to a hub are read strictly.
package xmlrepair

import (
	"bufio"
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Damage replaces each piece of text that is not well-formed. It is a noncharacter, which Unicode
// reserves for internal use.
const Damage = '\uFDD0'

// IsDamaged reports whether a text contains a piece that was not well-formed.
func IsDamaged(text []byte) bool { return bytes.Contains(text, damage) }

var damage = []byte(string(Damage))

// maxReference is the maximum length of a character or entity reference in bytes.
const maxReference = 64

// A Reader reads a document in UTF-8 and replaces with Damage what XML 1.0 forbids in text,
// attribute values, comments, processing instructions and CDATA sections: bytes that are not UTF-8,
// forbidden characters and references to them, undefined entities, "]]>" and "<" in text. It
// preserves line endings. It neither checks nor changes anything that may hide elements: tags, a
// "<" in an attribute value, "--" in a comment.
type Reader struct {
	in       *bufio.Reader
	entities map[string]string // additional defined entities
	context  context           // of the next byte of in
	quote    byte              // around the current attribute value
	out      []byte            // repaired bytes
	off      int               // number of bytes of out that were read
	err      error             // first error of in, returned after the bytes before it
}

// A context is the kind of markup that the next byte belongs to. It determines which bytes are
// special.
type context uint8

const (
	inText context = 1 << iota
	inTag
	inValue
	inComment
	inCDATA
	inInstruction
	inDeclaration // <!DOCTYPE …>
)

// everywhere marks bytes that are special in every context.
const everywhere = inText | inTag | inValue | inComment | inCDATA | inInstruction | inDeclaration

// special holds the contexts in which a byte may need a repair or change the context.
var special = func() (t [256]context) {
	for i := range t {
		if i < ' ' && i != '\t' && i != '\n' && i != '\r' || i >= utf8.RuneSelf {
			t[i] = everywhere
		}
	}
	t['<'] = inText
	t['&'] = inText | inValue
	t[']'] = inText | inCDATA
	t['"'] = inTag | inValue
	t['\''] = t['"']
	t['>'] = inTag | inDeclaration
	t['-'] = inComment
	t['?'] = inInstruction
	return t
}()

// NewReader returns a Reader of in. References to entities, whose names are without ampersands and
// semicolons, are left to the caller's decoder, like those that XML defines.
func NewReader(in *bufio.Reader, entities map[string]string) *Reader {
	return &Reader{in: in, entities: entities, context: inText}
}

// Read reads repaired bytes.
func (r *Reader) Read(p []byte) (int, error) {
	if err := r.fill(); err != nil {
		return 0, err
	}
	n := copy(p, r.out[r.off:])
	r.off += n
	return n, nil
}

// ReadByte reads a repaired byte.
func (r *Reader) ReadByte() (byte, error) {
	if r.off == len(r.out) {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	r.off++
	return r.out[r.off-1], nil
}

// fill repairs the next bytes if out has been read completely.
func (r *Reader) fill() error {
	for r.off == len(r.out) {
		if len(r.peek(1)) == 0 {
			return r.err
		}
		b, _ := r.in.Peek(r.in.Buffered())
		n := 0
		for n < len(b) && special[b[n]]&r.context == 0 {
			n++
		}
		r.out, r.off = append(r.out[:0], b[:n]...), 0
		_, _ = r.in.Discard(n)
		if n < len(b) {
			r.repair(b[n])
		}
	}
	return nil
}

// repair handles the special byte c, which is the next one, and the markup that it starts.
func (r *Reader) repair(c byte) {
	switch {
	case c >= utf8.RuneSelf:
		b := r.peek(utf8.UTFMax)
		if char, size := utf8.DecodeRune(b); char == utf8.RuneError && size == 1 || !IsChar(char) {
			r.markDamage(size)
		} else {
			r.pass(b[:size])
		}
	case c < ' ':
		r.markDamage(1)
	case r.context == inText && c == '<':
		r.markup()
	case c == '&':
		r.reference()
	case c == ']' && bytes.HasPrefix(r.peek(3), []byte("]]>")):
		if r.context == inText {
			r.markDamage(3)
			return
		}
		r.enter(inText, "]]>")
	case c == '-' && bytes.HasPrefix(r.peek(3), []byte("-->")):
		r.enter(inText, "-->")
	case c == '?' && bytes.HasPrefix(r.peek(2), []byte("?>")):
		r.enter(inText, "?>")
	case c == '>':
		r.enter(inText, ">")
	case c == '"' || c == '\'':
		r.quotationMark(c)
	default:
		r.pass([]byte{c})
	}
}

// markup handles a "<" in text.
func (r *Reader) markup() {
	b := r.peek(len("<![CDATA["))
	switch {
	case bytes.HasPrefix(b, []byte("<!--")):
		r.enter(inComment, "<!--")
	case bytes.HasPrefix(b, []byte("<![CDATA[")):
		r.enter(inCDATA, "<![CDATA[")
	case bytes.HasPrefix(b, []byte("<!")):
		r.enter(inDeclaration, "<!")
	case bytes.HasPrefix(b, []byte("<?")):
		r.enter(inInstruction, "<?")
	case len(b) > 1 && isNameStart(b[1]), bytes.HasPrefix(b, []byte("</")), len(b) == 1:
		r.enter(inTag, "<")
	default:
		r.markDamage(1)
	}
}

// quotationMark handles a quotation mark within a tag.
func (r *Reader) quotationMark(c byte) {
	switch {
	case r.context == inTag:
		r.quote = c
		r.enter(inValue, string(c))
	case r.quote == c:
		r.enter(inTag, string(c))
	default: // the other mark, within a value
		r.pass([]byte{c})
	}
}

// reference handles an ampersand in text or an attribute value.
func (r *Reader) reference() {
	b := r.peek(maxReference)
	end := bytes.IndexByte(b, ';')
	if end < 0 {
		r.markDamage(1)
		return
	}
	name := string(b[1:end])
	switch {
	case r.isDefined(name):
		r.pass(b[:end+1])
	case isReference(name):
		r.markDamage(end + 1)
	default: // the semicolon is unrelated
		r.markDamage(1)
	}
}

// isDefined reports whether &name; is a reference that XML or the caller defines.
func (r *Reader) isDefined(name string) bool {
	switch name {
	case "lt", "gt", "amp", "apos", "quot":
		return true
	}
	if digits, ok := strings.CutPrefix(name, "#"); ok {
		base := 10
		if hex, ok := strings.CutPrefix(digits, "x"); ok {
			digits, base = hex, 16
		}
		n, err := strconv.ParseUint(digits, base, 32)
		return err == nil && n <= utf8.MaxRune && IsChar(rune(n))
	}
	_, ok := r.entities[name]
	return ok
}

// isReference reports whether name has the form of an entity name or a character reference.
func isReference(name string) bool {
	for i := range len(name) {
		if c := name[i]; !isNameStart(c) && (c < '0' || c > '9') && (c != '#' || i > 0) {
			return false
		}
	}
	return name != ""
}

func isNameStart(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_' || c == ':' || c >= utf8.RuneSelf
}

// IsChar reports whether XML 1.0 allows a character (section 2.2).
func IsChar(c rune) bool {
	return c == '\t' || c == '\n' || c == '\r' ||
		0x20 <= c && c <= 0xD7FF ||
		0xE000 <= c && c <= 0xFFFD ||
		0x10000 <= c && c <= utf8.MaxRune
}

// DeclarationRule returns the rule that a declaration such as <!DOCTYPE urlset> violates, or "".
// text is the text between "<!" and ">". Only a document type without declarations of its own is
// allowed, and only if first is true: before the root, once. Other declarations may hide elements.
func DeclarationRule(text []byte, first bool) string {
	fields := bytes.Fields(text)
	switch {
	case !first || len(fields) == 0 || !bytes.EqualFold(fields[0], []byte("DOCTYPE")):
		return "a declaration (<!) is not allowed here"
	case bytes.ContainsAny(text, "[<"):
		return "a document type declaration (<!DOCTYPE) must not declare entities or elements"
	}
	return ""
}

// peek returns the next n bytes, or fewer if in ends or fails before.
func (r *Reader) peek(n int) []byte {
	if r.err != nil {
		n = min(n, r.in.Buffered())
	}
	b, err := r.in.Peek(n)
	if r.err == nil {
		r.err = err
	}
	return b
}

// pass copies the next bytes, which peek returned, to the output.
func (r *Reader) pass(b []byte) {
	r.out = append(r.out, b...)
	_, _ = r.in.Discard(len(b))
}

// enter copies the next bytes, which start a context, to the output.
func (r *Reader) enter(c context, bytes string) {
	r.context = c
	r.pass([]byte(bytes))
}

// markDamage replaces the next n bytes with Damage.
func (r *Reader) markDamage(n int) {
	r.out = append(r.out, damage...)
	_, _ = r.in.Discard(n)
}
