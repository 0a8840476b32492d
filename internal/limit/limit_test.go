package limit

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
)

func parse(t testing.TB, text string) Limits {
	t.Helper()
	l, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestParse(t *testing.T) {
	l := parse(t, "publishes:100/s, changes:1000000/m,bytes:2GiB/h,connections:50,follows:7,sets:none,requests:7/d")
	want := Limits{
		Requests: {7, 24 * time.Hour}, Publishes: {100, time.Second}, Changes: {1_000_000, time.Minute},
		Bytes: {2 << 30, time.Hour}, Sets: {Most: None}, Connections: {Most: 50}, Follows: {Most: 7},
	}
	if l != want {
		t.Errorf("Parse() = %v, want %v", l, want)
	}
	if parse(t, "") != (Limits{}) {
		t.Errorf("Parse(\"\") = %v, want the zero Limits", parse(t, ""))
	}
	for _, invalid := range []string{"publishes", "publishes:", "publishes:1", "publishes:0/s", "publishes:-1/s", "publishes:1/y", "publishes:1KiB/s", "connections:1/s", "connections:x", "follows:1/s",
		"cats:1/s", "publishes:1/s,publishes:2/s", "publishes:1/s,", "publishes:9999999999999/s", "bytes:9999999GiB/s", "publishes:none/s"} {
		if l, err := Parse(invalid); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", invalid, l)
		}
	}
	if _, err := Parse("follows:1/s"); err == nil || !strings.HasSuffix(err.Error(), "follows: got a TIME, want none for concurrent follows") {
		t.Errorf("Parse() of follows with a TIME = %v, want an error that names follows", err)
	}
	if got := (Limits{Sets: {1, time.Hour}}).Or(want); got[Sets].Most != 1 || got[Changes] != want[Changes] {
		t.Errorf("Or() = %v, want its own limit of sets", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("publishes:100/s,bytes:2GiB/h,connections:50,sets:none")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse(text)
		if err != nil {
			return
		}
		for k, one := range l {
			if timed := Kind(k) != Connections && Kind(k) != Follows && one.Most != 0 && one.Most != None; one.Most < 0 || (one.Within > 0) != timed {
				t.Errorf("Parse(%q): got the limit %v of %v, want a window if and only if it is a rate", text, one, Kind(k))
			}
		}
	})
}

func wantProblem(t *testing.T, err error, retry int, words ...string) {
	t.Helper()
	p, ok := errors.AsType[*feed.Problem](err)
	if !ok || p.Status != 429 || p.RetryAfter != retry {
		t.Fatalf("got %v (%+v), want 429 with Retry-After %d", err, p, retry)
	}
	text := p.Detail + " " + http.Header(p.Header).Get("RateLimit-Policy") + " " + http.Header(p.Header).Get("RateLimit")
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("got %q, want a part %q", text, w)
		}
	}
}

// A limit may be used at once, is refilled evenly, and may be overdrawn by one request.
func TestUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Caller: parse(t, "publishes:10/m,changes:100/s")})
		u := l.Caller("ann", nil)
		for range 10 {
			if err := u.Use(Publishes, 1); err != nil {
				t.Fatal(err)
			}
		}
		wantProblem(t, u.Use(Publishes, 1), 6, "caller ann", "10 publishes in a minute", `"publishes";q=10;w=60`, `"publishes";r=0;t=6`)
		time.Sleep(6 * time.Second)
		if err := u.Use(Publishes, 1); err != nil {
			t.Fatal(err)
		}
		if u.Use(Publishes, 1) == nil {
			t.Error("Use() after six seconds: got two tokens, want one")
		}
		if err := l.Caller("bob", nil).Use(Publishes, 1); err != nil {
			t.Errorf("Use() by another caller = %v, want nil", err)
		}
		if err := u.Use(Changes, 1000); err != nil {
			t.Errorf("Use() of more than the limit = %v, want nil", err)
		}
		wantProblem(t, u.Check(Changes), 10)
		if got := u.Wait(Changes); got < 9*time.Second || got > 10*time.Second {
			t.Errorf("Wait() = %v, want 9s to 10s", got)
		}
		time.Sleep(u.Wait(Changes))
		if err := u.Check(Changes); err != nil {
			t.Error(err)
		}
		if err := u.Use(Sets, 1_000_000); err != nil {
			t.Errorf("Use() without a limit = %v, want nil", err)
		}
	})
}

