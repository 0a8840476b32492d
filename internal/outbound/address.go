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

// ErrAddress means that a URL leads to an address that the hub must not reach.
var ErrAddress = errors.New("the address is not allowed")

// MaxURL bounds the URL of a target, in bytes.
const MaxURL = 2048

// special are the special-purpose networks of the IANA registries, and one
// network of a provider. The hub must never reach them, unless the operator
// allows it. For IPv6, everything outside of 2000::/3 is refused as well:
// loopback, unspecified, ULA, link-local, multicast, NAT64, v4-compatible.
var special = [...]netip.Prefix{
	prefix(0, 0, 0, 0, 8), prefix(10, 0, 0, 0, 8), prefix(100, 64, 0, 0, 10), prefix(127, 0, 0, 0, 8),
	prefix(169, 254, 0, 0, 16), prefix(172, 16, 0, 0, 12), prefix(192, 0, 0, 0, 24), prefix(192, 0, 2, 0, 24),
	prefix(192, 88, 99, 0, 24), prefix(192, 168, 0, 0, 16), prefix(198, 18, 0, 0, 15), prefix(198, 51, 100, 0, 24),
	prefix(203, 0, 113, 0, 24), prefix(224, 0, 0, 0, 3), // multicast, reserved and broadcast
	prefix(168, 63, 129, 16, 32), // a public number, but within Azure it is a service of the platform
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

// addresses are the rules for the addresses that requests may reach: public
// unicast addresses, and the networks that the operator allows.
type addresses struct {
	allow []netip.Prefix
	self  string // the hub's own host and port, see hostOf
}

// control is a net.Dialer.Control. It sees the address to which the socket is
// about to connect, after name resolution and for every attempt. So a name that
// changes its address cannot get past it, nor an odd spelling of an address. It
// refuses what it does not understand.
func (a *addresses) control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: network %q", ErrAddress, network)
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q", ErrAddress, address)
	}
	if !mayPort(ap.Port()) || !a.reaches(ap.Addr()) {
		return fmt.Errorf("%w: %s", ErrAddress, ap)
	}
	return nil
}

// reaches reports whether an address may be reached. An IPv4 address inside an
// IPv6 address counts as IPv4.
func (a *addresses) reaches(addr netip.Addr) bool {
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

// mayPort reports whether a port may be reached: 80, 443, and all from 1024 on.
func mayPort(p uint16) bool { return p == 80 || p == 443 || p >= 1024 }

// check refuses URLs to which the hub makes no request. name says in errors
// what the URL is. check makes no DNS query: it only tells the person who gives
// a URL what is wrong with it. The protection is control.
func (a *addresses) check(name, target string) error {
	if len(target) > MaxURL {
		return resourcesync.Invalidf("a %s has at most %d bytes, not %d", name, MaxURL, len(target))
	}
	u, err := url.Parse(target)
	switch {
	case err == nil && strings.ContainsFunc(u.Host, func(r rune) bool { return r > '~' }): // Parse decodes a percent-encoded host
		if ascii, err := idn.URL(target); err == nil {
			return resourcesync.Invalidf("the %s's host is not in ASCII; use %q", name, ascii)
		}
		return resourcesync.Invalidf("the %s's host is not in ASCII, and has no form with xn--", name)
	case strings.ContainsFunc(target, func(r rune) bool { return r <= ' ' || r > '~' }):
		return resourcesync.Invalidf("a %s has no blank, control or non-ASCII characters: percent-encode them", name)
	case err != nil:
		return resourcesync.Invalidf("the %s is no URL", name)
	case u.Scheme != "http" && u.Scheme != "https", u.Opaque != "", u.Hostname() == "":
		return resourcesync.Invalidf("a %s is an absolute URL that begins with http:// or https://", name)
	case u.User != nil:
		return resourcesync.Invalidf("a %s has no user name or password; put a secret into its path or query", name)
	case strings.Contains(target, "#"):
		return resourcesync.Invalidf("a %s has no fragment", name)
	case strings.HasSuffix(u.Host, ":"):
		return resourcesync.Invalidf("the %s's port is missing", name)
	case !exact(target, u):
		return resourcesync.Invalidf("the %s has characters that must be percent-encoded", name)
	}
	return a.checkHost(name, u)
}

// checkHost refuses the hosts and ports to which the hub makes no request.
func (a *addresses) checkHost(name string, u *url.URL) error {
	host := nameOf(u)
	number, err := strconv.ParseUint(portOf(u), 10, 16)
	switch {
	case err != nil || portOf(u)[0] == '0':
		return resourcesync.Invalidf("the %s's port, %.10q, is no number from 1 to 65535 without zeros before it", name, portOf(u))
	case !mayPort(uint16(number)):
		return resourcesync.Invalidf("a %s on port %d is not allowed: the ports are 80, 443 and from 1024 on", name, number)
	case len(host) > 253:
		return resourcesync.Invalidf("the %s's host is longer than the 253 bytes that a name has at most", name)
	case hostOf(u) == a.self:
		return resourcesync.Invalidf("the %s is on this hub", name)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if !a.reaches(addr) {
			return resourcesync.Invalidf("a %s at %s is not allowed", name, addr)
		}
		return nil
	}
	// Some resolvers take 127.1, 0x7f000001 and 2130706433 for addresses.
	last := host[strings.LastIndexByte(host, '.')+1:]
	if _, err := strconv.ParseUint(last, 0, 64); err == nil || last == "" || strings.Trim(last, "0123456789") == "" || strings.ContainsFunc(host, notInName) {
		return resourcesync.Invalidf("the %s's host is neither a name nor an IP address", name)
	}
	return nil
}

// notInName reports whether a character cannot be in the name of a host.
func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
}

// exact reports whether a request for u sends the path and query of target
// unchanged. WebSub requires that the hub uses the exact callback.
func exact(target string, u *url.URL) bool {
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

// hostOf returns the host and port to which u leads. Limits for each host are
// counted by this text, so every host must have only one spelling; see nameOf.
func hostOf(u *url.URL) string { return net.JoinHostPort(nameOf(u), portOf(u)) }

// nameOf returns the host to which u leads: a name in lower case, or an address
// in its shortest form. An IPv4 address inside an IPv6 address becomes IPv4.
func nameOf(u *url.URL) string {
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.Unmap().WithZone("").String()
	}
	return name
}

// Origin returns the scheme, host and port of a URL, in one spelling: documents write URLs with
// the usual port and without it. Whoever sends a password or a token compares by it.
func Origin(u *url.URL) string {
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), portOf(u))
}

// portOf returns the port to which u leads.
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
