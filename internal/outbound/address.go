package outbound

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rshub/rshub/internal/idn"
	"github.com/rshub/rshub/resourcesync"
)

// ErrAddress means that a URL leads to an address that the hub must not connect to.
var ErrAddress = errors.New("address is not allowed")

// MaxURL is the maximum length of a target's URL in bytes.
const MaxURL = 2048

// special lists the special-purpose networks of the IANA registries and one network of a provider.
// The hub must not connect to them unless the operator allows it. For IPv6, everything outside
// 2000::/3 is rejected as well: loopback, unspecified, ULA, link-local, multicast, NAT64,
// v4-compatible.
var special = [...]netip.Prefix{
	prefix(0, 0, 0, 0, 8), prefix(10, 0, 0, 0, 8), prefix(100, 64, 0, 0, 10), prefix(127, 0, 0, 0, 8),
	prefix(169, 254, 0, 0, 16), prefix(172, 16, 0, 0, 12), prefix(192, 0, 0, 0, 24), prefix(192, 0, 2, 0, 24),
	prefix(192, 88, 99, 0, 24), prefix(192, 168, 0, 0, 16), prefix(198, 18, 0, 0, 15), prefix(198, 51, 100, 0, 24),
	prefix(203, 0, 113, 0, 24), prefix(224, 0, 0, 0, 3), // multicast, reserved and broadcast
	prefix(168, 63, 129, 16, 32), // a public address, but within Azure it is a service of the platform
	prefix6(0x2001, 0, 23),       // protocol assignments, Teredo, benchmarking, ORCHID
	prefix6(0x2001, 0xdb8, 32),   // documentation
	prefix6(0x2002, 0, 16),       // 6to4
	prefix6(0x3fff, 0, 20),       // documentation
}

var unicast6 = prefix6(0x2000, 0, 3)

func prefix(a, b, c, d byte, bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{a, b, c, d}), bits)
}

func prefix6(a, b uint16, bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{byte(a >> 8), byte(a), byte(b >> 8), byte(b)}), bits)
}

// addressRules defines the addresses that requests may connect to: public unicast addresses and the
// networks that the operator allows.
type addressRules struct {
	allow []netip.Prefix
	self  string // host and port of the hub itself, see hostOf
}

// control is a net.Dialer.Control. It checks the address to which a socket is about to connect,
// after name resolution and for every attempt. So neither a name that changes its address nor an
// unusual notation of an address can bypass it. It rejects what it cannot parse.
func (a *addressRules) control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: network %q", ErrAddress, network)
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q", ErrAddress, address)
	}
	if !allowedPort(ap.Port()) || !a.allows(ap.Addr()) {
		return fmt.Errorf("%w: %s", ErrAddress, ap)
	}
	return nil
}

// allows reports whether connections to an address are allowed. An IPv4-mapped IPv6 address counts
// as IPv4.
func (a *addressRules) allows(addr netip.Addr) bool {
	addr = addr.WithZone("").Unmap()
	contains := func(p netip.Prefix) bool { return p.Contains(addr) }
	if slices.ContainsFunc(a.allow, contains) {
		return true
	}
	if !addr.IsValid() || addr.Is6() && !unicast6.Contains(addr) {
		return false
	}
	return !slices.ContainsFunc(special[:], contains)
}

// allowedPort reports whether connections to a port are allowed: 80, 443, and 1024 and above.
func allowedPort(p uint16) bool { return p == 80 || p == 443 || p >= 1024 }

