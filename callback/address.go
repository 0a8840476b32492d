package callback

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

	"github.com/rshub/rshub/changelog"
)

// ErrAddress means that a callback leads to an address that may not be reached.
var ErrAddress = errors.New("the address is not allowed")

// maxCallback bounds a callback in bytes.
const maxCallback = 2048

// special are the special-purpose networks of the IANA registries, and one of a
// provider, that a callback must never reach. Of IPv6, all that is outside 2000::/3 is refused
// besides: loopback, unspecified, ULA, link-local, multicast, NAT64, v4-compatible.
var special = [...]netip.Prefix{
	prefix(0, 0, 0, 0, 8), prefix(10, 0, 0, 0, 8), prefix(100, 64, 0, 0, 10), prefix(127, 0, 0, 0, 8),
	prefix(169, 254, 0, 0, 16), prefix(172, 16, 0, 0, 12), prefix(192, 0, 0, 0, 24), prefix(192, 0, 2, 0, 24),
	prefix(192, 88, 99, 0, 24), prefix(192, 168, 0, 0, 16), prefix(198, 18, 0, 0, 15), prefix(198, 51, 100, 0, 24),
	prefix(203, 0, 113, 0, 24), prefix(224, 0, 0, 0, 3), // multicast, reserved and broadcast
	prefix(168, 63, 129, 16, 32), // public by its number, but what serves each machine of Azure from within
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

// addresses says which addresses callbacks may lead to: public unicast ones,
// and those that the operator allows.
type addresses struct {
	allow []netip.Prefix
	ports []uint16 // empty: 80, 443 and from 1024 on
	self  string   // the hub's own host and port, see hostOf
}

// control is a net.Dialer.Control. It sees the address that the socket is about
// to connect to, after every resolver and for every try, so neither a name that
// changes its address nor an odd spelling gets past it. What it does not
// understand it refuses.
func (a *addresses) control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: network %q", ErrAddress, network)
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q", ErrAddress, address)
	}
	if !a.port(ap.Port()) || !a.reaches(ap.Addr()) {
		return fmt.Errorf("%w: %s", ErrAddress, ap)
	}
	return nil
}

// reaches reports whether an address may be reached. An IPv4 address inside of
// an IPv6 one counts as IPv4.
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

func (a *addresses) port(p uint16) bool {
	if len(a.ports) == 0 {
		return p == 80 || p == 443 || p >= 1024
	}
	return slices.Contains(a.ports, p)
}

// portsText names the ports that callbacks may have.
func (a *addresses) portsText() string {
	if len(a.ports) == 0 {
		return "80, 443 and from 1024 on"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(a.ports), " ", ", "), "[]")
}

// check refuses what the hub will not make a request to; name is what the URL is,
// for errors. It asks no resolver: it is there to tell who gives the URL what is
// wrong; control is what protects.
func (a *addresses) check(name, target string) error {
	if len(target) > maxCallback {
		return changelog.Invalid("a %s has at most %d bytes, not %d", name, maxCallback, len(target))
	}
	u, err := url.Parse(target)
	switch {
	case err == nil && strings.ContainsFunc(u.Host, func(r rune) bool { return r > '~' }): // also when it was percent-encoded
		return changelog.Invalid("the %s's host is not ASCII: write it with xn--, as DNS has it", name)
	case strings.ContainsFunc(target, func(r rune) bool { return r <= ' ' || r > '~' }):
		return changelog.Invalid("a %s has no blank, control or non-ASCII characters: percent-encode them", name)
	case err != nil:
		return changelog.Invalid("the %s is no URL", name)
	case u.Scheme != "http" && u.Scheme != "https", u.Opaque != "", u.Hostname() == "":
		return changelog.Invalid("a %s is an absolute URL that begins with http:// or https://", name)
	case u.User != nil:
		return changelog.Invalid("a %s has no user name or password; put a secret into its path or query", name)
	case strings.Contains(target, "#"):
		return changelog.Invalid("a %s has no fragment", name)
	case strings.HasSuffix(u.Host, ":"):
		return changelog.Invalid("the %s's port is missing", name)
	case !exact(target, u):
		return changelog.Invalid("the %s has characters that must be percent-encoded", name)
	}
	return a.checkHost(name, u)
}

func (a *addresses) checkHost(name string, u *url.URL) error {
	host := nameOf(u)
	port, err := strconv.ParseUint(portOf(u), 10, 16)
	switch {
	case err != nil || portOf(u)[0] == '0':
		return changelog.Invalid("the %s's port, %.10q, is no number from 1 to 65535 without zeros before it", name, portOf(u))
	case !a.port(uint16(port)):
		return changelog.Invalid("a %s on port %d is not allowed: the ports are %s", name, port, a.portsText())
	case len(host) > 253:
		return changelog.Invalid("the %s's host is longer than the 253 bytes that a name has at most", name)
	case hostOf(u) == a.self:
		return changelog.Invalid("the %s is on this hub", name)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if !a.reaches(addr) {
			return changelog.Invalid("a %s at %s is not allowed", name, addr)
		}
		return nil
	}
	// 127.1, 0x7f000001 and 2130706433 are addresses to some resolvers.
	last := host[strings.LastIndexByte(host, '.')+1:]
	if _, err := strconv.ParseUint(last, 0, 64); err == nil || last == "" || strings.Trim(last, "0123456789") == "" || strings.ContainsAny(host, "%:") {
		return changelog.Invalid("the %s's host is neither a name nor an IP address", name)
	}
	return nil
}

// exact reports whether a request for u sends the path and query of the
// target as they are there: the hub must use the exact callback.
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

// hostOf returns the host and port that u leads to. What is bounded for each is
// counted by it, so a host has one spelling here: see nameOf.
func hostOf(u *url.URL) string { return net.JoinHostPort(nameOf(u), portOf(u)) }

// nameOf returns the host that u leads to, in lower case, or its address as it is
// written shortest: an IPv4 one inside of an IPv6 one is IPv4.
func nameOf(u *url.URL) string {
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.Unmap().WithZone("").String()
	}
	return name
}

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
