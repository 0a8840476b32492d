package resourcesync

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// xmlSpace is what XML 1.0 counts as white space.
const xmlSpace = " \t\r\n"

func trim(s string) string {
	return strings.Trim(s, xmlSpace)
}

func blank(b []byte) bool {
	for _, c := range b {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return false
		}
	}
	return true
}

// oneSpace puts one space between the words of s.
func oneSpace(s string) string {
	if isOneSpaced(s) {
		return s // nearly every hash
	}
	return strings.Join(strings.Fields(s), " ")
}

// isOneSpaced reports whether exactly one space is between the words of s, and none is
// before or after them.
func isOneSpaced(s string) bool {
	return s == "" || s[0] != ' ' && s[len(s)-1] != ' ' && !strings.Contains(s, "  ") &&
		strings.IndexByte(s, '\t') < 0 && strings.IndexByte(s, '\n') < 0 && strings.IndexByte(s, '\r') < 0
}

// isXMLChar reports whether XML 1.0 can carry r (XML 1.0, section 2.2).
func isXMLChar(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' ||
		0x20 <= r && r <= 0xD7FF ||
		0xE000 <= r && r <= 0xFFFD ||
		0x10000 <= r && r <= 0x10FFFF
}

// badText says why XML cannot carry s. It returns "" if XML can.
func badText(s string) string {
	for i := plain(s); i < len(s); {
		if b := s[i]; 0x20 <= b && b < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return "it is not valid UTF-8"
		case !isXMLChar(r):
			return "XML cannot carry the character U+" + strings.ToUpper(strconv.FormatInt(int64(r)+0x10000, 16)[1:])
		}
		i += size
	}
	return ""
}

// hasControl reports whether s has a control character. Tabs and line ends are control
// characters.
func hasControl(s string) bool {
	return strings.ContainsFunc(s, unicode.IsControl)
}

// isNCName reports whether s is a name without a colon (Namespaces in XML 1.0,
// section 3), in ASCII. XML allows more letters, but its editions disagree which, and
// so do its tools.
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

// A class is a set of bytes.
type class uint8

const (
	plainInURI  class = 1 << iota // behind the scheme of a URI that isPlainURI takes
	plainInHost                   // the first byte of its host
	inToken                       // of HTTP (RFC 9110, section 5.6.2)
	hexDigit
	printable // in ASCII, spaces among them
)

// classes has the classes of each byte. A look into it is quicker than comparisons.
var classes = func() (of [256]class) {
	for i := range of {
		b := byte(i)
		mark := func(c class, in bool) {
			if in {
				of[i] |= c
			}
		}
		letter := isLetter(b) || isDigit(b)
		mark(plainInURI, letter || strings.IndexByte("-._~:/?!$&'()*+,;=", b) >= 0)
		mark(plainInHost, letter)
		mark(inToken, letter || strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0)
		mark(hexDigit, isHex(b))
		mark(printable, ' ' <= b && b <= '~')
	}
	return of
}()

// is reports whether a byte is of a class.
func is(b byte, c class) bool { return classes[b]&c != 0 }

// all reports whether all bytes of s are of a class.
func all(s string, c class) bool {
	for i := range len(s) {
		if classes[s[i]]&c == 0 {
			return false
		}
	}
	return true
}

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }
func isDigit(b byte) bool  { return '0' <= b && b <= '9' }
func isHex(b byte) bool    { return isDigit(b) || 'a' <= b|0x20 && b|0x20 <= 'f' }

// Shorten makes s fit for a message: one line of about 120 bytes at most. Characters
// that cannot be printed become U+FFFD.
func Shorten(s string) string {
	const most = 120
	if len(s) > most {
		cut := most
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

func quote(s string) string {
	return strconv.Quote(Shorten(s))
}
