package resourcesync

import (
	"strings"

	"github.com/rshub/rshub/internal/idn"
)

// CheckURI returns nil when s is an absolute URI (RFC 3986) of at most 2,048
// bytes. The error is an *Error that begins with name.
func CheckURI(name, s string) error {
	if rule := uriRule(name, s); rule != "" {
		return &Error{Err: ErrInvalid, Msg: rule}
	}
	return nil
}

// badURI says why s is not an absolute URI (RFC 3986, section 3). It returns "" if s
// is one. A fragment is allowed.
func badURI(s string) string {
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok || !isScheme(scheme) {
		return `it is not an absolute URI, which begins like "https://"`
	}
	// Brackets are allowed only around an IP address, so only within the host.
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
	if isWeb(scheme) && (!hasAuthority || !hasHost(authority)) {
		return "it has no host"
	}
	fragment := false
	for i := 0; i < len(rest); i++ {
		switch b := rest[i]; {
		case classes[b]&uriChar != 0:
		case b == '[' || b == ']':
			if i >= hostEnd {
				return "a bracket in a URI is percent-encoded"
			}
		case b == '#':
			if fragment {
				return `a URI has one "#" at most`
			}
			fragment = true
		case b == '%':
			if i+2 >= len(rest) || !isHex(rest[i+1]) || !isHex(rest[i+2]) {
				return `two hex digits follow a "%" in a URI`
			}
		case b >= 0x80 && i < hostEnd && badHost(s) != "":
			return badHost(s)
		case b >= 0x80:
			return "letters other than ASCII's are percent-encoded in a URI"
		case b <= ' ' || b == 0x7F:
			return "a URI has no spaces or control characters"
		default:
			return "a URI does not have the character " + quote(string(b))
		}
	}
	return ""
}

// badHost says that the host of an absolute URI is not in ASCII, even if it is
// percent-encoded. No such host exists in DNS.
func badHost(s string) string {
	ascii, err := idn.URL(s)
	switch {
	case err != nil:
		return "its host is not in ASCII, and has no form with xn--"
	case ascii != s:
		return "its host is not in ASCII; use " + quote(ascii)
	}
	return ""
}

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

func isWeb(scheme string) bool {
	return strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")
}

// hasHost reports whether authority, [userinfo@]host[:port], has a host.
func hasHost(authority string) bool {
	host := authority[strings.LastIndexByte(authority, '@')+1:]
	return host != "" && host[0] != ':'
}