// check rejects URLs to which the hub makes no requests. name is what errors call the URL. check
// makes no DNS query: it only gives early feedback on a URL. The protection is control.
func (a *addressRules) check(name, target string) error {
	if len(target) > MaxURL {
		return resourcesync.Invalidf("the %s is longer than %d bytes: it has %d", name, MaxURL, len(target))
	}
	u, err := url.Parse(target)
	switch {
	case err == nil && strings.ContainsFunc(u.Host, func(r rune) bool { return r > '~' }): // Parse decodes a percent-encoded host
		if ascii, err := idn.URL(target); err == nil {
			return resourcesync.Invalidf("the %s's host is not in ASCII; use %q", name, ascii)
		}
		return resourcesync.Invalidf("the %s's host is not in ASCII and cannot be converted to xn-- form", name)
	case strings.ContainsFunc(target, func(r rune) bool { return r <= ' ' || r > '~' }):
		return resourcesync.Invalidf("the %s has a space, control or non-ASCII character; percent-encode it", name)
	case err != nil:
		return resourcesync.Invalidf("the %s is not a URL", name)
	case u.Scheme != "http" && u.Scheme != "https", u.Opaque != "", u.Hostname() == "":
		return resourcesync.Invalidf("the %s must be an absolute URL that starts with http:// or https://", name)
	case u.User != nil:
		return resourcesync.Invalidf("the %s must not have a user name or password; put a secret into its path or query", name)
	case strings.Contains(target, "#"):
		return resourcesync.Invalidf("the %s must not have a fragment", name)
	case strings.HasSuffix(u.Host, ":"):
		return resourcesync.Invalidf("the %s's port is missing", name)
	case !isExact(target, u):
		return resourcesync.Invalidf("the %s has characters that must be percent-encoded", name)
	}
	return a.checkHost(name, u)
}

// checkHost rejects the hosts and ports to which the hub makes no requests.
func (a *addressRules) checkHost(name string, u *url.URL) error {
	host := nameOf(u)
	number, err := strconv.ParseUint(portOf(u), 10, 16)
	switch {
	case err != nil || portOf(u)[0] == '0':
		return resourcesync.Invalidf("the %s's port %.10q is not a number from 1 to 65535 without leading zeros", name, portOf(u))
	case !allowedPort(uint16(number)):
		return resourcesync.Invalidf("the %s's port %d is not allowed; use 80, 443, or 1024 and above", name, number)
	case len(host) > 253:
		return resourcesync.Invalidf("the %s's host is longer than 253 bytes", name)
	case hostOf(u) == a.self:
		return resourcesync.Invalidf("the %s is on this hub", name)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if !a.allows(addr) {
			return resourcesync.Invalidf("the %s's address %s is not allowed", name, addr)
		}
		return nil
	}
	// Some resolvers accept 127.1, 0x7f000001 and 2130706433 as addresses.
	last := host[strings.LastIndexByte(host, '.')+1:]
	if _, err := strconv.ParseUint(last, 0, 64); err == nil || last == "" || strings.Trim(last, "0123456789") == "" || strings.ContainsFunc(host, notInName) {
		return resourcesync.Invalidf("the %s's host is neither a name nor an IP address", name)
	}
	return nil
}

// notInName reports whether a character is invalid in a host name.
func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
}

// isExact reports whether a request for u sends the path and query of target unchanged. WebSub
// requires that the hub uses the exact callback URL.
func isExact(target string, u *url.URL) bool {
	_, rest, ok := strings.Cut(target, "//")
	if !ok {
		return false
	}
	i := strings.IndexAny(rest, "/?")
	if i < 0 {
		return true
	}
	return u.RequestURI() == rest[i:] || "/"+rest[i:] == u.RequestURI()
}

// hostOf returns the host and port of u. Limits per host are counted by this text, so every host
// must have only one spelling; see nameOf.
func hostOf(u *url.URL) string { return net.JoinHostPort(nameOf(u), portOf(u)) }

// nameOf returns the host of u: a name in lower case, or an address in its shortest form. An
// IPv4-mapped IPv6 address becomes IPv4.
func nameOf(u *url.URL) string {
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.Unmap().WithZone("").String()
	}
	return name
}

// Origin returns the scheme, host and port of a URL in a canonical form, always with the port.
// Callers that send a password or a token compare origins to decide whether they may.
func Origin(u *url.URL) string {
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), portOf(u))
}

// portOf returns the port of u, or the default port of its scheme.
func portOf(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	default:
		return "80"
	}
}
