// Package forwarded finds out the network address of the client behind a request. A proxy
// hides that address, and says it in a header. Anybody can send such a header, so it counts
// only as far as proxies that are trusted have written it.
package forwarded

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
)

// Private are the networks that nobody reaches from elsewhere: this machine, and private
// networks (RFC 1918, RFC 4193). The proxy of a hub is mostly in one of them.
const Private = "127.0.0.0/8,::1/128,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7"

// Proxies are the networks whose proxies are trusted. The nil Proxies trust nobody.
type Proxies []netip.Prefix

// Client returns the address of the client that sent r, without a zone; an IPv4 address
// within IPv6 as IPv4. It is the zero Addr if r came over no network.
//
// If the connection comes from a trusted proxy, X-Forwarded-For or Forwarded (RFC 7239)
// says who was before it. The addresses there are read from the right, because each proxy
// adds at the right who spoke to it. The first address that is no trusted proxy is the
// client: what stands left of it may be invented. If there is none, the address furthest
// to the left is the client. Where an element is no address, reading ends, and the address
// before is the client; at the right end that is the connection's. If both headers are
// there and do not name the same client, neither counts, because a proxy that writes one
// of them passes on the other as it came.
func (p Proxies) Client(r *http.Request) netip.Addr {
	peer := connection(r)
	if !p.trust(peer) {
		return peer
	}
	list, elements := r.Header.Values("X-Forwarded-For"), r.Header.Values("Forwarded")
	switch {
	case len(elements) == 0:
		return p.before(peer, list)
	case len(list) == 0:
		return p.before(peer, nodes(elements))
	}
	if client := p.before(peer, list); client == p.before(peer, nodes(elements)) {
		return client
	}
	return peer
}

// before returns the client, of whom peer and then lines tell. Each line is a list of
// addresses by comma.
func (p Proxies) before(peer netip.Addr, lines []string) netip.Addr {
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			text := rest
			if comma := strings.LastIndexByte(rest, ','); comma >= 0 {
				rest, text = rest[:comma], rest[comma+1:]
			} else {
				more = false
			}
			addr, ok := parse(strings.Trim(text, " \t"))
			if !ok {
				return peer
			}
			if peer = addr; !p.trust(addr) {
				return addr
			}
		}
	}
	return peer
}

// trust reports whether the proxy at an address is trusted.
func (p Proxies) trust(addr netip.Addr) bool {
	for _, network := range p {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// connection returns the address at the other end of r's connection.
func connection(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return plain(at.Addr())
}

// parse reads an address with or without a port. IPv6 with a port is in brackets, and may
// be in brackets without one.
func parse(text string) (addr netip.Addr, ok bool) {
	if inside, ok := strings.CutPrefix(text, "["); ok {
		if inside, ok = strings.CutSuffix(inside, "]"); ok {
			addr, err := netip.ParseAddr(inside)
			return plain(addr), err == nil && addr.Is6()
		}
	} else if addr, err := netip.ParseAddr(text); err == nil {
		return plain(addr), true
	}
	at, err := netip.ParseAddrPort(text)
	return plain(at.Addr()), err == nil
}

func plain(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// nodes returns, as one list by comma, what the lines of Forwarded say in their
// for-parameters. The lines are one list (RFC 9110 section 5.3), and a client may have left
// a quoted string open in it, so a mistake anywhere spoils all of it.
func nodes(lines []string) []string {
	var list []string
	rest := strings.Join(lines, ",")
	for node, seen := "", false; ; {
		name, after, ok := strings.Cut(rest, "=")
		name = strings.Trim(name, " \t")
		if !ok || name == "" || strings.ContainsAny(name, ` ,;"`) {
			return []string{""} // no address
		}
		value, end, after, ok := value(after)
		if !ok {
			return []string{""}
		}
		if strings.EqualFold(name, "for") {
			if seen {
				return []string{""}
			}
			node, seen = value, true
		}
		if end != ';' {
			list = append(list, node) // empty, and so no address, if there was no for
			node, seen = "", false
		}
		if end == 0 {
			return list
		}
		rest = after
	}
}

// value reads the value of a parameter, which may be a quoted string. end is the byte
// behind the value, a comma or a semicolon, or 0 if nothing follows; after is what follows.
// No address has a comma, so a value with one is refused.
func value(text string) (value string, end byte, after string, ok bool) {
	text = strings.TrimLeft(text, " \t")
	if quoted, is := strings.CutPrefix(text, `"`); is {
		var b strings.Builder
		i := 0
		for ; i < len(quoted) && quoted[i] != '"'; i++ {
			if quoted[i] == '\\' {
				if i++; i == len(quoted) {
					return "", 0, "", false
				}
			}
			b.WriteByte(quoted[i])
		}
		if i == len(quoted) {
			return "", 0, "", false
		}
		value, text = b.String(), strings.TrimLeft(quoted[i+1:], " \t")
	} else {
		i := strings.IndexAny(text, ",;")
		if i < 0 {
			i = len(text)
		}
		value, text = strings.TrimRight(text[:i], " \t"), text[i:]
	}
	switch {
	case strings.Contains(value, ","):
		return "", 0, "", false
	case text == "":
		return value, 0, "", true
	case text[0] == ',' || text[0] == ';':
		return value, text[0], text[1:], true
	}
	return "", 0, "", false
}

type contextKey struct{}

// NewContext returns ctx with the address of a request's client.
func NewContext(ctx context.Context, client netip.Addr) context.Context {
	return context.WithValue(ctx, contextKey{}, client)
}

// Client returns the address of the client that sent r, as the front of the hub noted it in
// r's context. If nobody has noted it, it is the address of the connection.
func Client(r *http.Request) netip.Addr {
	if client, ok := r.Context().Value(contextKey{}).(netip.Addr); ok {
		return client
	}
	return connection(r)
}

// Network returns the network that counts as one address: of IPv4 the address itself, of
// IPv6 its /64, because one household has all of that and may change the rest at any time. An
// IPv4 address within IPv6 counts as IPv4, and a zone does not count. The network of the zero
// Addr is the zero Prefix.
func Network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap()
	p, _ := addr.Prefix(min(addr.BitLen(), 64)) // fails only for the zero Addr
	return p
}
