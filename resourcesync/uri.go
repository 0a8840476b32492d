package resourcesync

import (
	"strings"
	"unicode/utf8"

	"github.com/rshub/rshub/internal/idn"
)

// CheckURI returns nil if s is an absolute URI (RFC 3986) of at most 2,048 bytes. Otherwise
// it returns an *Error that wraps ErrInvalid and whose Msg starts with name.
func CheckURI(name, s string) error {
	if msg := uriViolation(name, s); msg != "" {
		return &Error{Err: ErrInvalid, Msg: msg}
	}
	return nil
}

// badURI describes why s is not an absolute URI (RFC 3986, section 3). It returns "" if s
// is one. A fragment is allowed.
func badURI(s string) string {
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok || !isScheme(scheme) {
		return "got " + quote(s) + ", want an absolute URI such as https://example.org/a"
	}
	// Brackets are allowed only around an IP address, that is, only in the host.
	hostEnd := 0
	authority, hasAuthority := strings.CutPrefix(rest, "//")
	if hasAuthority {
		i := 0
		for i < len(authority) && authority[i] != '/' && authority[i] != '?' && authority[i] != '#' {
			i++
		}
		authority = authority[:i]
		hostEnd = i + len("//")
	}
	if isHTTP(scheme) && (!hasAuthority || !hasHost(authority)) {
		return "got " + quote(s) + ", want a URI with a host"
	}
	fragment := false
	for i := 0; i < len(rest); i++ {
		switch b := rest[i]; {
		case classes[b]&uriChar != 0:
		case b == '[' || b == ']':
			if i >= hostEnd {
				return "bracket " + quote(string(b)) + " is allowed only in the host; percent-encode it"
			}
		case b == '#':
			if fragment {
				return `got more than one "#", want at most one`
			}
			fragment = true
		case b == '%':
			if i+2 >= len(rest) || !isHex(rest[i+1]) || !isHex(rest[i+2]) {
				return "got " + quote(rest[i:min(i+3, len(rest))]) + `, want "%" and two hex digits`
			}
		case b >= 0x80 && i < hostEnd && badHost(s) != "":
			return badHost(s)
		case b >= 0x80:
			r, _ := utf8.DecodeRuneInString(rest[i:])
			return "character " + quote(string(r)) + " is not ASCII; percent-encode it"
		case b <= ' ' || b == 0x7F:
			return "spaces and control characters are not allowed"
		default:
			return "character " + quote(string(b)) + " is not allowed; percent-encode it"
		}
	}
	return ""
}

// badHost describes why the host of s, an absolute URI, is not ASCII, even if it is
// percent-encoded. No such host exists in DNS. It returns "" if the host is ASCII.
func badHost(s string) string {
	ascii, err := idn.URL(s)
	switch {
	case err != nil:
		return "host is not ASCII and has no form with xn--"
	case ascii != s:
		return "host is not ASCII; use " + quote(ascii)
	}
	return ""
}

// isScheme reports whether s is the scheme of a URI (RFC 3986, section 3.1).
func isScheme(s string) bool {
	for i := range len(s) {
		switch b := s[i]; {
		case isLetter(b):
		case i > 0 && (isDigit(b) || b == '+' || b == '-' || b == '.'):
		default:
			return false
		}
	}
	return s != ""
}

// isHTTP reports whether scheme is http or https, in any case.
func isHTTP(scheme string) bool {
	return strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")
}

// hasHost reports whether authority, of the form [userinfo@]host[:port], has a host.
func hasHost(authority string) bool {
	host := authority[strings.LastIndexByte(authority, '@')+1:]
	return host != "" && host[0] != ':'
}
