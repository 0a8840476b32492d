package subscription

import (
	"crypto/subtle"
	"net/netip"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
)

// ErrNotYours means that a request would change a subscription that somebody
// else made, as far as the hub can tell.
var ErrNotYours = &feed.Error{Code: "not-yours", Status: 403, Text: "the subscription belongs to another subscriber",
	Detail: "this callback has a subscription to this topic that belongs to another subscriber; to change its hub.secret, filter or cursor, or to end one that was made with a token, " +
		"send the current hub.secret, or rs.status with the URL from the verification; without them a renewal can only prolong the lease"}

// Terms are what a subscriber chose for its deliveries. Only the subscriber may change
// them. They are stored as a part of the Subscription or Request that has them.
type Terms struct {
	Secret string        `json:"secret,omitempty"` // for signatures; never shown; with Unsubscribe it only shows who asks
	Filter feed.Filter   `json:"filter,omitzero"`
	Every  time.Duration `json:"every,omitempty"` // minimum time from the end of one burst of deliveries to the next; zero means none
}

// same reports whether other are the same terms. Neither may have an encrypted secret.
func (t *Terms) same(other *Terms) bool {
	return subtle.ConstantTimeCompare([]byte(t.Secret), []byte(other.Secret)) == 1 &&
		t.Filter.Key() == other.Filter.Key() &&
		t.Every == other.Every
}

const byToken = "token "

// BySet is what Request.By is for a subscription that the description of its set wants. It lasts
// as long as the description says.
const BySet = "set"

// ByToken returns what Request.By is for a caller with a token of that name.
func ByToken(name string) string { return byToken + name }

// NameOf returns the name of the token that Request.By is of. It is empty for a caller without
// a token, and for one who is not known.
func NameOf(by string) string {
	if name, ok := strings.CutPrefix(by, byToken); ok {
		return name
	}
	return ""
}

// ByAddress returns what Request.By is for a caller without a token: its
// network address, of IPv6 the first 64 bits, since the rest of it may change
// at any time.
func ByAddress(addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if p, err := addr.Prefix(64); err == nil {
			return "address " + p.String()
		}
	}
	return "address " + addr.String()
}

// Shows reports whether a request shows that it comes from whoever made a
// subscription: it has the same caller, or knows the token of the status, or
// the secret.
func (r *Request) Shows(s *Subscription) bool {
	same := func(shown, kept string) bool {
		return kept != "" && subtle.ConstantTimeCompare([]byte(shown), []byte(kept)) == 1
	}
	return same(r.By, s.By) || same(r.Token, s.Token) || s.Sealed == "" && same(r.Secret, s.Secret)
}

// May returns nil when a request may do to a subscription what it asks for, once
// the callback has confirmed it. Otherwise it returns ErrNotYours.
//
// The callback's confirmation alone does not suffice: some callbacks confirm
// everything. Without a sign of who made the subscription, a renewal may only
// prolong the lease, as the clients do that renew exactly as they subscribed. A
// subscriber without a token has nothing to show when it unsubscribes, so there
// the confirmation decides, as WebSub has it.
func (r *Request) May(s *Subscription) error {
	switch {
	case r.Mode != Subscribe && r.Mode != Unsubscribe, !s.Ended.IsZero(), r.Shows(s):
		return nil
	case r.Mode == Unsubscribe && !strings.HasPrefix(s.By, byToken):
		return nil
	case r.Mode == Subscribe && s.Sealed == "" && r.Terms.same(&s.Terms) && !r.Move:
		return nil
	}
	return ErrNotYours
}
