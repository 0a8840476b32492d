package limit

import (
	"context"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"
)

// Options of a Limiter.
type Options struct {
	Caller  Limits // of each caller with a name, where it has none of its own
	Address Limits // of each address, for what comes without a name: an IPv4 address, a /64 of IPv6

	// Refused is called each time that a limit refuses somebody. whose is "caller"
	// or "address". It must not block. Default: nobody is told.
	Refused func(whose string, kind Kind)
}

// A Limiter knows what everybody uses. It knows about 131,000 addresses at most, and
// forgets one only if that gives it nothing. While there are more, the new ones share what
// one address may use.
type Limiter struct {
	opts      Options
	begun     time.Time
	callers   table
	addresses table
}

const (
	shards   = 64
	maxUsers = 2048 // in a shard
)

// A table holds users by their keys.
type table struct {
	seed   maphash.Seed
	most   int // users in a shard
	shards [shards]shard
}

type shard struct {
	mu    sync.Mutex
	users map[string]*User
	_     [64]byte // so that two processors do not wait for one another's shards
}

// New returns a Limiter that has seen nobody.
func New(o Options) *Limiter {
	l := &Limiter{opts: o, begun: time.Now()}
	for _, t := range []*table{&l.callers, &l.addresses} {
		t.seed, t.most = maphash.MakeSeed(), maxUsers
	}
	return l
}

func (l *Limiter) user(whose, sort string, limits *Limits) *User {
	u := &User{whose: whose, sort: sort, limiter: l}
	u.limits.Store(limits)
	return u
}

// clock returns a time in nanoseconds that does not jump.
func (l *Limiter) clock() int64 { return int64(time.Since(l.begun)) }

// Caller returns the User of a caller with a name. own are limits of its own, which may
// have changed since the last call; nil: it has those of all callers.
func (l *Limiter) Caller(name string, own *Limits) *User {
	u := l.callers.find(name, l.clock(), "other callers", func(key string) *User { return l.user("caller "+key, "caller", &l.opts.Caller) })
	limits := &l.opts.Caller
	if own != nil {
		limits = own
	}
	if was := u.limits.Load(); was != limits && *was != *limits {
		u.limits.Store(limits)
	}
	return u
}

// Address returns the User of an address. An address of IPv6 is one with all of its /64,
// which one household has. The zero Addr is an address that nobody knows, and is one, too.
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
		return l.user(whose, "address", &l.opts.Address)
	})
}

// find returns the user with a key, and makes it if it is new. If the table is full, it is
// the user that all new ones share, whose key is rest.
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

// forget forgets one or a few users that are idle. It looks at a few only, so that a flood
// of new ones costs no more than others. It reports whether it found one.
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

// NewContext returns ctx with the User that makes a request; nil: one without limits.
func NewContext(ctx context.Context, u *User) context.Context {
	return context.WithValue(ctx, contextKey{}, u)
}

// FromContext returns the User that makes a request. It is nil if ctx has none, such as
// what the hub does by itself.
func FromContext(ctx context.Context) *User {
	u, _ := ctx.Value(contextKey{}).(*User)
	return u
}