func TestOwnLimits(t *testing.T) {
	l := New(Options{Caller: parse(t, "publishes:5/h,connections:2")})
	own := parse(t, "publishes:none")
	ann, bob := l.Caller("ann", &own), l.Caller("bob", nil)
	for range 6 {
		if err := ann.Use(Publishes, 1); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		if err := bob.Use(Publishes, 1); err != nil {
			t.Fatal(err)
		}
	}
	wantProblem(t, bob.Use(Publishes, 1), 3600/5, "caller bob has reached")
	ann.Spend(Publishes, 6)
	if l.Caller("ann", nil); ann.Use(Publishes, 1) != nil { // use without a limit was not counted
		t.Error("Use() after use without a limit: got an error, want nil")
	}
	var nobody *User
	if nobody.Use(Publishes, 1) != nil || nobody.Wait(Publishes) != 0 {
		t.Error("nil User: got a limit, want none")
	}
	var open []func()
	for range 2 {
		done, err := bob.Open()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, done)
	}
	_, err := bob.Open()
	wantProblem(t, err, 10, "caller bob", "limit of 2 concurrent connections", `"connections";q=2`)
	open[0]()
	if _, err := bob.Open(); err != nil {
		t.Errorf("Open() after one was closed = %v, want nil", err)
	}
}

// Acquire takes all of n or nothing, and each gauge has its own limit.
func TestAcquire(t *testing.T) {
	l := New(Options{Caller: parse(t, "connections:1,follows:10")})
	ann, bob := l.Caller("ann", nil), l.Caller("bob", nil)
	var unlimited *User
	for _, step := range []struct {
		name       string
		user       *User
		kind       Kind
		release, n int64
		ok         bool
	}{
		{"within the limit", ann, Follows, 0, 8, true},
		{"more than the limit in total", ann, Follows, 0, 3, false},
		{"the rest", ann, Follows, 0, 2, true},
		{"at the limit", ann, Follows, 0, 1, false},
		{"after a release", ann, Follows, 3, 3, true},
		{"of another caller", bob, Follows, 0, 10, true},
		{"of another kind", ann, Connections, 0, 1, true},
		{"of another kind at its limit", ann, Connections, 0, 1, false},
		{"without limits", unlimited, Follows, 1, 1 << 40, true},
	} {
		step.user.Release(step.kind, step.release)
		err := step.user.Acquire(step.kind, step.n)
		switch {
		case step.ok && err != nil:
			t.Errorf("Acquire(%v, %d) %s = %v, want nil", step.kind, step.n, step.name, err)
		case !step.ok && step.kind == Follows:
			wantProblem(t, err, 10, "caller ann has reached its limit of 10 concurrent follows", `"follows";q=10`, `"follows";r=0`)
		case !step.ok:
			wantProblem(t, err, 10, "limit of 1 concurrent connections")
		}
	}
	if n := l.opts.Refusals.OfCallers(Follows); n != 2 {
		t.Errorf("OfCallers(Follows) = %d, want 2", n)
	}
}

// A user that holds something of a gauge is not evicted.
func TestIdleUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{})
		u := l.Caller("ann", nil)
		time.Sleep(2 * minIdle)
		for _, kind := range []Kind{Connections, Follows} {
			if err := u.Acquire(kind, 2); err != nil {
				t.Fatal(err)
			}
			if u.Release(kind, 1); u.idle(l.clock()) {
				t.Errorf("idle() with one of %v = true, want false", kind)
			}
			if u.Release(kind, 1); !u.idle(l.clock()) {
				t.Errorf("idle() without %v = false, want true", kind)
			}
		}
	})
}

