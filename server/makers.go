package server

import (
	"strings"
	"time"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
)

// makers are the callers who have made WebSub subscriptions. It is callback.Rights.
type makers struct{ *callers }

var _ callback.Rights = makers{}

// rights returns what says who may go on following; nil: everybody may.
func (c *callers) rights() callback.Rights {
	if c.authenticator == nil {
		return nil
	}
	return makers{c}
}

// Version changes with what callers may do, and with which sets are private.
func (m makers) Version() uint64 { return m.authenticator.Version() + m.changed.Load() }

// How much later than another hub this one may hear of what allows a subscription.
const (
	tokenLate   = 2 * time.Minute           // hubs do not read a new token at the same moment
	privateLate = privateMost + time.Second // until the next look has ended. Rights end within ten seconds
)

// May returns why whoever made a subscription may not follow its set any more.
func (m makers) May(by string, anyone bool, set string) (until time.Time, why string, late time.Duration) {
	name := subscription.NameOf(by)
	caller, ok := m.authenticator.Named(name)
	if !ok {
		return time.Time{}, "the token that it was made with is not valid any more", tokenLate
	}
	rights := caller.Rights
	if anyone && strings.HasPrefix(name, access.JWTPrefix) { // nothing is known of such a caller but what anyone may do
		all, _ := m.authenticator.Named("")
		rights = all.Rights
	}
	st := feed.State{Set: set, Description: feed.Description{Private: (*m.private.Load())[set]}}
	if rights.Sees(st) {
		return caller.Expires, "", 0
	}
	late = tokenLate
	if st.Private = false; rights.Sees(st) { // only that the set is private forbids it
		late = privateLate
	}
	if name == "" {
		return time.Time{}, "a token is needed to follow this set now", late
	}
	return time.Time{}, "the token that it was made with may not follow this set any more", late
}
