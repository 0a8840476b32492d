// Package idn converts internationalized host names in URLs to ASCII (RFC 5891), as DNS requires.
//
// Everything that is read from a source or a configuration is converted, so that one host has one
// spelling. Paths and queries are not changed.
package idn

import (
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/net/idna"
)

// profile maps names as browsers do. It allows the underscores that some DNS names have.
var profile = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false), idna.VerifyDNSLength(true))

// IsASCII reports whether a host contains only ASCII characters.
func IsASCII(host string) bool {
	for i := range len(host) {
		if host[i] >= 0x80 {
			return false
		}
	}
	return true
}

// Host converts the host of u to ASCII.
func Host(u *url.URL) error {
	if IsASCII(u.Host) {
		return nil
	}
	host, err := ToASCII(u.Hostname())
	if err != nil {
		return err
	}
	if port := u.Port(); port != "" {
		host += ":" + port
	}
	u.Host = host
	return nil
}

// ToASCII converts a host to ASCII.
func ToASCII(host string) (string, error) {
	name, err := profile.ToASCII(host)
	if err != nil {
		return "", err
	}
	notInName := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	}
	if strings.ContainsFunc(name, notInName) { // some characters are mapped to others, such as a slash
		return "", fmt.Errorf("idna: invalid host %q", host)
	}
	return name, nil
}

// URL returns a URL with its host in ASCII, even if the host was percent-encoded. It does not
// change any other byte. If the host needs no conversion, it returns text unchanged.
func URL(text string) (string, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text, nil
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	authority := rest[:end]
	at := strings.LastIndexByte(authority, '@') + 1
	host, port := authority[at:], ""
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host, port = host[:i], host[i:]
	}
	name, err := url.PathUnescape(host)
	if err != nil || IsASCII(name) {
		return text, nil // no conversion needed; the caller reports invalid escapes
	}
	if name, err = ToASCII(name); err != nil {
		return "", err
	}
	return scheme + "://" + authority[:at] + name + port + rest[end:], nil
}
