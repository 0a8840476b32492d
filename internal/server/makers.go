package server

import (
	"strings"
	"time"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
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

// May returns why the maker of a subscription may not follow its set any more.
func (m makers) May(by, key string, anyone bool, set string) (until time.Time, why string) {
	if by == subscription.BySet {
		return time.Time{}, ""
	}
	name := subscription.NameOf(by)
	caller, ok := m.authenticator.Named(name, key)
	if !ok {
		return time.Time{}, "the token that it was made with is not valid any more"
	}
	rights := caller.Rights
	if anyone && strings.HasPrefix(name, access.JWTPrefix) { // nothing is known of such a caller but what anyone may do
		all, _ := m.authenticator.Named("", "")
		rights = all.Rights
	}
	switch {
	case rights.Sees(feed.State{Set: set, Description: feed.Description{Private: (*m.private.Load())[set]}}):
		return caller.Expires, ""
	case name == "":
		return time.Time{}, "a token is needed to follow this set now"
	}
	return time.Time{}, "the token that it was made with may not follow this set any more"
}
