// Package plainjson reads JSON that is as plain as programs write it: strings of ASCII
// without escapes, and no white space but one space behind a comma or a colon. It is
// several times as fast as a decoder of all of JSON, allocates nothing, and explains
// nothing: whoever meets something else begins again with such a decoder, which also says
// what is wrong.
package plainjson

import (
	"encoding/binary"
	"math/bits"
)

// A Reader reads a text from its beginning to its end. When it meets something that is not
// plain, it fails: from then on Ok is false, and what it returns has no meaning.
type Reader struct {
	text string
	at   int
	bad  bool
}

// NewReader returns a Reader of a text. The strings that it returns are parts of the text,
// and keep all of it in memory.
func NewReader(text string) Reader { return Reader{text: text} }

// Ok reports whether all was plain so far.
func (r *Reader) Ok() bool { return !r.bad }

// Fail has Ok return false, for a caller who does not understand what was read.
func (r *Reader) Fail() { r.bad = true }

// At returns how many bytes were read.
func (r *Reader) At() int { return r.at }

// Done reports whether all of the text was read, and was plain.
func (r *Reader) Done() bool { return !r.bad && r.at == len(r.text) }

// Next reads the beginning of the next member or element. begin is the bracket that opens
// the object or the array; first says that nothing of it was read yet, not even begin. Next
// returns false at the end of it, which it reads, and when it fails.
func (r *Reader) Next(begin byte, first bool) bool {
	c := r.byte()
	switch {
	case first && c == begin:
		if r.peek() != begin+2 { // in ASCII, ']' and '}' are two behind '[' and '{'
			return true
		}
		r.at++
		return false
	case !first && c == ',':
		r.space()
		return !r.bad
	case !first && c == begin+2:
		return false
	}
	r.bad = true
	return false
}

// Name reads the name of a member, and the colon.
func (r *Reader) Name() string {
	name := r.String()
	if r.byte() != ':' {
		r.bad = true
	}
	r.space()
	return name
}

// String reads a string.
func (r *Reader) String() string {
	if r.byte() != '"' {
		r.bad = true
		return ""
	}
	begin := r.at
	end := endOfPlain(r.text, begin)
	if end == len(r.text) || r.text[end] != '"' {
		r.bad = true
		return ""
	}
	r.at = end + 1
	return r.text[begin:end]
}

// Number reads a number that is not negative, and has no fraction and at most 18 digits.
func (r *Reader) Number() (n int64) {
	begin := r.at
	for c := r.peek(); '0' <= c && c <= '9'; c = r.peek() {
		n = n*10 + int64(c-'0')
		r.at++
	}
	if digits := r.at - begin; digits == 0 || digits > 18 || digits > 1 && r.text[begin] == '0' {
		r.bad = true
	}
	return n
}

// peek returns the next byte, 0 at the end.
func (r *Reader) peek() byte {
	if r.at < len(r.text) {
		return r.text[r.at]
	}
	return 0
}

// byte reads the next byte. It is 0 at the end, and after a failure.
func (r *Reader) byte() byte {
	if r.bad || r.at >= len(r.text) {
		return 0
	}
	r.at++
	return r.text[r.at-1]
}

func (r *Reader) space() {
	if r.peek() == ' ' {
		r.at++
	}
}

// endOfPlain returns the index from i on of the first byte that ends a plain string: a
// quote, a backslash, a control character, or one that is not ASCII. It is len(s) if there
// is none. endOfPlain looks at eight bytes at a time: in each of the terms of found, the
// highest bit of a byte is set if that byte ends the string. A borrow can set it in
// later bytes too, but the first one is right.
func endOfPlain(s string, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(s); i += 8 {
		w := binary.LittleEndian.Uint64([]byte(s[i : i+8]))
		quote, backslash := w^ones*'"', w^ones*'\\'
		found := (w | (w-ones*' ')&^w | (quote-ones)&^quote | (backslash-ones)&^backslash) & highs
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c >= 0x80 || c == '"' || c == '\\' {
			return i
		}
	}
	return i
}
