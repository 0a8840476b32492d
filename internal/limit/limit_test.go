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
	l := parse(t, "publishes:100/s, changes:1000000/m,bytes:2GiB/h,connections:50,sets:none,requests:7/d")
	want := Limits{
		Requests: {7, 24 * time.Hour}, Publishes: {100, time.Second}, Changes: {1_000_000, time.Minute},
		Bytes: {2 << 30, time.Hour}, Sets: {Most: None}, Connections: {Most: 50},
	}
	if l != want {
		t.Errorf("got %v", l)
	}
	if parse(t, "") != (Limits{}) {
		t.Error("nothing is something")
	}
	for _, bad := range []string{"publishes", "publishes:", "publishes:1", "publishes:0/s", "publishes:-1/s", "publishes:1/y", "publishes:1KiB/s", "connections:1/s", "connections:x",
		"cats:1/s", "publishes:1/s,publishes:2/s", "publishes:1/s,", "publishes:9999999999999/s", "bytes:9999999GiB/s", "publishes:none/s"} {
		if l, err := Parse(bad); err == nil {
			t.Errorf("%q is %v", bad, l)
		}
	}
	if got := (Limits{Sets: {1, time.Hour}}).Or(want); got[Sets].Most != 1 || got[Changes] != want[Changes] {
		t.Errorf("Or() = %v", got)
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
			if timed := Kind(k) != Connections && one.Most != 0 && one.Most != None; one.Most < 0 || (one.Within > 0) != timed {
				t.Errorf("%q has the limit %v of %v", text, one, Kind(k))
			}
		}
	})
}

func wantProblem(t *testing.T, err error, retry int, words ...string) {
	t.Helper()
	p, ok := errors.AsType[*feed.Problem](err)
	if !ok || p.Status != 429 || p.RetryAfter != retry {
		t.Fatalf("%v, want 429 after %d s, got %+v", err, retry, p)
	}
	text := p.Detail + " " + http.Header(p.Header).Get("RateLimit-Policy") + " " + http.Header(p.Header).Get("RateLimit")
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q lacks %q", text, w)
		}
	}
}

// All of a limit may be used at once, it comes back evenly, and more than all of it is a
// debt.
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
			t.Error("a second one came back within six seconds")
		}
		if err := l.Caller("bob", nil).Use(Publishes, 1); err != nil {
			t.Errorf("another caller: %v", err)
		}
		if err := u.Use(Changes, 1000); err != nil {
			t.Error("a publish that is larger than the limit:", err)
		}
		wantProblem(t, u.Check(Changes), 10)
		if got := u.Wait(Changes); got < 9*time.Second || got > 10*time.Second {
			t.Errorf("Wait() = %v", got)
		}
		time.Sleep(u.Wait(Changes))
		if err := u.Check(Changes); err != nil {
			t.Error(err)
		}
		if err := u.Use(Sets, 1_000_000); err != nil {
			t.Errorf("what is not limited: %v", err)
		}
	})
}

func TestOwn(t *testing.T) {
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
	if l.Caller("ann", nil); ann.Use(Publishes, 1) != nil { // what was not limited was not counted
		t.Error("what was used without a limit counts")
	}
	var nobody *User
	if nobody.Use(Publishes, 1) != nil || nobody.Wait(Publishes) != 0 {
		t.Error("who has no limits is limited")
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
	wantProblem(t, err, 10, "caller bob", "limit of 2 connections at once", `"connections";q=2`)
	open[0]()
	if _, err := bob.Open(); err != nil {
		t.Errorf("after one was closed: %v", err)
	}
}

func TestAddress(t *testing.T) {
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
			t.Errorf("%s: %v", test.addr, err)
		}
	}
	if n := l.opts.Refusals.OfAddresses(Requests); n != 5 {
		t.Errorf("%v refusals were counted", n)
	}
	wantProblem(t, use("2001:db8::7"), 3600, "the network 2001:db8::/64")
}

// A flood of addresses takes bounded memory, lifts no limit, and leaves addresses that
// were there their own; those that are idle make room.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Address: parse(t, "requests:2/m")})
		l.addresses.most = 64
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
			t.Errorf("%d addresses are known", n)
		}
		if shared < maxUsers/3 {
			t.Errorf("only %d were refused", shared)
		}
		if l.Address(addr(0)).Use(Requests, 1) == nil {
			t.Error("a flood lifted a limit")
		}
		time.Sleep(time.Hour)
		for i := range maxUsers / 4 {
			if err := l.Address(addr(i+3*maxUsers)).Use(Requests, 1); err != nil {
				t.Fatalf("after an hour, address %d: %v", i, err)
			}
		}
	})
}

func TestUseAtTheSameTime(t *testing.T) {
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
	if n := ok.Load(); n < 1000 || n > 1010 { // each of the eight may pass the check at the same moment
		t.Errorf("%d were let in", n)
	}
	if n := l.Caller("ann", nil).open.Load(); n != 0 {
		t.Errorf("%d are open", n)
	}
}

// Whoever uses far more than a small limit waits for long, and is not free of it.
func TestHugeUse(t *testing.T) {
	l, err := Parse("bytes:1/d")
	if err != nil {
		t.Fatal(err)
	}
	u := New(Options{Caller: l}).Caller("ann", nil)
	for range 5 {
		u.Spend(Bytes, 1<<40)
		if wait := u.Wait(Bytes); wait < 365*24*time.Hour {
			t.Fatalf("it waits %v", wait)
		}
	}
	if p := problem.From(u.Use(Bytes, 1)); p.RetryAfter < 1<<24 || p.Status != http.StatusTooManyRequests {
		t.Errorf("%+v", p)
	}
}
