package subscription

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
)

// Who may do what to a subscription that alice made with a token and a secret, or that
// somebody made without either.
func TestMay(t *testing.T) {
	filter := feed.Filter{Prefix: "https://example.org/"}
	alice := Subscription{By: ByToken("alice"), Terms: Terms{Secret: "s", Filter: filter}, Token: "t"}
	somebody := Subscription{By: ByAddress(netip.MustParseAddr("192.0.2.1")), Token: "t"}
	nobody := Subscription{Token: "t"} // behind a proxy, or by a version that did not keep it
	other := ByAddress(netip.MustParseAddr("192.0.2.66"))
	for _, test := range []struct {
		name string
		of   Subscription
		r    Request
		may  bool
	}{
		{"alice changes all", alice, Request{Mode: Subscribe, By: alice.By, Terms: Terms{Secret: "new"}, Move: true}, true},
		{"alice drops the secret", alice, Request{Mode: Subscribe, By: alice.By, Terms: Terms{Filter: filter}}, true},
		{"alice leaves", alice, Request{Mode: Unsubscribe, By: alice.By}, true},
		{"the secret shows who it is", alice, Request{Mode: Subscribe, By: other, Terms: Terms{Secret: "s"}, Move: true}, true},
		{"the token shows who it is", alice, Request{Mode: Subscribe, By: other, Token: "t", Terms: Terms{Secret: "new"}}, true},
		{"the token of another", alice, Request{Mode: Subscribe, By: other, Token: "u", Terms: Terms{Secret: "new"}}, false},
		{"a stranger drops the secret", alice, Request{Mode: Subscribe, By: other, Terms: Terms{Filter: filter}}, false},
		{"a stranger replaces the secret", alice, Request{Mode: Subscribe, By: other, Terms: Terms{Secret: "new", Filter: filter}}, false},
		{"another token", alice, Request{Mode: Subscribe, By: ByToken("mallory"), Terms: Terms{Secret: "new", Filter: filter}}, false},
		{"a stranger leaves", alice, Request{Mode: Unsubscribe, By: other}, false},
		{"a stranger with the token leaves", alice, Request{Mode: Unsubscribe, By: other, Token: "t"}, true},

		{"a stranger prolongs", somebody, Request{Mode: Subscribe, By: other}, true},
		{"a stranger slows it down", somebody, Request{Mode: Subscribe, By: other, Terms: Terms{Every: time.Hour}}, false},
		{"a stranger filters", somebody, Request{Mode: Subscribe, By: other, Terms: Terms{Filter: filter}}, false},
		{"a stranger moves", somebody, Request{Mode: Subscribe, By: other, Move: true}, false},
		{"a stranger adds a secret", somebody, Request{Mode: Subscribe, By: other, Terms: Terms{Secret: "new"}}, false},
		{"a stranger leaves, if the callback agrees", somebody, Request{Mode: Unsubscribe, By: other}, true},
		{"the same address changes all", somebody, Request{Mode: Subscribe, By: somebody.By, Terms: Terms{Secret: "new", Filter: filter}, Move: true}, true},

		{"nobody is not nobody", nobody, Request{Mode: Subscribe, Terms: Terms{Secret: "new"}}, false},
		{"nobody prolongs", nobody, Request{Mode: Subscribe}, true},
		{"an empty secret shows nothing", nobody, Request{Mode: Subscribe, By: other, Move: true}, false},
		{"an operator may", alice, Request{Mode: Remove}, true},
		{"an operator moves", alice, Request{Mode: Move, Move: true}, true},
	} {
		if err := test.r.May(&test.of); (err == nil) != test.may || err != nil && !errors.Is(err, ErrNotYours) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// A renewal by a stranger prolongs a lease and never shortens it, and the subscription
// stays with whoever made it.
func TestMakes(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	alice, other := ByToken("alice"), ByToken("mallory")
	made := (&Request{Mode: Subscribe, By: alice, Lease: time.Hour, Terms: Terms{Secret: "s"}}).Makes(&Subscription{}, now)
	if made.By != alice || made.Token == "" || !made.LeaseEnd.Equal(now.Add(time.Hour)) || !made.Made.Equal(now) || !made.Renewed.IsZero() {
		t.Errorf("made is %+v", made)
	}
	for _, test := range []struct {
		name string
		r    Request
		end  time.Duration
		by   string
	}{
		{"her own, shorter", Request{By: alice, Lease: time.Minute}, time.Minute, alice},
		{"a stranger's, shorter", Request{By: other, Lease: time.Minute}, time.Hour, alice},
		{"a stranger's, longer", Request{By: other, Lease: 2 * time.Hour}, 2 * time.Hour, alice},
		{"her own from elsewhere", Request{By: other, Token: made.Token, Lease: time.Minute}, time.Minute, other},
		{"her own through a proxy", Request{Terms: Terms{Secret: "s"}, Lease: time.Minute}, time.Minute, alice},
	} {
		if got := test.r.Makes(&made, now); got.By != test.by || !got.LeaseEnd.Equal(now.Add(test.end)) || got.Token != made.Token || !got.Renewed.Equal(now) {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}

func TestByAddress(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1": "address 192.0.2.1", "::ffff:192.0.2.1": "address 192.0.2.1", "2001:db8:1:2:3:4:5:6": "address 2001:db8:1:2::/64", "fe80::1%eth0": "address fe80::/64",
	} {
		if got := ByAddress(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s is %q, want %q", addr, got, want)
		}
	}
}

// The secret before a renewal signs for a day, whatever renewals come meanwhile. It is only the
// last one, and it goes when nothing is signed any more.
func TestFormerSecret(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)
	s := Subscription{}
	for _, step := range []struct {
		after          time.Duration
		ask            string
		secret, former string
	}{
		{0, "", "", ""}, {0, "one", "one", ""}, {0, "two", "two", "one"}, {12 * time.Hour, "two", "two", "one"}, {12 * time.Hour, "two", "two", ""},
		{0, "three", "three", "two"}, {time.Hour, "four", "four", "three"}, {time.Hour, "three", "three", "four"}, {time.Hour, "", "", ""}, {0, "one", "one", ""},
	} {
		now = now.Add(step.after)
		r := Request{Mode: Subscribe, Set: "demo", Callback: "https://callback.example/", Terms: Terms{Secret: step.ask}, By: ByToken("alice"), Lease: time.Hour}
		s = r.Makes(&s, now)
		if secret, former := s.Secrets(now); secret != step.secret || former != step.former {
			t.Errorf("after %q: the secrets are %q and %q, want %q and %q", step.ask, secret, former, step.secret, step.former)
		}
	}
}
