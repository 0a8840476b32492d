package resourcesync

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rshub/rshub/internal/xmlrepair"
)

// xmlSpace is what XML 1.0 counts as white space.
const xmlSpace = " \t\r\n"

func trim(s string) string {
	trimmed := strings.Trim(s, xmlSpace)
	if len(trimmed) < len(s) {
		return strings.Clone(trimmed) // the space, which may be long, must not stay in memory
	}
	return s
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
		return s
	}
	return strings.Join(strings.Fields(s), " ")
}

// isOneSpaced reports whether exactly one space is between the words of s, and none is
// before or after them.
func isOneSpaced(s string) bool {
	for _, c := range []byte("\t\n\r") {
		if strings.IndexByte(s, c) >= 0 {
			return false
		}
	}
	return s == "" || s[0] != ' ' && s[len(s)-1] != ' ' && !strings.Contains(s, "  ")
}

// badText says why XML cannot carry s. It returns "" if XML can.
func badText(s string) string {
	for i := 0; i < len(s); {
		if b := s[i]; 0x20 <= b && b < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return "it is not valid UTF-8"
		case !xmlrepair.IsChar(r):
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

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }
func isDigit(b byte) bool  { return '0' <= b && b <= '9' }
func isHex(b byte) bool    { return classes[b]&hexDigit != 0 }

// The classes of a byte.
const (
	hexDigit  = 1 << iota
	uriChar   // stands in a URI for itself, wherever it is (RFC 3986)
	tokenChar // of a token of HTTP (RFC 9110, section 5.6.2)
	plainChar // of a JSON string, and stands for itself there
	xmlChar   // of a text in XML, and stands for itself there
)

// classes has the classes of each byte. They are looked up for each byte of what is published.
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

// plainLen returns how many of the first bytes of s stand for themselves in a JSON string. It
// looks at eight bytes at once: most of what is published and delivered is such bytes.
func plainLen(s string) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; len(s)-n >= 8; n += 8 {
		t := s[n : n+8]
		w := uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24 | uint64(t[4])<<32 | uint64(t[5])<<40 | uint64(t[6])<<48 | uint64(t[7])<<56
		quote, backslash := w^'"'*ones, w^'\\'*ones
		// The high bit of a byte is set if it is below 0x20, is zero, or is set already.
		if (w|(w-0x20*ones)|(quote-ones)&^quote|(backslash-ones)&^backslash)&high != 0 {
			break
		}
	}
	for n < len(s) && classes[s[n]]&plainChar != 0 {
		n++
	}
	return n
}

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
