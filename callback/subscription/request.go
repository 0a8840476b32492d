package subscription

import (
	"cmp"
	"crypto/rand"
	"crypto/subtle"
	"net/netip"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
)

// A Request is what a subscriber or an operator wants. It is in the inbox of its shard until the hub that
// has the shard has executed it. Fields without a comment are as in a Subscription.
type Request struct {
	Number   uint64 `json:"-"` // place in the inbox, set by the registry; numbers rise
	Mode     Mode   `json:"mode"`
	Set      string `json:"set"`
	Form     string `json:"form,omitempty"`
	Callback string `json:"callback"`
	Terms
	Sealed   string        `json:"sealed,omitempty"`   // key of Secret and VerifyToken
	Lease    time.Duration `json:"lease,omitempty"`    // with Subscribe, the granted lease
	Start    feed.Cursor   `json:"start,omitzero"`     // with Subscribe and Move, the cursor that deliveries follow
	Move     bool          `json:"move,omitempty"`     // with Subscribe, whether Start applies to a renewal
	Diverged bool          `json:"diverged,omitempty"` // with Start, whether the log had lost its tail since the requested cursor
	By       string        `json:"by,omitempty"`       // subscriber, from ByToken or ByAddress; empty if unknown
	Token    string        `json:"token,omitempty"`    // Subscription.Token, if the subscriber sent it to authenticate

	// VerifyToken is the hub.verify_token of PubSubHubbub 0.3 section 6.1, or empty: each verification and
	// denial of the request returns it to the callback. It may be a secret.
	VerifyToken string `json:"verifyToken,omitempty"`

	Key    string    `json:"key,omitempty"`
	Anyone bool      `json:"anyone,omitempty"`
	Until  time.Time `json:"until,omitzero"`
	At     time.Time `json:"at"` // when it was accepted
}

// A Mode is what a Request is for.
type Mode string

const (
	Subscribe   Mode = "subscribe"   // by the subscriber: verify, then make or renew the subscription
	Unsubscribe Mode = "unsubscribe" // by the subscriber: verify, then remove it
	Remove      Mode = "remove"      // by an operator: remove it, and notify the callback (hub.mode=denied)
	Retry       Mode = "retry"       // by an operator: deliver now
	Move        Mode = "move"        // by an operator: continue after Start
)

// ByOperator reports whether an operator makes requests of the mode.
func (m Mode) ByOperator() bool { return m != Subscribe && m != Unsubscribe }

// inboxLimit returns the number of pending requests from which on the inbox refuses this one. limit is
// that for subscribers. Operators have some more room, so that subscribers cannot keep them out.
func (r *Request) inboxLimit(limit int) int {
	if r.Mode.ByOperator() {
		return limit + limit/10 + 1
	}
	return limit
}

// ID returns the ID of the subscription that the request is about.
func (r *Request) ID() ID { return NewID(r.Set, r.Form, r.Callback) }

// Makes returns the subscription that the request makes, or renews if was is active; was is zero if there
// is none. A renewal keeps the maker, and the end of the lease if that is later, unless the request
// Shows that it is from the maker. The lease ends at the latest when the token of the maker expires.
func (r *Request) Makes(was *Subscription, now time.Time) Subscription {
	now = now.UTC().Round(0)
	s := Subscription{
		Set: r.Set, Form: r.Form, Callback: r.Callback, Terms: r.Terms, LeaseEnd: now.Add(r.Lease),
		By: r.By, Key: r.Key, Anyone: r.Anyone, Until: r.Until,
	}
	if was.Token == "" || !was.Ended.IsZero() {
		s.Token, s.Made = rand.Text(), now
	} else {
		s.Token, s.Made, s.Renewed = was.Token, was.Made, now
		if r.Shows(was) {
			s.By = cmp.Or(r.By, was.By)
		} else {
			s.By, s.Key, s.Anyone, s.Until = was.By, was.Key, was.Anyone, was.Until
			if was.LeaseEnd.After(s.LeaseEnd) {
				s.LeaseEnd = was.LeaseEnd
			}
		}
		s.setFormer(was, now)
	}
	if !s.Until.IsZero() && s.Until.Before(s.LeaseEnd) {
		s.LeaseEnd = s.Until.UTC().Round(0)
	}
	return s
}

// setFormer sets the previous secret of a renewed subscription, which signs for FormerFor.
func (s *Subscription) setFormer(was *Subscription, now time.Time) {
	switch secret, former := was.Secrets(now); {
	case s.Secret == "":
	case s.Secret == secret:
		s.Former = former
	case secret != "":
		s.Former = secret
	}
	switch {
	case s.Former == "":
	case s.Former == was.Former:
		s.FormerEnd = was.FormerEnd
	default:
		s.FormerEnd = now.Add(FormerFor)
	}
}

// Shows reports whether a request shows that it is from the maker of a subscription: it has the same
// subscriber, the token or the secret.
func (r *Request) Shows(s *Subscription) bool {
	equal := func(sent, stored string) bool {
		return stored != "" && subtle.ConstantTimeCompare([]byte(sent), []byte(stored)) == 1
	}
	return equal(r.By, s.By) || equal(r.Token, s.Token) || s.Sealed == "" && equal(r.Secret, s.Secret)
}

// May returns nil if the request may be executed on a subscription once the callback has confirmed it.
// Otherwise it returns ErrNotYours.
//
// The confirmation alone does not suffice, because some callbacks confirm everything. A request that does
// not show that it is from the maker may only prolong the lease, with unchanged terms, as many clients
// renew. A subscriber without a token has nothing to show when it unsubscribes, so there the confirmation
// decides, as in WebSub.
func (r *Request) May(s *Subscription) error {
	switch {
	case r.Mode.ByOperator(), !s.Ended.IsZero(), r.Shows(s):
		return nil
	case r.Mode == Unsubscribe && !strings.HasPrefix(s.By, tokenPrefix):
		return nil
	case r.Mode == Subscribe && s.Sealed == "" && r.Terms.equal(&s.Terms) && !r.Move:
		return nil
	}
	return ErrNotYours
}

const tokenPrefix = "token "

// BySet is the Request.By of a subscription that the description of its set asks for. It lasts as long as
// the description asks for it.
const BySet = "set"

// ByToken returns the Request.By of a subscriber with a named token.
func ByToken(name string) string { return tokenPrefix + name }

// NameOf returns the name of the token in a Request.By, or an empty string if it has none.
func NameOf(by string) string {
	if name, ok := strings.CutPrefix(by, tokenPrefix); ok {
		return name
	}
	return ""
}

// ByAddress returns the Request.By of a subscriber without a token: its network address, of IPv6 the first
// 64 bits, since the others may change at any time.
func ByAddress(addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if p, err := addr.Prefix(64); err == nil {
			return "address " + p.String()
		}
	}
	return "address " + addr.String()
}
