// Package idn converts internationalized host names in URLs to ASCII (RFC 5891), as DNS requires.
//
// Everything that is read from a source or a configuration passes through it, so that one host has
// one spelling. Paths and queries are left alone.
package idn

import (
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/net/idna"
)

// profile maps as browsers do. It allows the underscores that some names in DNS have.
var profile = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false), idna.VerifyDNSLength(true))

// IsASCII reports whether a host has no other characters.
func IsASCII(host string) bool {
	for i := range len(host) {
		if host[i] >= 0x80 {
			return false
		}
	}
	return true
}

// Host writes the host of u in ASCII.
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

// ToASCII returns a host in ASCII.
func ToASCII(host string) (string, error) {
	name, err := profile.ToASCII(host)
	if err != nil {
		return "", err
	}
	notInName := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	}
	if strings.ContainsFunc(name, notInName) { // some characters stand for others, such as a slash
		return "", fmt.Errorf("idna: invalid host %q", host)
	}
	return name, nil
}

// URL returns a URL with its host in ASCII, even if the host was percent-encoded. All other
// bytes stay. It returns text that has no host in another form as it is.
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
		return text, nil // not in another form; an invalid escape is not ours to report
	}
	if name, err = ToASCII(name); err != nil {
		return "", err
	}
	return scheme + "://" + authority[:at] + name + port + rest[end:], nil
}
