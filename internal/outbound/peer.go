package outbound

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
)

// ErrBusy means that no connection was made, because as many requests as the
// options allow are connected to the address already, under all its names.
var ErrBusy = errors.New("too many requests are under way to its address")

// PlaceOf returns a text by which the targets of one owner can be counted. For an
// address it has the form of Peer.Place. For a name it is the last two labels, such
// as example.org for a.b.example.org, because the owner of example.org can make any
// number of names below it. host is what Host returns.
func PlaceOf(host string) string {
	if ap, err := netip.ParseAddrPort(host); err == nil {
		return placeOf(ap.Addr())
	}
	name := host[:max(strings.LastIndexByte(host, ':'), 0)]
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		name = name[strings.LastIndexByte(name[:i], '.')+1:]
	}
	return name
}

// placeOf returns the text by which the requests to an address are counted. For
// IPv6 it has the first 64 bits, because one machine has all addresses below
// them.
func placeOf(addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if p, err := addr.Prefix(64); err == nil {
			return p.String()
		}
	}
	return addr.String()
}

// A Peer is the other end of one request: the addresses to which the request had
// to connect. It counts there from before the connection until the request ends.
type Peer struct {
	by        string     // set when the Peer is made, never changed
	connected *connected // set when the request begins; nil: it has not begun

	mu     sync.Mutex
	places []string // where the request counts
	last   string
	over   bool
}

type peerKey struct{}

// WithPeer returns a context for one request, and the Peer in which a Client
// notes where the request leads. by names the subscriber of the request. One
// subscriber gets at most half of the requests to an address, so that others
// can reach it, too.
func WithPeer(ctx context.Context, by string) (context.Context, *Peer) {
	p := &Peer{by: by}
	return context.WithValue(ctx, peerKey{}, p), p
}

// Place returns the address to which the request tried to connect last, as a text
// by which requests to one machine can be counted. It is empty when the request
// made no connection: it used one that was there, or the name was not found.
func (p *Peer) Place() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// connect counts the request at an address, before the connection is made. It
// returns ErrBusy when it must not be made.
func (p *Peer) connect(addr netip.Addr) error {
	place := placeOf(addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last = place; p.over {
		return context.Canceled // a connection for a request that has ended
	}
	if !p.connected.enter(place, p.by) {
		return fmt.Errorf("%w: %s", ErrBusy, place)
	}
	p.places = append(p.places, place)
	return nil
}

// end says that the request is over.
func (p *Peer) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for _, place := range p.places {
		p.connected.leave(place, p.by)
	}
	p.places = nil
}

// connected counts the requests that are connected to each address.
type connected struct {
	most int // set when it is made, never changed

	mu     sync.Mutex
	counts map[connectedBy]int
}

// A connectedBy names what is counted together: the requests to an address, of one
// subscriber or of everybody.
type connectedBy struct{ place, by string }

// everybody is connectedBy.by of all requests to an address.
const everybody = "\x00"

// enter counts a request at an address, if there is room for it.
func (c *connected) enter(place, by string) bool {
	all, own := connectedBy{place, everybody}, connectedBy{place, by}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[all] >= c.most || c.counts[own] >= (c.most+1)/2 {
		return false
	}
	c.counts[all]++
	c.counts[own]++
	return true
}

// leave takes a request out.
func (c *connected) leave(place, by string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range [...]connectedBy{{place, everybody}, {place, by}} {
		if c.counts[k]--; c.counts[k] == 0 {
			delete(c.counts, k)
		}
	}
}
