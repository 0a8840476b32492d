package resourcesync

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rshub/rshub/internal/xmlrepair"
)

// xmlSpace is the white space of XML 1.0.
const xmlSpace = " \t\r\n"

// trim returns s without leading and trailing xmlSpace. The result does not retain the space.
func trim(s string) string {
	trimmed := strings.Trim(s, xmlSpace)
	if len(trimmed) < len(s) {
		return strings.Clone(trimmed) // do not keep the space in memory, as it may be long
	}
	return s
}

// isBlank reports whether b consists of xmlSpace only.
func isBlank(b []byte) bool {
	for _, c := range b {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return false
		}
	}
	return true
}

// normalizeSpace returns the words of s separated by one space each. It allocates nothing
// if s already has this form.
func normalizeSpace(s string) string {
	if isSpaceNormalized(s) {
		return s
	}
	return strings.Join(strings.Fields(s), " ")
}

// isSpaceNormalized reports whether the words of s are separated by exactly one space, with
// none before or after them.
func isSpaceNormalized(s string) bool {
	for _, c := range []byte("\t\n\r") {
		if strings.IndexByte(s, c) >= 0 {
			return false
		}
	}
	return s == "" || s[0] != ' ' && s[len(s)-1] != ' ' && !strings.Contains(s, "  ")
}

// badText describes why XML cannot represent s. It returns "" if XML can.
func badText(s string) string {
	for i := 0; i < len(s); {
		if b := s[i]; 0x20 <= b && b < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return "not valid UTF-8"
		case !xmlrepair.IsChar(r):
			return "XML cannot represent the character U+" + strings.ToUpper(strconv.FormatInt(int64(r)+0x10000, 16)[1:])
		}
		i += size
	}
	return ""
}

// hasControl reports whether s has a control character, such as a tab or a line end.
func hasControl(s string) bool {
	return strings.ContainsFunc(s, unicode.IsControl)
}

// isNCName reports whether s is a name without a colon (Namespaces in XML 1.0, section
// 3), in ASCII. XML allows more letters, but its editions, and hence its tools, disagree
// about which.
func isNCName(s string) bool {
	for i := range len(s) {
		switch b := s[i]; {
		case isLetter(b) || b == '_':
		case i > 0 && (isDigit(b) || b == '-' || b == '.'):
		default:
			return false
		}
	}
	return s != ""
}

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }
func isDigit(b byte) bool  { return '0' <= b && b <= '9' }
func isHex(b byte) bool    { return classes[b]&hexDigit != 0 }

// The classes of a byte, as bits.
const (
	hexDigit  = 1 << iota
	uriChar   // allowed literally in any part of a URI (RFC 3986)
	tokenChar // allowed in a token of HTTP (RFC 9110, section 5.6.2)
	plainChar // needs no escape in a JSON string
	xmlChar   // needs no escape in XML text
)

// classes maps each byte to its classes. It is used for every byte that is published.
var classes = func() (all [256]uint8) {
	for i := range all {
		b := byte(i)
		if isDigit(b) || 'a' <= b|0x20 && b|0x20 <= 'f' {
			all[b] |= hexDigit
		}
		if isLetter(b) || isDigit(b) || strings.IndexByte("-._~:/?@!$&'()*+,;=", b) >= 0 {
			all[b] |= uriChar
		}
		if isLetter(b) || isDigit(b) || strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0 {
			all[b] |= tokenChar
		}
		if 0x20 <= b && b < utf8.RuneSelf && b != '"' && b != '\\' {
			all[b] |= plainChar
		}
		if 0x20 <= b && b < utf8.RuneSelf && strings.IndexByte(`&<>"`, b) < 0 {
			all[b] |= xmlChar
		}
	}
	return all
}()

// plainLen returns the length of the longest prefix of s whose bytes need no escape in a
// JSON string. It examines eight bytes at a time, because most bytes that are published
// and delivered are such bytes.
func plainLen(s string) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; len(s)-n >= 8; n += 8 {
		t := s[n : n+8]
		w := uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24 | uint64(t[4])<<32 | uint64(t[5])<<40 | uint64(t[6])<<48 | uint64(t[7])<<56
		quote, backslash := w^'"'*ones, w^'\\'*ones
		// The high bit of a byte becomes set if the byte is below 0x20, a quote, a backslash or
		// not ASCII. A borrow may set the high bit of a byte above such a byte as well, which is
		// harmless, because the loop below finds the first one.
		if (w|(w-0x20*ones)|(quote-ones)&^quote|(backslash-ones)&^backslash)&high != 0 {
			break
		}
	}
	for n < len(s) && classes[s[n]]&plainChar != 0 {
		n++
	}
	return n
}

// Shorten returns s in a form that fits in a message: one line of about 120 bytes at most.
// It replaces characters that are not printable with U+FFFD.
func Shorten(s string) string {
	const limit = 120
	if len(s) > limit {
		cut := limit
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// quote returns s shortened and quoted, for error messages.
func quote(s string) string {
	return strconv.Quote(Shorten(s))
}
