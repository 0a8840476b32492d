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
	Caller  Limits // for each caller with a name, unless it has limits of its own
	Address Limits // for each address that sends requests without a name: an IPv4 address, or a /64 of IPv6

	Refusals *Refusals // count whom the limits refuse; default: those of this Limiter alone
}

// Refusals count how often limits refused a request. Several Limiters may share them.
type Refusals struct{ callers, addresses [kinds]atomic.Uint64 }

// OfCallers returns how often the limits of callers have refused a kind.
func (f *Refusals) OfCallers(k Kind) uint64 { return f.callers[k].Load() }

// OfAddresses returns how often the limits of addresses have refused a kind.
func (f *Refusals) OfAddresses(k Kind) uint64 { return f.addresses[k].Load() }

// A Limiter knows what every caller and address uses. It keeps about 131,000 addresses at
// most, and forgets only idle ones. When it is full of addresses that are not idle, all
// new addresses share the limits of one.
type Limiter struct {
	opts      Options
	begun     time.Time
	callers   table
	addresses table
}

const (
	shards   = 64
	maxUsers = 2048 // the most users in a shard
)

// A table holds users by their keys.
type table struct {
	seed   maphash.Seed
	most   int // the most users in a shard
	shards [shards]shard
}

type shard struct {
	mu    sync.Mutex
	users map[string]*User
	_     [64]byte // padding: two processors do not write to one cache line
}

// New returns a Limiter; nobody has used anything yet.
func New(o Options) *Limiter {
	if o.Refusals == nil {
		o.Refusals = &Refusals{}
	}
	l := &Limiter{opts: o, begun: time.Now()}
	for _, t := range []*table{&l.callers, &l.addresses} {
		t.seed, t.most = maphash.MakeSeed(), maxUsers
	}
	return l
}

func (l *Limiter) user(whose string, limits *Limits, refused *[kinds]atomic.Uint64) *User {
	u := &User{whose: whose, refused: refused, limiter: l}
	u.limits.Store(limits)
	return u
}

// clock returns a monotonic time in nanoseconds.
func (l *Limiter) clock() int64 { return int64(time.Since(l.begun)) }

// Caller returns the User of a caller with a name. own are the caller's own limits;
// nil: it has the limits for all callers. They may differ from those of the last call.
func (l *Limiter) Caller(name string, own *Limits) *User {
	u := l.callers.find(name, l.clock(), "other callers", func(key string) *User { return l.user("caller "+key, &l.opts.Caller, &l.opts.Refusals.callers) })
	limits := &l.opts.Caller
	if own != nil {
		limits = own
	}
	if was := u.limits.Load(); was != limits && *was != *limits {
		u.limits.Store(limits)
	}
	return u
}

// Address returns the User of an address. All IPv6 addresses of one /64 share a User,
// because a /64 usually belongs to one household. The zero Addr is for unknown addresses;
// they also share a User.
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
			whose = "the address that you come from, with others"
		case a.Is6():
			whose = "the network " + netip.PrefixFrom(a.WithZone(""), 64).Masked().String()
		}
		return l.user(whose, &l.opts.Address, &l.opts.Refusals.addresses)
	})
}

// find returns the user with a key. It makes the user if there is none. If the table is
// full, it returns the user with the key rest, which all new users then share.
func (t *table) find(key string, now int64, rest string, makeUser func(key string) *User) *User {
	s := &t.shards[maphash.String(t.seed, key)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.users[key]
	if u == nil && len(s.users) >= t.most && !s.forget(now) {
		key = rest
		u = s.users[key]
	}
	if u == nil {
		if s.users == nil {
			s.users = map[string]*User{}
		}
		u = makeUser(key)
		s.users[key] = u
	}
	u.seen.Store(now)
	return u
}

// forget forgets one or a few idle users. It looks at only a few users, so a flood of new
// users costs no more per request. It reports whether it forgot one.
func (s *shard) forget(now int64) (found bool) {
	looked := 0
	for key, u := range s.users { // in random order
		if u.idle(now) {
			delete(s.users, key)
			found = true
		}
		if looked++; looked == 8 {
			break
		}
	}
	return found
}

type contextKey struct{}

// NewContext returns ctx with the User that makes a request. A nil User has no
// limits.
func NewContext(ctx context.Context, u *User) context.Context {
	return context.WithValue(ctx, contextKey{}, u)
}

// FromContext returns the User that makes a request. It returns nil, a User without
// limits, if ctx has none, for instance in work that the hub does by itself.
func FromContext(ctx context.Context) *User {
	u, _ := ctx.Value(contextKey{}).(*User)
	return u
}
