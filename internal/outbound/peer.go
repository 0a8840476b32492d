package outbound

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
)

// ErrBusy means that no connection was made, because the maximum number of requests is
// already connected to the address, under all its names.
var ErrBusy = errors.New("too many concurrent requests to the address")

// OwnerKey returns a text by which the targets of one owner can be counted. For an address it has
// the form of Peer.AddressKey. For a name it is the last two labels, such as example.org for
// a.b.example.org, because the owner of example.org can create any number of names below it. host
// is a result of Host.
func OwnerKey(host string) string {
	if ap, err := netip.ParseAddrPort(host); err == nil {
		return addressKey(ap.Addr())
	}
	name := host[:max(strings.LastIndexByte(host, ':'), 0)]
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		name = name[strings.LastIndexByte(name[:i], '.')+1:]
	}
	return name
}

// addressKey returns the text by which requests to an address are counted. For IPv6 it is the first
// 64 bits, because one machine has all addresses with that prefix.
func addressKey(addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if p, err := addr.Prefix(64); err == nil {
			return p.String()
		}
	}
	return addr.String()
}

// A Peer is the remote end of one request: the addresses to which the request had to connect. The
// request counts there from before the connection until it finishes.
type Peer struct {
	by     string         // immutable
	counts *requestCounts // set when the request starts; nil before

	mu       sync.Mutex
	keys     []string // address keys at which the request counts
	last     string
	finished bool
}

type peerKey struct{}

// WithPeer returns a context for one request, and the Peer in which a Client records the request's
// addresses. by identifies the subscriber of the request. One subscriber gets at most half of the
// requests to an address, so that others can use the address, too.
func WithPeer(ctx context.Context, by string) (context.Context, *Peer) {
	p := &Peer{by: by}
	return context.WithValue(ctx, peerKey{}, p), p
}

// AddressKey returns the address to which the request last tried to connect, as a text by which
// requests to one machine can be counted. It is empty if the request made no connection: it reused
// one, or the name was not found.
func (p *Peer) AddressKey() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// connect counts the request at an address, before the connection is made. It returns ErrBusy if
// the connection must not be made.
func (p *Peer) connect(addr netip.Addr) error {
	place := addressKey(addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last = place; p.finished {
		return context.Canceled // the request has already finished
	}
	if !p.counts.acquire(place, p.by) {
		return fmt.Errorf("%w: %s", ErrBusy, place)
	}
	p.keys = append(p.keys, place)
	return nil
}

// finish stops counting the request.
func (p *Peer) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = true
	for _, place := range p.keys {
		p.counts.release(place, p.by)
	}
	p.keys = nil
}

// requestCounts counts the requests that are connected to each address.
type requestCounts struct {
	limit int // immutable

	mu     sync.Mutex
	counts map[requestKey]int
}

// A requestKey identifies requests that are counted together: those to an address, of one
// subscriber or of all.
type requestKey struct{ place, by string }

// anySubscriber is the value of requestKey.by for the requests of all subscribers.
const anySubscriber = "\x00"

// acquire counts a request at an address, unless a limit is reached. It reports whether it did.
func (c *requestCounts) acquire(place, by string) bool {
	all, own := requestKey{place, anySubscriber}, requestKey{place, by}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[all] >= c.limit || c.counts[own] >= (c.limit+1)/2 {
		return false
	}
	c.counts[all]++
	c.counts[own]++
	return true
}

// release stops counting a request.
func (c *requestCounts) release(place, by string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range [...]requestKey{{place, anySubscriber}, {place, by}} {
		if c.counts[k]--; c.counts[k] == 0 {
			delete(c.counts, k)
		}
	}
}
