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
)

func TestRequester(t *testing.T) {
	for _, tt := range []struct{ name, remote, client, token, want string }{
		{"token", "192.0.2.1:5", "", "alice", "token alice"},
		{"token behind a proxy", "10.0.0.1:5", "198.51.100.1", "alice", "token alice"},
		{"ticket", "192.0.2.1:5", "", "ticket of alice", ""},
		{"address", "192.0.2.1:5", "", "", "address 192.0.2.1"},
		{"IPv6 address", "[2001:db8::1]:5", "", "", "address 2001:db8::/64"},
		{"loopback", "127.0.0.1:5", "", "", "address 127.0.0.1"},
		{"proxy", "10.0.0.1:5", "198.51.100.1", "", "address 198.51.100.1"},
		{"proxy, IPv6", "[::1]:5", "2001:db8::1", "", "address 2001:db8::/64"},
		{"no address", "", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/hub", nil)
			r.RemoteAddr = tt.remote
			r.Header.Set("X-Forwarded-For", "203.0.113.1") // already evaluated
			if tt.client != "" {
				r = r.WithContext(forwarded.NewContext(r.Context(), netip.MustParseAddr(tt.client)))
			}
			name, ticket := strings.CutPrefix(tt.token, "ticket of ")
			r = r.WithContext(access.NewContext(r.Context(), access.Caller{Name: name, Ticket: ticket}))
			if got := Requester(r); got != tt.want {
				t.Errorf("Requester() = %q, want %q", got, tt.want)
			}
		})
	}
}

// A stranger's request about a subscription is refused if it would change more than the lease. The response states what
// proves that it is the caller's.
func TestNotYours(t *testing.T) {
	f, _ := newFront(t, Options{})
	existing := record(1, feed.Cursor{})
	existing.By = subscription.ByToken("alice")
	f.put(t, existing)
	const refused = "hub.secret, or rs.status"
	status := base + "/subscriptions/" + existing.ID().String() + "."
	for _, tt := range []struct {
		name, caller string
		pairs        []string
		status       int
		want         string
	}{
		{"owner, other secret", "alice", []string{"hub.secret", "another"}, 202, ""},
		{"owner, no secret", "alice", []string{"hub.secret", "-"}, 202, ""},
		{"owner unsubscribes", "alice", []string{"hub.secret", "-", "hub.mode", "unsubscribe"}, 202, ""},
		{"stranger, same secret", "mallory", nil, 202, ""},
		{"stranger, no secret", "mallory", []string{"hub.secret", "-"}, 403, refused},
		{"stranger, other secret", "mallory", []string{"hub.secret", "another"}, 403, refused},
		{"no token", "", []string{"hub.secret", "-"}, 403, refused},
		{"no token unsubscribes", "", []string{"hub.secret", "-", "hub.mode", "unsubscribe"}, 403, refused},
		{"same secret unsubscribes", "", []string{"hub.mode", "unsubscribe"}, 202, ""},
		{"status", "", []string{"hub.secret", "another", "rs.status", status + existing.Token}, 202, ""},
		{"wrong status", "", []string{"hub.secret", "another", "rs.status", status + "wrong"}, 403, refused},
		{"status at another hub", "", []string{"hub.secret", "another", "rs.status", "https://other.example/subscriptions/x.y"}, 400, "rs.status"},
		{"empty status", "", []string{"rs.status", status}, 400, "rs.status"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(f.pending(t))
			form := formWith(append(tt.pairs, "hub.callback", existing.Callback)...)
			w := f.postAs(t, access.Caller{Name: tt.caller, Rights: access.All()}, form, tt.status, tt.want)
			if strings.Contains(w.Body.String(), existing.Token) {
				t.Errorf("got %q, which has the token", w.Body)
			}
			if sent := len(f.pending(t)) - before; (sent == 1) != (tt.status == 202) {
				t.Errorf("sent %d requests", sent)
			}
		})
	}
}
