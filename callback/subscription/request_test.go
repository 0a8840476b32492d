package subscription

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/rshub/rshub/feed"
)

// The maker of a subscription may change it. Others may prolong it, or end it if it was made without a token.
func TestMay(t *testing.T) {
	filter := feed.Filter{Prefix: "https://example.org/"}
	alice := Subscription{By: ByToken("alice"), Terms: Terms{Secret: "s", Filter: filter}, Token: "t"}
	address := Subscription{By: ByAddress(netip.MustParseAddr("192.0.2.1")), Token: "t"}
	unknown := Subscription{Token: "t"}
	other := ByAddress(netip.MustParseAddr("192.0.2.66"))
	for _, tt := range []struct {
		name string
		s    Subscription
		r    Request
		may  bool
	}{
		{"maker changes all", alice, Request{Mode: Subscribe, By: alice.By, Terms: Terms{Secret: "new"}, Move: true}, true},
		{"maker drops the secret", alice, Request{Mode: Subscribe, By: alice.By, Terms: Terms{Filter: filter}}, true},
		{"maker unsubscribes", alice, Request{Mode: Unsubscribe, By: alice.By}, true},
		{"secret", alice, Request{Mode: Subscribe, By: other, Terms: Terms{Secret: "s"}, Move: true}, true},
		{"status token", alice, Request{Mode: Subscribe, By: other, Token: "t", Terms: Terms{Secret: "new"}}, true},
		{"wrong status token", alice, Request{Mode: Subscribe, By: other, Token: "u", Terms: Terms{Secret: "new"}}, false},
		{"stranger drops the secret", alice, Request{Mode: Subscribe, By: other, Terms: Terms{Filter: filter}}, false},
		{"stranger replaces the secret", alice, Request{Mode: Subscribe, By: other, Terms: Terms{Secret: "new", Filter: filter}}, false},
		{"another token", alice, Request{Mode: Subscribe, By: ByToken("mallory"), Terms: Terms{Secret: "new", Filter: filter}}, false},
		{"stranger unsubscribes", alice, Request{Mode: Unsubscribe, By: other}, false},
		{"stranger with the status token unsubscribes", alice, Request{Mode: Unsubscribe, By: other, Token: "t"}, true},

		{"stranger prolongs", address, Request{Mode: Subscribe, By: other}, true},
		{"stranger delays deliveries", address, Request{Mode: Subscribe, By: other, Terms: Terms{Every: time.Hour}}, false},
		{"stranger filters", address, Request{Mode: Subscribe, By: other, Terms: Terms{Filter: filter}}, false},
		{"stranger moves", address, Request{Mode: Subscribe, By: other, Move: true}, false},
		{"stranger adds a secret", address, Request{Mode: Subscribe, By: other, Terms: Terms{Secret: "new"}}, false},
		{"stranger unsubscribes without a token", address, Request{Mode: Unsubscribe, By: other}, true},
		{"same address changes all", address, Request{Mode: Subscribe, By: address.By, Terms: Terms{Secret: "new", Filter: filter}, Move: true}, true},

		{"two unknown makers differ", unknown, Request{Mode: Subscribe, Terms: Terms{Secret: "new"}}, false},
		{"unknown caller prolongs", unknown, Request{Mode: Subscribe}, true},
		{"empty secret", unknown, Request{Mode: Subscribe, By: other, Move: true}, false},
		{"operator removes", alice, Request{Mode: Remove}, true},
		{"operator moves", alice, Request{Mode: Move, Move: true}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.r.May(&tt.s); (err == nil) != tt.may || err != nil && !errors.Is(err, ErrNotYours) {
				t.Errorf("May() = %v, want allowed %v", err, tt.may)
			}
		})
	}
}

// A renewal by a stranger prolongs a lease and never shortens it, and does not change the maker.
func TestMakes(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	alice, other := ByToken("alice"), ByToken("mallory")
	made := (&Request{Mode: Subscribe, By: alice, Lease: time.Hour, Terms: Terms{Secret: "s"}}).Makes(&Subscription{}, now)
	if made.By != alice || made.Token == "" || !made.LeaseEnd.Equal(now.Add(time.Hour)) || !made.Made.Equal(now) || !made.Renewed.IsZero() {
		t.Errorf("Makes() of a new subscription = %+v", made)
	}
	for _, tt := range []struct {
		name  string
		r     Request
		lease time.Duration
		by    string
	}{
		{"maker, shorter", Request{By: alice, Lease: time.Minute}, time.Minute, alice},
		{"stranger, shorter", Request{By: other, Lease: time.Minute}, time.Hour, alice},
		{"stranger, longer", Request{By: other, Lease: 2 * time.Hour}, 2 * time.Hour, alice},
		{"status token", Request{By: other, Token: made.Token, Lease: time.Minute}, time.Minute, other},
		{"secret, unknown caller", Request{Terms: Terms{Secret: "s"}, Lease: time.Minute}, time.Minute, alice},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.r.Makes(&made, now)
			if got.By != tt.by || !got.LeaseEnd.Equal(now.Add(tt.lease)) || got.Token != made.Token || !got.Renewed.Equal(now) {
				t.Errorf("Makes() = %+v, want maker %q and a lease of %v", got, tt.by, tt.lease)
			}
		})
	}
}

func TestByAddress(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1":            "address 192.0.2.1",
		"::ffff:192.0.2.1":     "address 192.0.2.1",
		"2001:db8:1:2:3:4:5:6": "address 2001:db8:1:2::/64",
		"fe80::1%eth0":         "address fe80::/64",
	} {
		if got := ByAddress(netip.MustParseAddr(addr)); got != want {
			t.Errorf("ByAddress(%s) = %q, want %q", addr, got, want)
		}
	}
}

// The previous secret signs for a day after a renewal with another one, whatever renewals follow. There is
// only one, and it ends when a renewal has no secret.
func TestFormerSecret(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)
	s := Subscription{}
	for i, step := range []struct {
		after                 time.Duration
		renew, secret, former string
	}{
		{0, "", "", ""}, {0, "one", "one", ""}, {0, "two", "two", "one"}, {12 * time.Hour, "two", "two", "one"}, {12 * time.Hour, "two", "two", ""},
		{0, "three", "three", "two"}, {time.Hour, "four", "four", "three"}, {time.Hour, "three", "three", "four"}, {time.Hour, "", "", ""}, {0, "one", "one", ""},
	} {
		now = now.Add(step.after)
		r := Request{Mode: Subscribe, Set: "demo", Callback: "https://callback.example/", Terms: Terms{Secret: step.renew}, By: ByToken("alice"), Lease: time.Hour}
		s = r.Makes(&s, now)
		if secret, former := s.Secrets(now); secret != step.secret || former != step.former {
			t.Errorf("step %d: Secrets() = %q, %q, want %q, %q", i, secret, former, step.secret, step.former)
		}
	}
}
