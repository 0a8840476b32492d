// Package xmpp publishes the changes of sets to nodes of an XMPP pubsub service (XEP-0060), as
// change notifications. The hub is an external component of an XMPP server (XEP-0114).
//
// One of several hubs does it at a time: the one that has the claim. It has one connection for
// all sets. Each set is followed from its cursor on, and the cursor moves only after the
// pubsub service has acknowledged what was published. So a node gets every change in order
// and at least once. After a crash some may come again. The id of an item is the cursor that
// its notification ends at.
package xmpp

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/claim/cursors"
	"github.com/rshub/rshub/feed"
)

// Kind is the kind of the claim, and Shards is how many shards there are: one, because an XMPP
// server takes one connection of a component.
const (
	Kind   = "xmpp"
	Shards = 1
)

// A Follower yields the batches of a set that follow a cursor, and waits for more until ctx is
// done. See hub.Hub.
type Follower interface {
	Follow(ctx context.Context, set string, after feed.Cursor) iter.Seq2[[]*feed.Batch, error]

	// Attend keeps what Behind knows of a set until leave is called.
	Attend(set string) (leave func())

	// Behind returns by how many changes a cursor is behind, and the datetime of the oldest of
	// them in microseconds.
	Behind(set string, after feed.Cursor) (changes uint64, oldest int64)
}

// A Log is what a Publisher needs of the change memory. See changelog.Log.
type Log interface {
	State(ctx context.Context, set string) (feed.State, error)
}

// An Account says where the XMPP server is, and who the hub is there.
type Account struct {
	Server  string // address (HOST:PORT) where the server takes components
	Domain  string // of the component
	Secret  string // that the server shares with the component
	Service string // JID of the pubsub service
}

// Options of a Publisher. Zero values are the defaults.
type Options struct {
	Topics    bool // a node has the URL of the set's topic as its name; default: the name of the set
	MaxStanza int  // of what is sent at once, in bytes; at least MinStanza; default DefaultStanza

	Dial func(ctx context.Context, network, address string) (net.Conn, error) // default: over TCP

	Delivered func(set string, changes int)  // is told what a node took; default: nobody is
	Outcome   func(set string, failed error) // is told what came of each attempt to publish; nil is a success; default: nobody is

	Logger  *slog.Logger          // default: discard
	Metrics prometheus.Registerer // takes the metrics of one Publisher; default: nowhere
}

// Sizes of stanzas in bytes. RFC 6120, section 13.12, has every server take MinStanza.
const (
	MinStanza     = 10_000
	DefaultStanza = 64 << 10
)

func (o *Options) defaults() {
	o.MaxStanza = max(cmp.Or(o.MaxStanza, DefaultStanza), MinStanza)
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.Delivered == nil {
		o.Delivered = func(string, int) {}
	}
	if o.Outcome == nil {
		o.Outcome = func(string, error) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// A Publisher publishes sets while this hub has the claim.
type Publisher struct {
	// Set by New, never changed.
	sets     []string
	base     feed.Base
	account  Account
	follower Follower
	log      Log
	cursors  cursors.Cursors
	opts     Options
	keeper   *claim.Keeper
	metrics  *metrics

	wg sync.WaitGroup // of sessions; only the goroutine of the keeper adds to it

	mu      sync.Mutex
	session *session // guarded by mu; nil: this hub has no claim
}

// New returns a Publisher of sets, whose topics are under base. It does nothing until Run.
func New(sets []string, base feed.Base, a Account, f Follower, log Log, kept cursors.Cursors, claims claim.Store, o Options) *Publisher {
	o.defaults()
	p := &Publisher{sets: sets, base: base, account: a, follower: f, log: log, cursors: kept, opts: o, metrics: newMetrics(o.Metrics)}
	p.keeper = claim.NewKeeper(claims, p, Shards, nil, o.Logger.With("work", Kind))
	if o.Metrics != nil {
		o.Metrics.MustRegister(newGauges(p))
	}
	return p
}

// yieldWithin is how long Run waits at most for an answer that is under way.
const yieldWithin = 3 * time.Second

// Run publishes while this hub has the claim, until ctx is done. Failures are logged, and it
// tries again. When Run returns, none of its goroutines is left.
func (p *Publisher) Run(ctx context.Context) error {
	p.keeper.Run(ctx, yieldWithin)
	p.wg.Wait()
	return nil
}

// Gained begins a session. It is for the claim.Keeper alone, as are Lost and Yield.
func (p *Publisher) Gained(h *claim.Hold) {
	s := newSession(p, h)
	p.mu.Lock()
	p.session = s
	p.mu.Unlock()
	p.wg.Go(func() {
		s.run()
		p.forget(s)
		p.keeper.Release(h)
	})
}

// Lost ends the session at once.
func (p *Publisher) Lost(h *claim.Hold) {
	if s := p.current(); s != nil && s.hold == h {
		s.cut()
		p.forget(s)
	}
}

// Yield lets the session end what is under way.
func (p *Publisher) Yield(h *claim.Hold) {
	if s := p.current(); s != nil && s.hold == h {
		s.end()
	} else {
		p.keeper.Release(h)
	}
}

func (p *Publisher) current() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

// forget leaves a session out of the metrics.
func (p *Publisher) forget(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == s {
		p.session = nil
	}
}
