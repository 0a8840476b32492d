// Package forwarded determines the network address of the client that sent a request.
//
// A proxy hides that address and passes it on in a header. Anyone can send such a header, so only
// the parts that trusted proxies wrote are used. How the address is used, for example in limits and
// logs, is decided elsewhere.
package forwarded

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
)

// Private lists the networks that are not reachable from the Internet: loopback and private
// networks (RFC 1918, RFC 4193). The proxy of a hub is usually in one of them.
const Private = "127.0.0.0/8,::1/128,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7"

// Proxies are the networks whose proxies are trusted. If nil, no proxy is trusted.
type Proxies []netip.Prefix

// Client returns the address of the client that sent r, without a zone. An IPv4-mapped IPv6 address
// becomes IPv4. Client returns the zero Addr if r was not received over a network.
//
// If the connection comes from a trusted proxy, X-Forwarded-For names the addresses before it.
// Client reads them from the right, because each proxy appends the address of its own client. The
// first address that is not a trusted proxy is the client; anything to the left of it may be
// forged. If all are trusted proxies, the leftmost address is the client. Reading stops at an
// element that is not an address; the client is then the address read before it, or that of the
// connection if there is none.
func (p Proxies) Client(r *http.Request) netip.Addr {
	peer := remoteAddr(r)
	if !p.trusts(peer) {
		return peer
	}
	return p.clientBefore(peer, r.Header.Values("X-Forwarded-For"))
}

// clientBefore returns the client. peer is the remote end of the connection, and each line is a
// comma-separated list of addresses.
func (p Proxies) clientBefore(peer netip.Addr, lines []string) netip.Addr {
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			text := rest
			if comma := strings.LastIndexByte(rest, ','); comma >= 0 {
				rest, text = rest[:comma], rest[comma+1:]
			} else {
				more = false
			}
			addr, ok := parseAddr(strings.Trim(text, " \t"))
			if !ok {
				return peer
			}
			if peer = addr; !p.trusts(addr) {
				return addr
			}
		}
	}
	return peer
}

// trusts reports whether the proxy at an address is trusted.
func (p Proxies) trusts(addr netip.Addr) bool {
	for _, network := range p {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// remoteAddr returns the address of the remote end of r's connection.
func remoteAddr(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return normalize(at.Addr())
}

// parseAddr parses an address with or without a port. An IPv6 address with a port must be in
// brackets; without one it may be.
func parseAddr(text string) (addr netip.Addr, ok bool) {
	if inside, ok := strings.CutPrefix(text, "["); ok {
		if inside, ok = strings.CutSuffix(inside, "]"); ok {
			addr, err := netip.ParseAddr(inside)
			return normalize(addr), err == nil && addr.Is6()
		}
	} else if addr, err := netip.ParseAddr(text); err == nil {
		return normalize(addr), true
	}
	at, err := netip.ParseAddrPort(text)
	return normalize(at.Addr()), err == nil
}

// normalize returns an address without a zone, and an IPv4-mapped IPv6 address as IPv4.
func normalize(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

type contextKey struct{}

// NewContext returns a copy of ctx with the address of a request's client.
func NewContext(ctx context.Context, client netip.Addr) context.Context {
	return context.WithValue(ctx, contextKey{}, client)
}

// Client returns the address of the client that sent r, from r's context if NewContext was used,
// otherwise from the connection.
func Client(r *http.Request) netip.Addr {
	if client, ok := r.Context().Value(contextKey{}).(netip.Addr); ok {
		return client
	}
	return remoteAddr(r)
}

// ViaProxy reports whether r was received through a trusted proxy, so that its client is not the
// remote end of the connection.
func ViaProxy(r *http.Request) bool { return Client(r) != remoteAddr(r) }