func TestAddressLimits(t *testing.T) {
	l := New(Options{Address: parse(t, "requests:1/h")})
	use := func(a string) error {
		addr, _ := netip.ParseAddr(a)
		return l.Address(addr).Use(Requests, 1)
	}
	for _, test := range []struct {
		addr string
		ok   bool
	}{
		{"192.0.2.1", true},
		{"192.0.2.1", false},
		{"::ffff:192.0.2.1", false},
		{"192.0.2.2", true},
		{"2001:db8::1", true},
		{"2001:db8::ffff:1", false},
		{"2001:db8:0:1::1", true},
		{"fe80::1%eth0", true},
		{"fe80::2%eth1", false},
		{"", true},
		{"", false},
	} {
		if err := use(test.addr); (err == nil) != test.ok {
			t.Errorf("Use() from %q = %v, want ok: %t", test.addr, err, test.ok)
		}
	}
	if n := l.opts.Refusals.OfAddresses(Requests); n != 5 {
		t.Errorf("OfAddresses() = %v, want 5", n)
	}
	wantProblem(t, use("2001:db8::7"), 3600, "the network 2001:db8::/64")
}

// During a flood of addresses, memory is bounded, no limit is lifted, and known addresses keep their own.
// Idle addresses are evicted.
func TestAddressFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Address: parse(t, "requests:2/m")})
		l.addresses.max = 64
		const maxUsers = 64 * shards
		addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
		count := func() (n int) {
			for i := range l.addresses.shards {
				n += len(l.addresses.shards[i].users)
			}
			return n
		}
		_ = l.Address(addr(0)).Use(Requests, 1)
		_ = l.Address(addr(0)).Use(Requests, 1)
		shared := 0
		for i := range 3 * maxUsers / 2 {
			if l.Address(addr(i+1)).Use(Requests, 1) != nil {
				shared++
			}
		}
		if n := count(); n > maxUsers+shards {
			t.Errorf("got %d addresses, want at most %d", n, maxUsers+shards)
		}
		if shared < maxUsers/3 {
			t.Errorf("got %d refusals, want at least %d", shared, maxUsers/3)
		}
		if l.Address(addr(0)).Use(Requests, 1) == nil {
			t.Error("Use() after the flood = nil, want the limit of before")
		}
		time.Sleep(time.Hour)
		for i := range maxUsers / 4 {
			if err := l.Address(addr(i+3*maxUsers)).Use(Requests, 1); err != nil {
				t.Fatalf("Use() of address %d after an hour = %v, want nil", i, err)
			}
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	l := New(Options{Caller: parse(t, "publishes:1000/d,connections:10")})
	var ok atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				u := l.Caller("ann", nil)
				if done, err := u.Open(); err == nil {
					done()
				}
				if u.Use(Publishes, 1) == nil {
					ok.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := ok.Load(); n < 1000 || n > 1010 { // each of the eight may pass the check concurrently
		t.Errorf("got %d publishes, want 1000 to 1010", n)
	}
	if n := l.Caller("ann", nil).gauge(Connections).Load(); n != 0 {
		t.Errorf("got %d open connections, want 0", n)
	}
}

// Use far above a small limit does not overflow: the caller waits for a long time.
func TestHugeUse(t *testing.T) {
	l, err := Parse("bytes:1/d")
	if err != nil {
		t.Fatal(err)
	}
	u := New(Options{Caller: l}).Caller("ann", nil)
	for range 5 {
		u.Spend(Bytes, 1<<40)
		if wait := u.Wait(Bytes); wait < 365*24*time.Hour {
			t.Fatalf("Wait() = %v, want more than a year", wait)
		}
	}
	if p := problem.From(u.Use(Bytes, 1)); p.RetryAfter < 1<<24 || p.Status != http.StatusTooManyRequests {
		t.Errorf("Use() = %+v, want 429 with a large Retry-After", p)
	}
}
