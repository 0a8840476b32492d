package websub

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/forwarded"
	"github.com/rshub/rshub/internal/testutil/memorytest"
)

func TestRequester(t *testing.T) {
	for _, test := range []struct{ name, remote, noted, caller, want string }{
		{"a token", "192.0.2.1:5", "", "alice", "token alice"},
		{"a token behind a proxy", "10.0.0.1:5", "198.51.100.1", "alice", "token alice"},
		{"directly", "192.0.2.1:5", "", "", "address 192.0.2.1"},
		{"directly by IPv6", "[2001:db8::1]:5", "", "", "address 2001:db8::/64"},
		{"this machine", "127.0.0.1:5", "", "", "address 127.0.0.1"},
		{"a proxy", "10.0.0.1:5", "198.51.100.1", "", "address 198.51.100.1"},
		{"a proxy, IPv6", "[::1]:5", "2001:db8::1", "", "address 2001:db8::/64"},
		{"no connection", "", "", "", ""},
		{"a ticket", "192.0.2.1:5", "", "a ticket of alice", ""},
	} {
		r := httptest.NewRequest(http.MethodPost, "/hub", nil)
		r.RemoteAddr = test.remote
		r.Header.Set("X-Forwarded-For", "203.0.113.1") // what it counts is known already
		if test.noted != "" {
			r = r.WithContext(forwarded.NewContext(r.Context(), netip.MustParseAddr(test.noted)))
		}
		name, ticket := strings.CutPrefix(test.caller, "a ticket of ")
		r = r.WithContext(access.NewContext(r.Context(), access.Caller{Name: name, Ticket: ticket}))
		if got := Requester(r); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// A stranger's request about somebody's subscription is refused when it would change
// more than the lease, and the answer says what is to be shown.
func TestNotYours(t *testing.T) {
	f := newFront(t, Options{})
	memorytest.Fill(t, f.log, "demo")
	const token = "TOKEN"
	kept := subscription.Record{Subscription: subscription.Subscription{
		Set: "demo", Callback: "https://callback.example/cb", Terms: subscription.Terms{Secret: secret}, Token: token, By: subscription.ByToken("alice"), LeaseEnd: now.AddDate(0, 0, 1),
	}, Progress: subscription.Progress{Cursor: feed.Cursor{}}}
	f.put(kept)
	status := base + "/subscriptions/" + kept.ID().String() + "."
	for _, test := range []struct {
		caller, form string
		status       int
		says         string
	}{
		{"alice", asking("hub.secret", "another"), 202, ""},
		{"alice", asking("hub.secret", "-"), 202, ""},
		{"alice", asking("hub.secret", "-", "hub.mode", "unsubscribe"), 202, ""},
		{"mallory", asking(), 202, ""},
		{"mallory", asking("hub.secret", "-"), 403, "hub.secret, or rs.status"},
		{"mallory", asking("hub.secret", "another"), 403, "hub.secret, or rs.status"},
		{"", asking("hub.secret", "-"), 403, "hub.secret, or rs.status"},
		{"", asking("hub.secret", "-", "hub.mode", "unsubscribe"), 403, "hub.secret, or rs.status"},
		{"", asking("hub.mode", "unsubscribe"), 202, ""},
		{"", asking("hub.secret", "another", "rs.status", status+token), 202, ""},
		{"", asking("hub.secret", "another", "rs.status", status+"wrong"), 403, "hub.secret, or rs.status"},
		{"", asking("hub.secret", "another", "rs.status", "https://other.example/subscriptions/x.y"), 400, "rs.status"},
		{"", asking("rs.status", status), 400, "rs.status"},
	} {
		before := len(f.waiting())
		w := f.as(test.caller, test.form)
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.says) || strings.Contains(w.Body.String(), secret) || strings.Contains(w.Body.String(), token) {
			t.Errorf("%s of %q is answered %d: %s", test.form, test.caller, w.Code, w.Body)
		}
		if sent := len(f.waiting()) > before; sent != (w.Code == 202) {
			t.Errorf("%s of %q: sent is %v", test.form, test.caller, sent)
		}
	}
}
