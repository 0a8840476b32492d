package limit

import (
	"context"
	"hash/maphash"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a Limiter.
type Options struct {
	Caller  Limits // for each caller with a name, unless it has its own
	Address Limits // for each address without a name: an IPv4 address, or a /64 of IPv6

	Refusals *Refusals // counters of refused requests; default: new ones
}

// Refusals are counters of refused requests. Several Limiters may share them.
type Refusals struct{ callers, addresses [kinds]atomic.Uint64 }

// OfCallers returns the number of refusals by the limits of callers.
func (f *Refusals) OfCallers(k Kind) uint64 { return f.callers[k].Load() }

// OfAddresses returns the number of refusals by the limits of addresses.
func (f *Refusals) OfAddresses(k Kind) uint64 { return f.addresses[k].Load() }

// A Limiter tracks the use of every caller and address. It stores at most about 131,000 callers and as
// many addresses, and evicts only idle ones. While it is full of others, all new ones share one User.
type Limiter struct {
	opts      Options
	start     time.Time
	callers   table
	addresses table
}

const (
	shards   = 64
	maxUsers = 2048 // maximum number of users in a shard
)

// A table is a map of users by key.
type table struct {
	seed   maphash.Seed
	max    int // maximum number of users in a shard
	shards [shards]shard
}

type shard struct {
	mu    sync.Mutex
	users map[string]*User
	_     [64]byte // padding, so that shards do not share a cache line
}

// New returns a Limiter.
func New(o Options) *Limiter {
	if o.Refusals == nil {
		o.Refusals = &Refusals{}
	}
	l := &Limiter{opts: o, start: time.Now()}
	for _, t := range []*table{&l.callers, &l.addresses} {
		t.seed, t.max = maphash.MakeSeed(), maxUsers
	}
	return l
}

func (l *Limiter) user(whose string, limits *Limits, refused *[kinds]atomic.Uint64) *User {
	u := &User{whose: whose, refused: refused, limiter: l}
	u.limits.Store(limits)
	return u
}

// clock returns a monotonic time in nanoseconds.
func (l *Limiter) clock() int64 { return int64(time.Since(l.start)) }

// Caller returns the User of a caller with a name. own are its own limits, or nil for those of all
// callers. They may differ from those of the previous call.
func (l *Limiter) Caller(name string, own *Limits) *User {
	u := l.callers.find(name, l.clock(), "other callers", func(key string) *User { return l.user("caller "+key, &l.opts.Caller, &l.opts.Refusals.callers) })
	limits := &l.opts.Caller
	if own != nil {
		limits = own
	}
	if old := u.limits.Load(); old != limits && *old != *limits {
		u.limits.Store(limits)
	}
	return u
}

// Address returns the User of an address. All IPv6 addresses of a /64 share a User, because a /64 usually
// belongs to one household. The zero Addr stands for all unknown addresses.
func (l *Limiter) Address(a netip.Addr) *User {
	a = a.Unmap()
	var key [16]byte
	n := copy(key[:], a.AsSlice())
	if a.Is6() {
		n = 8
	}
	return l.addresses.find(string(key[:n]), l.clock(), "", func(key string) *User {
		whose := "the address " + a.String()
		switch {
		case key == "":
			whose = "the unknown address of this and other requests"
		case a.Is6():
			whose = "the network " + netip.PrefixFrom(a.WithZone(""), 64).Masked().String()
		}
		return l.user(whose, &l.opts.Address, &l.opts.Refusals.addresses)
	})
}

// find returns the user of a key, and creates it if necessary. If the table is full, it returns the user
// of the key rest, which all new users then share.
func (t *table) find(key string, now int64, rest string, newUser func(key string) *User) *User {
	s := &t.shards[maphash.String(t.seed, key)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.users[key]
	if u == nil && len(s.users) >= t.max && !s.evict(now) {
		key = rest
		u = s.users[key]
	}
	if u == nil {
		if s.users == nil {
			s.users = map[string]*User{}
		}
		u = newUser(key)
		s.users[key] = u
	}
	u.seen.Store(now)
	return u
}

// evict removes some idle users, and reports whether it removed any. It checks only a few users, so that
// the cost per request stays constant during a flood of new users.
func (s *shard) evict(now int64) (found bool) {
	checked := 0
	for key, u := range s.users { // in random order
		if u.idle(now) {
			delete(s.users, key)
			found = true
		}
		if checked++; checked == 8 {
			break
		}
	}
	return found
}

type contextKey struct{}

// NewContext returns ctx with the User of a request. A nil User has no limits.
func NewContext(ctx context.Context, u *User) context.Context {
	return context.WithValue(ctx, contextKey{}, u)
}

// FromContext returns the User of a request. It returns nil, which has no limits, if ctx has none, as for
// background work of the hub.
func FromContext(ctx context.Context) *User {
	u, _ := ctx.Value(contextKey{}).(*User)
	return u
}
